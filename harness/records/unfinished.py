"""Folders of runs whose writer was killed: what it had written is in them, and nobody lists them as runs."""

import os
from pathlib import Path

from harness.core.file_locks import take_over
from harness.records.writer import LOCK, hidden_folder

_SUFFIX = hidden_folder(Path(), "").name.removeprefix(".")


def unfinished_runs(results_dir: Path) -> list[str]:
    """Ids of the runs below results_dir/runs whose writer lives no more, oldest first."""
    return [run_id for run_id in _hidden(results_dir) if is_abandoned(hidden_folder(results_dir, run_id))]


def living_runs(results_dir: Path) -> list[str]:
    """Ids of the runs that are being written, or of whose writer nobody can tell."""
    return [run_id for run_id in _hidden(results_dir) if not is_abandoned(hidden_folder(results_dir, run_id))]


def is_abandoned(folder: Path) -> bool:
    """Whether neither the run's writer nor a measuring client of it lives."""
    for path in (folder / LOCK, *folder.glob("scratch/*/*.journal*")):
        fd = take_over(path)
        if fd is None:
            return False
        os.close(fd)
    return True


def notice(results_dir: Path) -> str | None:
    """One line for whoever runs the next command; None where there is nothing to say."""
    found = len(unfinished_runs(results_dir))
    if not found:
        return None
    what = "An earlier run was" if found == 1 else f"{found} earlier runs were"
    where = "" if results_dir == Path("results") else f" results_dir={results_dir}"
    return f"{what} killed before the record was written. To see, recover or remove: python -m harness.recover{where}"


def _hidden(results_dir: Path) -> list[str]:
    names = (path.name for path in (results_dir / "runs").glob(f".*{_SUFFIX}"))
    return sorted(name.removeprefix(".").removesuffix(_SUFFIX) for name in names)
