"""What is measured of the answers beside their speed."""
