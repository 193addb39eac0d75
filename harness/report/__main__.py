"""`python -m harness.report`: makes a report again from recorded runs."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.errors import HarnessError, UsageError

HELP = """Makes a report again from recorded runs. Measures nothing.

  python -m harness.report                        the latest sweep, or the latest run
  python -m harness.report 'runs=[ID,ID]'         these runs in this order; also folders and *patterns*
  python -m harness.report action=list            which runs there are

  results_dir=FOLDER   where runs lie (default: results)
  out=FOLDER           where the report goes (default: results_dir/reports/ID-OF-THE-FIRST-RUN)
"""
_ACTIONS = ("report", "list")


@dataclass
class Request:
    """What the command line asks for."""

    runs: list[str] = field(default_factory=list)
    results_dir: Path = Path("results")
    out: Path | None = None
    action: str = "report"


def parse(arguments: list[str]) -> Request:
    """Read key=value arguments. Raises UsageError for anything else."""
    request = Request()
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            raise UsageError(f"{argument!r} is not understood: write key=value, see --help.")
        if key == "runs":
            names = value.removeprefix("[").removesuffix("]").split(",")
            request.runs = [name.strip().strip("'\"") for name in names if name.strip()]
        elif key in ("results_dir", "out"):
            setattr(request, key, Path(value))
        elif key == "action" and value in _ACTIONS:
            request.action = value
        elif key == "action":
            raise UsageError(f"action={value} is unknown: choose one of {', '.join(_ACTIONS)}.")
        else:
            raise UsageError(f"{key!r} is no key of this command: runs, results_dir, out or action.")
    return request


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    if "--help" in arguments or "-h" in arguments:
        print(HELP, end="")
        return 0
    try:
        execute(parse(arguments))
    except HarnessError as error:
        print(f"Error: {error}", file=sys.stderr)
        return UsageError.exit_code
    return 0


def execute(request: Request) -> None:
    """Do what was asked; prints the table, one sentence and the path."""
    from harness.records.reader import find_runs, latest_runs, list_runs

    if request.action == "list":
        for name in list_runs(request.results_dir):
            print(name)
        return
    runs = find_runs(request.runs, request.results_dir) if request.runs else latest_runs(request.results_dir)
    from rich.console import Console

    from harness.report import write_report
    from harness.report.terminal import one_sentence, summary_table

    path = write_report(runs, request.out or request.results_dir / "reports" / runs[0].id)
    console = Console(highlight=False)
    console.print(summary_table(runs))
    console.print(one_sentence(runs), markup=False, soft_wrap=True)
    console.print(str(path), markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
