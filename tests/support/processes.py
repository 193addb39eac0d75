"""Looking at processes that may end meanwhile."""

import psutil


def command_of(process: psutil.Process) -> list[str]:
    """Its command line; [] for one that has ended, reaped or not."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []
