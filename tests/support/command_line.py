"""`python -m harness` as a user runs it: a process of its own, in a folder of its own."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


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
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(arguments: list[str], cwd: Path, **environment: str) -> Done:
    """Run the command to its end."""
    process = start(arguments, cwd, **environment)
    out, err = process.communicate(timeout=400)
    return Done(process.returncode, out, err)


def records(results: Path) -> list[dict[str, Any]]:
    """run.json of every recorded run, oldest first."""
    found = [json.loads(path.read_text()) for path in (results / "runs").glob("[!.]*/run.json")]
    return sorted(found, key=lambda record: record["started_at"])


def leftovers(results: Path) -> list[str]:
    """What a run must not leave: hidden folders of half-written records."""
    return [path.name for path in (results / "runs").glob(".*")]
