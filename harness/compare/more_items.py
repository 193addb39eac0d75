"""Which option of a quality task gives more items: what to raise where too few of them decide nothing."""

from harness.records.paths import pick
from harness.records.reader import Run

# Options of which more gives more items, by task; the first that a task has.
_SIZES = ("items", "trials", "questions", "documents", "prompts", "tokens")


def size_option(run: Run, task: str) -> tuple[str, int] | None:
    """Key (`quality.rag.prompts`) and value in a run's configuration; None where the task has no such option."""
    options = pick(run.config, f"quality.{task}") or {}
    name = next((name for name in _SIZES if isinstance(options.get(name), int)), None)
    return None if name is None else (f"quality.{task}.{name}", options[name])
