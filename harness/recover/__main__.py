"""`python -m harness.recover`: what a killed harness left behind, made a record of or removed."""

import sys
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import HarnessError
from harness.core.key_values import key_values

HELP = """Runs whose harness was killed (kill -9, no memory, no power) before their record was written.

  python -m harness.recover                   which there are
  python -m harness.recover action=recover    make a record of each, marked partial, from what its client had written
  python -m harness.recover action=remove     remove them

  results_dir=FOLDER   where runs lie (default: results)

A run that is still being measured is never touched.
"""
_ACTIONS = ("list", "recover", "remove")


@dataclass
class Request:
    """What the command line asks for."""

    action: str = "list"
    results_dir: Path = Path("results")


def parse(arguments: list[str]) -> Request:
    """Read key=value arguments. Raises UsageError for anything else."""
    given = key_values(arguments, ("results_dir",), {"action": _ACTIONS})
    return Request(given.get("action", "list"), Path(given.get("results_dir", "results")))


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    if "--help" in arguments or "-h" in arguments:
        print(HELP, end="")
        return 0
    try:
        return execute(parse(arguments))
    except HarnessError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code


def execute(request: Request) -> int:
    """Do what was asked with each run, a line each; 1 where one could not be recovered."""
    from harness.records.unfinished import living_runs, unfinished_runs

    for run_id in living_runs(request.results_dir):
        print(f"{run_id}  is still being written: left alone")
    found = unfinished_runs(request.results_dir)
    if not found:
        print(f"There is no killed run in {request.results_dir / 'runs'}.")
    status = 0
    for run_id in found:
        try:
            print(f"{run_id}  {_done(request, run_id)}")
        except HarnessError as error:
            print(f"Error: {error}", file=sys.stderr)
            status = error.exit_code
    return status


def _done(request: Request, run_id: str) -> str:
    """Does it; says what became of the run."""
    if request.action == "list":
        return "killed before its record was written"
    from harness.recover.recovering import recover_run, remove_run

    if request.action == "recover":
        return recover_run(request.results_dir, run_id)
    remove_run(request.results_dir, run_id)
    return "removed"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
