"""Going on with a sweep that was stopped: what of it was measured already, by configuration."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from harness.config import Config, shown_config
from harness.core.errors import UsageError
from harness.records.reader import list_runs, read_run, runs_of_sweep
from harness.records.setting_keys import MEASURES_NOTHING
from harness.report.values import flatten

LATEST = "latest"


class Earlier:
    """The complete runs of an earlier command, each taken once: of five repeats, three that are there leave two."""

    def __init__(self, sweep: str, results_dir: Path) -> None:
        """Raises UsageError where there is no such sweep."""
        self.sweep = (_latest(results_dir) or sweep) if sweep == LATEST else sweep
        runs = runs_of_sweep(self.sweep, results_dir)
        if not runs:
            raise UsageError(
                f"There is no run of {sweep} in {results_dir / 'runs'}. resume= takes the name of a command's report "
                f"folder (results/reports/NAME), or {LATEST}."
            )
        self._ids: dict[bytes, list[str]] = defaultdict(list)
        for run in runs:
            if run.status == "complete":
                self._ids[_key(run.config)].append(run.id)

    def take(self, config: Config) -> str | None:
        """The id of a complete run of this configuration that was not taken yet; None where there is none."""
        ids = self._ids[_key(shown_config(config))]
        return ids.pop(0) if ids else None

    def holds(self, config: Config) -> bool:
        """Whether there is a complete run of this configuration."""
        return bool(self._ids[_key(shown_config(config))])

    def left(self) -> int:
        """How many complete runs nobody has taken."""
        return sum(map(len, self._ids.values()))


def _latest(results_dir: Path) -> str | None:
    for name in reversed(list_runs(results_dir)):
        if (sweep := read_run(name, results_dir).sweep) is not None:
            return sweep
    return None


def _key(config: Mapping[str, Any]) -> bytes:
    """What decides the measurement, as comparable bytes; prices too, since figures of the record follow from them."""
    values = {key: value for key, value in flatten(config).items() if key not in MEASURES_NOTHING}
    return orjson.dumps(values, option=orjson.OPT_SORT_KEYS)
