"""Runs a command and writes the CPU time of its whole process tree:  python tree_cpu.py OUT COMMAND…

OUT gets user + system seconds. This process adopts what the command leaves behind and waits for all of it, so that
no process of the tree is left out, however it was started. Exits with the command's status. Linux only.
"""

import ctypes
import os
import resource
import sys
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def main(out: str, command: list[str]) -> int:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    first = os.posix_spawnp(command[0], command, os.environ)
    status = 1
    while True:
        try:
            pid, ended = os.waitpid(-1, 0)
        except ChildProcessError:
            break
        if pid == first:
            status = os.waitstatus_to_exitcode(ended)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    Path(out).write_text(repr(used.ru_utime + used.ru_stime))
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
