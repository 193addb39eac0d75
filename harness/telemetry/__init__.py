"""What is looked at beside the measurement, on the same clock."""
