"""A small parent for an engine: when the harness goes, however it goes, nothing of the engine stays behind.

`python -m backends.supervisor --control FD [--cpus 0,1] -- COMMAND…` starts COMMAND in a session of its own
and writes one line to the socket FD: `pid N`, or `error WHY`. It ends COMMAND and every descendant when that
socket reaches its end of file (the harness closed it or died, `kill -9` included) or on SIGTERM; otherwise it
lives as long as COMMAND and exits with its status (128 + n after signal n).

It is a "child subreaper" (prctl(2)): descendants whose parents died are handed to it rather than to init, so
even one that made a session of its own is found among its children. Standard library only: it must start at once.
"""

import argparse
import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

GRACE_S = 3.0  # between SIGTERM and SIGKILL
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_EXEC_FAILED = 127


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command to its end or to the harness's, whichever comes first; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m backends.supervisor")
    parser.add_argument(
        "--control", type=int, required=True, help="file descriptor of a socket to the harness"
    )
    parser.add_argument("--cpus", default="", help="cores the command may use, e.g. 0,1")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
    if options.cpus:
        os.sched_setaffinity(0, {int(cpu) for cpu in options.cpus.split(",")})  # inherited by the command
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the harness's to handle

    harness = os.getppid()
    control = socket.socket(fileno=options.control)
    control.set_inheritable(False)
    wakeups = _wake_on(signal.SIGCHLD, signal.SIGTERM)
    try:
        pid = _spawn(options.command, libc)
    except OSError as error:
        control.sendall(f"error {options.command[0]}: {error.strerror}\n".encode())
        return _EXEC_FAILED
    control.sendall(f"pid {pid}\n".encode())

    while True:
        # The timeout is for one case only: a forked copy of the harness that keeps the socket open after its death.
        ready, _, _ = select.select([control, wakeups], [], [], 1.0)
        stop = control in ready or os.getppid() != harness
        if wakeups in ready:
            stop = stop or signal.SIGTERM in wakeups.recv(4096)
        status = _reap(pid)
        if stop or status is not None:
            last = _end_all(pid)
            return status if status is not None else last


def _wake_on(*signals: signal.Signals) -> socket.socket:
    """A socket that becomes readable, with the signal's number as a byte, when one of `signals` arrives."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    for number in signals:
        signal.signal(number, lambda *_: None)
    return reader


def _spawn(command: Sequence[str], libc: ctypes.CDLL) -> int:
    """Start `command` as the leader of a new session; raises OSError where it cannot be executed."""
    read_end, write_end = os.pipe()  # closed by a successful exec, else it carries the reason
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # should the supervisor itself be killed
            if os.getppid() != supervisor:
                os._exit(_EXEC_FAILED)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execvp(command[0], list(command))
        except OSError as error:
            os.write(write_end, str(error.errno).encode())
        finally:
            os._exit(_EXEC_FAILED)
    os.close(write_end)
    failure = os.read(read_end, 16)
    os.close(read_end)
    if failure:
        os.waitpid(pid, 0)
        raise OSError(int(failure), os.strerror(int(failure)))
    return pid


def _reap(wanted: int) -> int | None:
    """Collect every child that has ended; the exit status of `wanted` if it is one of them."""
    status = None
    while True:
        try:
            pid, raw = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == wanted:
            code = os.waitstatus_to_exitcode(raw)
            status = code if code >= 0 else 128 - code


def _end_all(wanted: int) -> int:
    """SIGTERM to all descendants, after the grace SIGKILL until none is left; the status of `wanted`."""
    status = 128 + signal.SIGTERM
    asked: set[int] = set()
    deadline = time.monotonic() + GRACE_S
    while alive := descendants(os.getpid()):
        if time.monotonic() < deadline:
            _send(signal.SIGTERM, [pid for pid in alive if pid not in asked])
            asked.update(alive)
        else:
            _send(signal.SIGKILL, alive)
        time.sleep(0.02)
        ended = _reap(wanted)
        status = status if ended is None else ended
    return status


def _send(number: signal.Signals, pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def descendants(root: int) -> list[int]:
    """Process ids below `root`, from one reading of /proc; zombies among them until they are collected."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # pid (name) state ppid …; the name may itself hold spaces and brackets
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue  # ended between the listing and the reading
            children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


if __name__ == "__main__":
    sys.exit(main())
