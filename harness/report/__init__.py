"""Reports over recorded runs. Reads records only; knows no engine, workload or client."""
