"""What a search or a sweep found: a table of its probes, one sentence, and JSON."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from harness.config import Config, shown_config
from harness.core.errors import RecordError
from harness.records.searches import SCHEMA
from harness.search.bracket import Found, Tried, found_by
from harness.search.options import ProbeOptions, SearchOptions

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class Probe:
    """One recorded run of a series.

    met: whether it met the SLO, None where that says nothing: there is none, or the probe broke.
    found: what was held against each limit, in words. remarks: the part of it that is no figure. enough: there were
        samples for every percentile.
    stopped: why it was ended early, None where it was not.
    """

    value: float
    run: str
    status: str
    met: bool | None
    found: str
    remarks: str
    enough: bool
    stopped: str | None
    summary: dict[str, Any]

    @property
    def words(self) -> str:
        """The outcome on one line."""
        other = "failed" if self.status == "failed" else "measured"
        verdict = {True: "met", False: "missed", None: other}[self.met]
        return f"{verdict}: {self.stopped or self.found or self.status}"


@dataclass(frozen=True, slots=True)
class Result:
    """All probes of one series. broken_off: it ended before it had come to its own end."""

    name: str
    sweep: str
    load: ProbeOptions
    config: Config
    probes: tuple[Probe, ...]
    broken_off: bool = False

    def found(self) -> Found | None:
        """The answer of a search, None for a sweep."""
        if not isinstance(self.load, SearchOptions):
            return None
        tried = [Tried(probe.value, probe.met) for probe in self.probes if probe.met is not None]
        return found_by(tried, self.load.rules()) if tried else None

    def sentence(self) -> str:
        """The answer, and how sure it is."""
        found = self.found()
        told = self._of_a_sweep() if found is None else self._of_a_search(found)
        return f"Broken off before its end. So far: {told}" if self.broken_off else told

    def _of_a_search(self, found: Found) -> str:
        if found.value is None:
            return f"No load met the SLO: {found.missed:g} {self.load.unit}, the lowest tried, missed it."
        parts = [f"The highest load found within the SLO is {found.value:g} {self.load.unit}"]
        if found.missed is None:
            parts.append(
                "nothing tried missed it" if found.narrow else "nothing tried missed it, so it lies higher"
            )
        else:
            parts.append(f"{found.missed:g} missed it")
        if not found.narrow and not self.broken_off:
            parts.append("load.probes ended the search before load.tolerance was reached")
        parts.append("a repeat agreed" if found.repeated else "it was not repeated")
        if any(not probe.enough for probe in self.probes if probe.value in (found.value, found.missed)):
            parts.append("few samples for a percentile (raise load.duration_s)")
        return "; ".join(parts) + "."

    def _of_a_sweep(self) -> str:
        if all(probe.met is None for probe in self.probes):
            return f"{len(self.probes)} of the loads were measured, and none was held against an SLO."
        met = ", ".join(f"{probe.value:g}" for probe in self.probes if probe.met)
        return f"Rates that met the SLO: {met or 'none'} (of {len(self.probes)})."

    def table(self) -> "Table":
        """A row a probe, in the order they ran."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for heading in ("probe", self.load.unit):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("SLO", no_wrap=True)
        table.add_column("what was found", overflow="fold")
        for number, probe in enumerate(self.probes, 1):
            style = {True: "green", False: "red", None: ""}[probe.met]
            verdict, _, found = probe.words.partition(": ")
            table.add_row(str(number), f"{probe.value:g}", Text(verdict, style=style), Text(found))
        return table

    def to_record(self) -> dict[str, Any]:
        """The result as JSON has it."""
        found = self.found()
        shown = (
            "output_tokens_per_s",
            "requests_per_s",
            "goodput_per_s",
            "slo_attainment",
            "slo_percentiles",
        )
        return {
            "schema": SCHEMA,
            "id": self.name,
            "sweep": self.sweep,
            "config": shown_config(self.config),
            "unit": self.load.unit,
            "probes": [
                {
                    **{key: value for key, value in dataclasses.asdict(probe).items() if key != "summary"},
                    **{key: probe.summary.get(key) for key in shown},
                }
                for probe in self.probes
            ],
            "broken_off": self.broken_off,
            "answer": dataclasses.asdict(found) if found else None,
            "sentence": self.sentence(),
        }

    def write(self, path: Path) -> None:
        """Write it in one step. Raises RecordError."""
        temporary = path.with_suffix(".part")
        try:
            temporary.write_bytes(orjson.dumps(self.to_record(), option=orjson.OPT_INDENT_2, default=str))
            temporary.replace(path)
        except OSError as error:
            raise RecordError(f"{path} cannot be written ({error.strerror}). Free some space.") from error
