"""Real-time scheduling: asked for, told truly, and inherited by nobody."""

import os
import subprocess
import sys

from harness.client.priority import go_first


def test_what_it_says_is_what_the_system_says():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        granted = go_first(process.pid)
        policy = os.sched_getscheduler(process.pid) & ~os.SCHED_RESET_ON_FORK
        assert policy == (os.SCHED_FIFO if granted else os.SCHED_OTHER)
    finally:
        process.communicate(b"\n")


def test_children_are_scheduled_as_usual():
    code = (
        "import subprocess, sys; from harness.client.priority import go_first; go_first();"
        "subprocess.run([sys.executable, '-c', 'import os; print(os.sched_getscheduler(0))'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == os.SCHED_OTHER


def test_a_process_that_is_gone_is_refused():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert go_first(process.pid) is False
