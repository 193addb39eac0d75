"""What every number means: pure functions from recorded tables to figures."""
