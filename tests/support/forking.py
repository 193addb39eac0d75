"""Commands in processes that need not import first: forks of one that has imported what all commands do.

Importing takes longer than most commands that tests run. Each command still has a process of its own, with its own
folder, environment and files for what it says, and is run as `python -m` runs it. `python -m tests.support.forking`
reads commands as lines of JSON and answers each with its status once it has ended, one after another.
"""

import atexit
import importlib
import json
import os
import runpy
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# What commands import early or late; nothing of it reads the folder, the arguments or the environment of a test.
_IMPORTED = (
    *("harness.app", "harness.client", "harness.report.write", "harness.compare.groups"),
    *("matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "scipy.stats", "ruptures"),
)


class Forks:
    """A process that forks on demand, started when it is first asked."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._parent: subprocess.Popen[str] | None = None

    def run(
        self,
        arguments: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        said: tuple[Path, Path],
        limit_s: float,
    ) -> int:
        """The status of `python -m arguments…`; said: files for standard output and standard error.

        Raises subprocess.TimeoutExpired, after which the next command has another parent.
        """
        parent = self._running()
        assert parent.stdin is not None and parent.stdout is not None
        asked = {"arguments": list(arguments), "cwd": str(cwd), "environment": dict(environment)}
        parent.stdin.write(json.dumps({**asked, "said": [str(path) for path in said]}) + "\n")
        parent.stdin.flush()
        ready, _, _ = select.select([parent.stdout], [], [], limit_s)
        if not ready:
            self.close()
            raise subprocess.TimeoutExpired(list(arguments), limit_s)
        return int(parent.stdout.readline())

    def close(self) -> None:
        """End the parent; a command that runs meanwhile goes on."""
        if self._parent is not None:
            self._parent.kill()
            self._parent.communicate()
            self._parent = None

    def _running(self) -> "subprocess.Popen[str]":
        if self._parent is None:
            self._parent = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forking"],
                cwd=self._root,
                stdin=subprocess.PIPE,  # its end of file, should this process be killed, ends the parent
                stdout=subprocess.PIPE,
                text=True,
            )
            atexit.register(self.close)
        return self._parent


def _next_command() -> dict[str, Any] | None:
    """In a child what it is to run, once for each line; in the parent None when there is no more."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            asked: dict[str, Any] = json.loads(line)
            return asked
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return None


def _become(cwd: str, environment: dict[str, str], said: list[str], inherited: Sequence[str]) -> None:
    """Folder, environment and files of the command; what imports have set in the environment stays."""
    for name in set(inherited) - set(environment):
        os.environ.pop(name, None)
    os.environ.update(environment)
    os.chdir(cwd)
    for descriptor, path in enumerate([os.devnull, *said]):
        opened = os.open(path, os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, descriptor)
        os.close(opened)


def _serve() -> None:
    inherited = list(os.environ)
    for name in _IMPORTED:
        importlib.import_module(name)
    asked = _next_command()
    if asked is None:
        return
    _become(asked["cwd"], asked["environment"], asked["said"], inherited)
    module, *arguments = asked["arguments"]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve()
