"""Every night's figures in one table, and the nights at which a series changed its level."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.errors import RecordError
from harness.core.file_locks import locked
from harness.gate.baselines import Key
from harness.gate.findings import REGRESSED, Outcome

if TYPE_CHECKING:
    import pandas as pd

# night: its name. accepted: the night that was the baseline, "" where none was. candidate, baseline: medians over
# runs; in stored mode the baseline is the usual value. versions: of the engine, as JSON.
COLUMNS = {
    "night": "string",
    "experiment": "string",
    "engine": "string",
    "hardware": "string",
    "mode": "string",
    "cell": "string",
    "path": "string",
    "candidate": "float64",
    "baseline": "float64",
    "word": "string",
    "accepted": "string",
    "harness_commit": "string",
    "versions": "string",
}
_FEWEST_BETWEEN_CHANGES = 3  # nights
_MOST_ODD = 2.0  # standard deviations of the noise that a night may be off its neighbours
# In units of the noise variance: 5 log(n) finds a level that is not there in about one of a hundred series.
_PENALTY = 5.0


def read_history(folder: Path) -> "pd.DataFrame":
    """All rows, oldest first; empty where there are none. Raises RecordError for a damaged file."""
    import pandas as pd

    path = folder / "history.parquet"
    if not path.is_file():
        return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in COLUMNS.items()})
    try:
        return pd.read_parquet(path)[list(COLUMNS)].astype(COLUMNS)
    except (OSError, ValueError, KeyError) as error:
        raise RecordError(f"{path} is damaged ({error}). Restore it from a copy, or move it away.") from error


def append(
    folder: Path, key: Key, outcome: Outcome, accepted: str, harness_commit: str, versions: dict[str, Any]
) -> None:
    """Add tonight's figures; the file is replaced whole, under a lock, so that two gates lose nothing."""
    import pandas as pd

    rows = [
        {
            "night": outcome.night,
            "experiment": key.experiment,
            "engine": key.engine,
            "hardware": key.hardware,
            "mode": outcome.mode,
            "cell": finding.cell,
            "path": finding.path,
            "candidate": finding.candidate,
            "baseline": finding.baseline,
            "word": finding.word,
            "accepted": accepted,
            "harness_commit": harness_commit,
            "versions": json.dumps(versions, sort_keys=True),
        }
        for finding in outcome.findings
        if finding.candidate is not None
    ]
    if not rows:
        return
    path = folder / "history.parquet"
    with locked(folder / "history.lock"):
        tonight = pd.DataFrame(rows).astype(COLUMNS)
        past = read_history(folder)
        whole = tonight if past.empty else pd.concat([past, tonight], ignore_index=True)
        unfinished = path.with_suffix(".part")
        whole.to_parquet(unfinished, index=False)
        unfinished.replace(path)


def unchanged(history: "pd.DataFrame", key: Key, cell: str, path: str, accepted: str) -> list[float]:
    """Medians of the nights since `accepted` in order, those that regressed left out: what is usual."""
    rows = _of(history, key, cell, path)
    rows = rows[(rows["night"] >= accepted) & (rows["word"] != REGRESSED)]
    return [float(value) for value in rows["candidate"]]


@dataclass(frozen=True, slots=True)
class Change:
    """A series found a new level between two nights. ratio: new level / old one. Versions are those of each night."""

    cell: str
    path: str
    last_before: str
    first_after: str
    ratio: float
    before: str
    after: str


def changes(history: "pd.DataFrame", key: Key) -> list[Change]:
    """Change points of every series, oldest first.

    Where nights were paired the series is candidate / baseline, from which the machine's drift cancels; else the
    candidate's figure. PELT (Killick et al. 2012) on logarithms with the cost of a changed mean, its penalty in
    units of the noise between neighbouring nights.
    """
    ours = history[
        (history["experiment"] == key.experiment)
        & (history["engine"] == key.engine)
        & (history["hardware"] == key.hardware)
    ]
    found = []
    paired_nights = ours["mode"] == "paired"
    against = ours["accepted"].where(paired_nights, "")  # a new baseline moves the ratio, and is no change
    for (cell, path, paired, _), rows in ours.groupby(["cell", "path", paired_nights, against], sort=False):
        values = rows["candidate"] / rows["baseline"] if paired else rows["candidate"]
        kept = rows[(values > 0).to_numpy()]
        series = [log(value) for value in values[values > 0]]
        for place in change_points(series):
            last, first = kept.iloc[place - 1], kept.iloc[place]
            level = _level(series, place)
            found.append(
                Change(
                    str(cell),
                    str(path),
                    str(last["night"]),
                    str(first["night"]),
                    level,
                    _versions(last),
                    _versions(first),
                )
            )
    return sorted(found, key=lambda change: change.first_after)


def change_points(series: Sequence[float]) -> list[int]:
    """Positions of the first value of each new level, in a series of logarithms."""
    import numpy as np
    import ruptures
    from scipy.ndimage import median_filter

    values = np.asarray(series, dtype=float)
    if len(values) < 2 * _FEWEST_BETWEEN_CHANGES:
        return []
    # Neighbours differ by noise alone except at the few changes; a median does not see those.
    noise = float(np.median(np.abs(np.diff(values)))) / 0.954
    usual = median_filter(values, size=_FEWEST_BETWEEN_CHANGES + 2, mode="nearest")
    kept = np.clip(
        values, usual - _MOST_ODD * noise, usual + _MOST_ODD * noise
    )  # one odd night is no new level
    search = ruptures.Pelt(model="l2", min_size=_FEWEST_BETWEEN_CHANGES, jump=1).fit(kept / (noise or 1e-9))
    *inner, _ = search.predict(pen=_PENALTY * log(len(values)))
    return [int(place) for place in inner]


def _level(series: Sequence[float], place: int) -> float:
    from math import exp
    from statistics import median

    return exp(median(series[place:]) - median(series[:place]))


def _versions(row: "pd.Series[Any]") -> str:
    engine = ", ".join(f"{name} {version}" for name, version in json.loads(row["versions"]).items())
    return f"harness {row['harness_commit'] or 'unknown'}, {engine or 'engine unknown'}"


def _of(history: "pd.DataFrame", key: Key, cell: str, path: str) -> "pd.DataFrame":
    return history[
        (history["experiment"] == key.experiment)
        & (history["engine"] == key.engine)
        & (history["hardware"] == key.hardware)
        & (history["cell"] == cell)
        & (history["path"] == path)
    ]
