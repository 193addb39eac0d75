"""`python -m harness.report`: makes a report again from recorded runs."""

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.errors import HarnessError, RecordError, UsageError
from harness.core.key_values import key_values
from harness.records.reader import Run, runs_of_sweep
from harness.records.selection import FILTERS, Selection, select, selection_of

HELP = """Makes a report again from recorded runs. Measures nothing.

  python -m harness.report                        the latest sweep, or the latest run
  python -m harness.report 'runs=[ID,ID]'         these runs in this order; also folders and *patterns*
  python -m harness.report action=list            which runs there are

  filter.backend=, filter.workload=, filter.status=   only runs of these names or *patterns*
  filter.since=7d      only runs that are no older (30m, 12h, 7d, 2w), or since a date
  results_dir=FOLDER   where runs lie (default: results)
  out=FOLDER           where the report goes (default: a folder below results_dir/reports, named by the runs)
"""
_ACTIONS = ("report", "list")


@dataclass
class Request:
    """What the command line asks for."""

    selection: Selection = field(default_factory=Selection)
    results_dir: Path = Path("results")
    out: Path | None = None
    action: str = "report"


def parse(arguments: list[str]) -> Request:
    """Read key=value arguments. Raises UsageError for anything else."""
    given = key_values(arguments, ("runs", "results_dir", "out", *FILTERS), {"action": _ACTIONS})
    return Request(
        selection_of(given),
        Path(given.get("results_dir", "results")),
        Path(given["out"]) if "out" in given else None,
        given.get("action", "report"),
    )


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
    from harness.records.reader import latest_runs, list_runs
    from harness.records.unfinished import notice

    if (left := notice(request.results_dir)) is not None:
        print(f"Warning: {left}", file=sys.stderr)

    if request.action == "list":
        names = list_runs(request.results_dir)
        if not names:
            raise RecordError(
                f"There is no run in {request.results_dir / 'runs'}. Name another results_dir=FOLDER."
            )
        for name in names:
            print(listed_run(name, request.results_dir))
        return
    narrowed = request.selection.narrows
    runs = select(request.selection, request.results_dir) if narrowed else latest_runs(request.results_dir)
    from rich.console import Console

    from harness.records.searches import searches_of
    from harness.report import write_report
    from harness.report.quality_costs import cost_lines
    from harness.report.terminal import one_sentence, summary_table

    path = write_report(runs, request.out or request.results_dir / "reports" / folder_name(runs))
    console = Console(highlight=False)
    console.print(summary_table(runs))
    for search in searches_of(runs):
        console.print(search.sentence, markup=False, soft_wrap=True)
    console.print(one_sentence(runs), markup=False, soft_wrap=True)
    for line in cost_lines(runs):
        console.print(line, markup=False, soft_wrap=True)
    console.print(str(path), markup=False, soft_wrap=True)


def listed_run(name: str, results_dir: Path) -> str:
    """One line of the list: id, status, and output tokens per second or the reason why there are none."""
    from harness.records.paths import pick
    from harness.records.reader import read_run
    from harness.report.values import number

    try:
        run = read_run(name, results_dir)
    except RecordError as error:
        return f"{name}  unreadable  {error}"
    rate = pick(run.summary, "output_tokens_per_s")
    what = f"{number(rate)} tokens/s" if rate is not None else (run.reason or "").splitlines()[:1]
    return f"{name}  {run.status:<8}  {what if isinstance(what, str) else ''.join(what)}"


def folder_name(runs: Sequence[Run]) -> str:
    """The sweep's name where these are its runs and nothing else; elsewhere one that no other selection has."""
    sweeps = {run.sweep for run in runs}
    if len(sweeps) == 1 and (sweep := sweeps.pop()):
        results = runs[0].folder.parent.parent
        if len(runs) == len(runs_of_sweep(sweep, results)):
            return sweep
    digest = hashlib.sha256("\n".join(run.id for run in runs).encode()).hexdigest()
    return f"selection-{digest[:8]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
