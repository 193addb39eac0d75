"""Runs as one table, a row each, for other programs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.errors import HarnessError, UsageError
from harness.records.reader import Run
from harness.report.values import flatten

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("csv", "parquet", "json")


def row(run: Run) -> dict[str, Any]:
    """What identifies a run, its configuration as `config.KEY`, its figures by their own keys; no lists."""
    checks = [str(check["check"]) for check in run.validity if check["ok"] is False]
    values: dict[str, Any] = {
        "id": run.id,
        "status": run.status,
        "started_at": run.started_at,
        "sweep": run.sweep,
        "failed_checks": " ".join(checks),
        "plan_sha256": run.fingerprint.get("plan_sha256"),
        "model_sha256": run.fingerprint.get("model_sha256"),
    }
    values |= {f"config.{key}": value for key, value in flatten(run.config).items()}
    values |= flatten(run.summary)
    return {
        key: " ".join(map(str, value)) if isinstance(value, list) and key.startswith("config.") else value
        for key, value in values.items()
        if not isinstance(value, dict) and (not isinstance(value, list) or key.startswith("config."))
    }


def table(runs: Sequence[Run]) -> "pd.DataFrame":
    """A row a run, in order; a figure that a run lacks is missing, never 0."""
    import pandas as pd

    frame = pd.DataFrame([row(run) for run in runs])
    for name in frame.columns:  # a column of numbers in one run and words in another has one type
        kinds = set(frame[name].dropna().map(type))
        if kinds == {bool}:
            frame[name] = frame[name].astype("boolean")
        elif frame[name].map(type).nunique() > 1 and not pd.api.types.is_numeric_dtype(frame[name]):
            known = frame[name].notna()
            numbers = pd.to_numeric(frame[name][known], errors="coerce")
            as_text = frame[name].map(lambda value: None if pd.isna(value) else str(value))
            frame[name] = frame[name].astype("float64") if numbers.notna().all() else as_text
    return frame


def export(runs: Sequence[Run], form: str | None, out: Path | None) -> str:
    """Write the table to `out`, or return it as text where that is None. form: one of FORMATS, None by out's ending.

    Raises UsageError for a form that cannot be told, and HarnessError where the file cannot be written.
    """
    form = form or (out.suffix.removeprefix(".") if out else "csv")
    if form not in FORMATS:
        raise UsageError(
            f"What form {out} should have is not known: end it with .csv, .parquet or .json, or say format=."
        )
    frame = table(runs)
    if out is None:
        if form == "parquet":
            raise UsageError("Parquet is no text: name a file with out=FILE.")
        return _text(frame, form)
    try:
        if form == "parquet":
            frame.to_parquet(out, index=False)
        else:
            out.write_text(_text(frame, form), encoding="utf-8")
    except OSError as error:
        raise HarnessError(
            f"{out} cannot be written ({error.strerror or error}). Name another out=FILE."
        ) from error
    return ""


def _text(frame: "pd.DataFrame", form: str) -> str:
    if form == "csv":
        return str(frame.to_csv(index=False))
    return str(frame.to_json(orient="records", indent=2, double_precision=15)) + "\n"
