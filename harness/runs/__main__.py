"""`python -m harness.runs`: which runs are recorded; shows, exports or deletes them."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.core.errors import HarnessError, RecordError, UsageError
from harness.core.key_values import key_values
from harness.records.reader import Run
from harness.records.selection import FILTERS, selection_of

HELP = """Lists recorded runs, shows one, exports their figures, or deletes them.

  python -m harness.runs                                    all runs, oldest first
  python -m harness.runs filter.backend=vllm filter.workload=rag filter.since=7d
  python -m harness.runs action=show runs=ID                every figure and option of a run
  python -m harness.runs action=export out=runs.csv         a row a run; also .parquet and .json
  python -m harness.runs action=delete filter.status=failed           says what it would delete
  python -m harness.runs action=delete filter.status=failed yes=true  deletes it

  runs=[ID,...]        ids, folders, *patterns* over ids
  filter.backend=, filter.workload=, filter.status=    names or *patterns*
  filter.since=        an age (30m, 12h, 7d, 2w) or a date (2026-11-30)
  format=csv|parquet|json   of an export (default: by the ending of out=)
  results_dir=FOLDER   where runs lie (default: results)

Exit codes: 0 done, 1 there is no such run, 2 wrong usage
"""
_CHOICES = {
    "action": ("list", "show", "export", "delete"),
    "format": ("csv", "parquet", "json"),
    "yes": ("true", "false"),
}


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    if "--help" in arguments or "-h" in arguments:
        print(HELP, end="")
        return 0
    try:
        execute(key_values(arguments, ("runs", "results_dir", "out", *FILTERS), _CHOICES))
    except HarnessError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def execute(given: Mapping[str, str]) -> None:
    """Do what was asked."""
    from harness.records.selection import select
    from harness.records.unfinished import notice
    from harness.runs.exporting import export

    results_dir = Path(given.get("results_dir", "results"))
    if (left := notice(results_dir)) is not None:
        print(f"Warning: {left}", file=sys.stderr)
    selection = selection_of(given)
    action = given.get("action", "list")
    if action == "list" and not selection.narrows:
        _list_all(results_dir)
        return
    if action in ("show", "delete") and not selection.narrows:
        raise UsageError(f"action={action} needs to know which: runs=[ID,…] or a filter. See --help.")
    runs = select(selection, results_dir)
    if action == "list":
        for run in runs:
            print(_line(run))
    elif action == "show":
        for run in runs:
            _show(run)
    elif action == "export":
        out = Path(given["out"]) if "out" in given else None
        print(export(runs, given.get("format"), out) if out is None else _exported(runs, given, out), end="")
    else:
        _delete(runs, results_dir, given.get("yes") == "true")


def _exported(runs: Sequence[Run], given: Mapping[str, str], out: Path) -> str:
    from harness.runs.exporting import export

    export(runs, given.get("format"), out)
    return f"{out}: {len(runs)} {'run' if len(runs) == 1 else 'runs'}\n"


def _list_all(results_dir: Path) -> None:
    """Every record, those included that cannot be read."""
    from harness.records.reader import list_runs, read_run

    found = list_runs(results_dir)
    if not found:
        raise RecordError(f"There is no run in {results_dir / 'runs'}. Make one with: python -m harness")
    for name in found:
        try:
            print(_line(read_run(name, results_dir)))
        except RecordError as error:
            print(f"{name}  unreadable  {error}")


def _line(run: Run) -> str:
    from harness.records.paths import pick
    from harness.report.values import number

    rate = pick(run.summary, "output_tokens_per_s")
    first = (run.reason or "").splitlines()[:1]
    what = f"{number(rate)} tokens/s" if rate is not None else "".join(first)
    backend, workload = (pick(run.config, f"{group}.name") or "–" for group in ("backend", "workload"))
    started = run.started_at[:16].replace("T", " ")
    return f"{run.id}  {started}  {run.status:<8}  {backend} · {workload}  {what}".rstrip()


def _show(run: Run) -> None:
    from harness.runs.exporting import row

    for key, value in row(run).items():
        if value is not None and value != "":
            print(f"{key}: {value}")
    if run.reason:
        print(f"reason: {run.reason}")
    print(f"folder: {run.folder}\n")


def _delete(runs: Sequence[Run], results_dir: Path, sure: bool) -> None:
    """Only what lies in this results folder: a run that was named by another folder is somebody else's."""
    kept = [run.id for run in runs if run.folder.resolve().parent != (results_dir / "runs").resolve()]
    if kept:
        raise UsageError(
            f"{', '.join(kept)} does not lie in {results_dir / 'runs'}: name its results_dir=FOLDER."
        )
    for run in runs:
        if sure:
            try:
                shutil.rmtree(run.folder)
            except OSError as error:
                raise HarnessError(f"{run.folder} cannot be deleted ({error.strerror or error}).") from error
        print(("deleted  " if sure else "would delete  ") + _line(run))
    if not sure:
        print("Nothing was deleted. Add yes=true to delete them.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
