"""Commands of `python -m harness` that end before anything starts, one after another in one process.

Importing what the harness needs takes longer than such a command. `python -m tests.support.in_one_process` reads
[[folder, arguments], …] as JSON, runs each in its folder, and writes [[status, standard output, standard error], …].
"""

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.command_line import ROOT, Done


def run_each(commands: Sequence[tuple[Path, list[str]]]) -> list[Done]:
    """How each of these, (folder, arguments after `python -m harness`), ended."""
    asked = json.dumps([(str(folder), arguments) for folder, arguments in commands])
    child = subprocess.run(
        [sys.executable, "-m", "tests.support.in_one_process"],
        input=asked,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert child.returncode == 0, child.stderr
    return [Done(*each) for each in json.loads(child.stdout)]


def _run(folder: str, arguments: list[str]) -> tuple[int, str, str]:
    from harness.__main__ import main

    os.chdir(folder)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(arguments)
    return status, out.getvalue(), err.getvalue()


if __name__ == "__main__":
    print(json.dumps([_run(*each) for each in json.load(sys.stdin)]))
