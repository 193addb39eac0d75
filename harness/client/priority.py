"""Being woken at once: on a machine that others use too, a normal process waits for milliseconds."""

import os


def go_first(pid: int = 0) -> bool:
    """Ask for real-time scheduling of a process (0: the calling thread); False where the system refuses it.

    The measuring client sleeps nearly all the time and works for microseconds, on a core of its own where there
    is one. Its error under a full load of other programs falls from milliseconds to a tenth of one. Threads and
    processes that it starts later are scheduled as usual.
    """
    try:
        os.sched_setscheduler(pid, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:  # it takes a right that only root, or whoever root gave it, has
        return False
    return True
