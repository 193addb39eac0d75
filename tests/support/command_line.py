"""`python -m harness` as a user runs it: a process of its own, in a folder of its own.

What `start` starts is an interpreter of its own as well; what `run` runs is spared the imports.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.forking import Forks

ROOT = Path(__file__).parents[2]
_FORKS = Forks(ROOT)


@dataclass
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        return self.out.strip().splitlines()[-1]


def start(arguments: list[str], cwd: Path, **environment: str) -> subprocess.Popen[str]:
    """Start the command; its output is collected through pipes, so it is no terminal."""
    return subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=cwd,
        env=_environment(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(arguments: list[str], cwd: Path, **environment: str) -> Done:
    """Run the command to its end; its output is collected through files, so it is no terminal."""
    with TemporaryDirectory() as folder:
        said = (Path(folder, "out"), Path(folder, "err"))
        status = _FORKS.run(arguments, cwd, _environment(environment), said, 400)
        out, err = (path.read_text() if path.exists() else "" for path in said)
    return Done(status, out, err)


def _environment(more: dict[str, str]) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", **more}


def records(results: Path) -> list[dict[str, Any]]:
    """run.json of every recorded run, oldest first."""
    found = [json.loads(path.read_text()) for path in (results / "runs").glob("[!.]*/run.json")]
    return sorted(found, key=lambda record: record["started_at"])


def leftovers(results: Path) -> list[str]:
    """What a run must not leave: hidden folders of half-written records."""
    return [path.name for path in (results / "runs").glob(".*")]
