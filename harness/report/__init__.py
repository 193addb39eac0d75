"""Reports over recorded runs. Reads records only; knows no engine, workload or client."""

from harness.report.write import write_report

__all__ = ["write_report"]
