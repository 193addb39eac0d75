"""Everything that was measured, one JSON object a line, so that a long measurement can be made in pieces."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.kv.settings import Named


class Readings:
    """file: what it holds is kept and added to; None keeps nothing beyond this run."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        lines = file.read_text().splitlines() if file is not None and file.is_file() else []
        self._all: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def add(self, case: str, named: Named, **figures: Any) -> None:
        """A reading of `case`; figures: what it was of, and what it gave."""
        reading = {"case": case, "key": named.key, "who": named.who, "name": named.name, **figures}
        self._all.append(reading)
        if self._file is not None:
            with self._file.open("a") as kept:
                kept.write(json.dumps(reading) + "\n")

    def of(self, case: str, named: Named | None = None, **like: Any) -> Iterator[dict[str, Any]]:
        """Readings of `case`, of this setting where one is named, whose figures equal those of `like`."""
        for reading in self._all:
            if reading["case"] != case or (named is not None and reading["key"] != named.key):
                continue
            if all(reading[name] == value for name, value in like.items()):
                yield reading
