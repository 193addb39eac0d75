"""Makes records of runs whose harness was killed, from what their clients had written by then."""
