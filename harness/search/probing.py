"""Runs probes one after another against one engine: each is a recorded run, with a plan of its own."""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.config import Config
from harness.core.errors import EngineError, HarnessError, Oversaturated
from harness.core.requests import Plan
from harness.metrics.slo import SloOptions
from harness.placement import Placement, place_again
from harness.recording import Findings, Prepared
from harness.records.ids import new_run_id
from harness.records.reader import read_run
from harness.records.searches import FOLDER
from harness.records.writer import RunWriter
from harness.run import Outcome, draw, execute, measure_speed, prepare
from harness.screen import Screen
from harness.search.bracket import Tried, next_value
from harness.search.check import check_probes
from harness.search.options import ProbeOptions, SearchOptions, SweepRateOptions
from harness.search.results import Probe, Result
from harness.search.saturation import Saturation, expected_in_flight
from harness.search.verdict import judge
from harness.serving import Server, serve
from workloads.registry import recorded_requests

_DEVIATIONS = 4.0  # of a Poisson count, for which requests are drawn too
_SPARE = 1.2  # requests drawn beyond those expected, since random arrivals and turns can be more
Next = Callable[[Sequence[Probe]], float | None]
Add = Callable[[Outcome], None]


def run_probes(config: Config, screen: Screen, sweep: str, add: Add) -> None:
    """Search or sweep; every outcome goes to `add`, the result to the screen and to results_dir/searches.

    Raises UsageError or ModelError before anything starts, EngineError where the engine does not come up.
    """
    load = config.load
    if not isinstance(load, ProbeOptions):
        raise TypeError(f"load={load.name} is a single run")
    check_probes(config, load)
    name = new_run_id(config.backend.name, config.workload.name)
    series = _Series(config, load, screen, sweep, add)
    series.look_at_workload()
    value = series.next_value()
    busiest = None if load.highest is None else load.probe(load.highest)
    first = prepare(series.config_of(value or 0.0), screen, busiest)
    folder = Path(config.results_dir) / FOLDER
    _make(folder)
    verb = "Reaching" if config.backend.base_url else "Starting"
    starting = screen.phase(f"{verb} {config.backend.name}")
    log = folder / f"{name}.engine.log"
    try:
        with serve(first.backend, first.model, first.cores, log, starting) as server:
            series.run(first, server)
    finally:
        if series.probes:
            result = Result(name, sweep, load, config, tuple(series.probes), series.broken_off)
            result.write(folder / f"{name}.json")
            screen.result(result.table())
            screen.result(result.sentence())


def next_of(load: ProbeOptions) -> Next:
    """Which value comes after the probes so far; None where that was all."""
    if isinstance(load, SearchOptions):
        rules = load.rules()
        return lambda probes: next_value([Tried(p.value, bool(p.met)) for p in probes], rules)
    if isinstance(load, SweepRateOptions):
        rates = load.rates
        return lambda probes: rates[len(probes)] if len(probes) < len(rates) else None
    raise TypeError(f"load={load.name} has no order of values")


def requests_for(sessions: float, by_chance: bool, turns: float, held: Sequence[int] | None) -> int:
    """How many requests to draw for a probe in which so many sessions are expected.

    by_chance: arrivals are random, so that more can come. turns: requests a session has. held: of a trace instead,
    how many requests its first sessions take, by their number; each that can be sent is drawn with all its turns.
    """
    most = max(1, sessions * _SPARE)
    if by_chance:
        most = max(most, sessions + _DEVIATIONS * math.sqrt(sessions))
    if held is None:
        return math.ceil(most * turns)
    return held[min(math.ceil(most), len(held)) - 1]


def derived_seed(seed: int, probe: int) -> int:
    """A seed of each probe's own, so that no two send the same prompts."""
    digest = hashlib.sha256(f"{seed}/probe/{probe}".encode()).digest()
    return int.from_bytes(digest[:8]) % 1_000_000  # short, since reports show it


@dataclass
class _Series:
    """The probes of one search or sweep."""

    config: Config
    load: ProbeOptions
    screen: Screen
    sweep: str
    add: Add
    probes: list[Probe] = field(default_factory=list)
    broken_off: bool = True  # until it came to its end
    _turns: float = 1.0  # requests a session, on average
    _held: Sequence[int] | None = None  # requests that the first sessions of a trace take, by their number

    def next_value(self) -> float | None:
        return next_of(self.load)(self.probes)

    def look_at_workload(self) -> None:
        """Learn how much a recorded trace holds. Raises UsageError where it cannot be read."""
        self._held = recorded_requests(self.config.workload)

    def config_of(self, value: float) -> Config:
        """The configuration of the next probe, as an ordinary run."""
        workload = self.config.workload
        sessions = self.load.sessions(value)
        if sessions is not None and (workload.requests is not None or self._held is not None):
            by_chance = self.load.probe(value).open_loop
            wanted = requests_for(sessions, by_chance, self._turns, self._held)
            wanted = min(wanted, self.load.requests) if self.load.requests is not None else wanted
            wanted = max(workload.requests or 0, wanted) if self._held is None else wanted
            workload = replace(workload, requests=wanted)
        seed = derived_seed(self.config.seed, len(self.probes))
        return replace(self.config, seed=seed, load=self.load.probe(value), workload=workload)

    def run(self, first: Prepared, server: Server) -> None:
        """Probe after probe, until there is no more to try or something really failed."""
        if self._held is None:
            self._turns = _turns(first.plan)
        placed = Placement(first.cores, first.workers)
        while (value := self.next_value()) is not None:
            self.screen.heading(f"Probe {len(self.probes) + 1}: {value:g} {self.load.unit}")
            config = self.config_of(value)
            prepared = first
            if config != first.config:
                plan = draw(config, first.model, first.tokenizer, self.screen)
                placed = place_again(config, plan, placed)
                prepared = replace(
                    first, config=config, plan=plan, cores=placed.cores, workers=placed.workers
                )
            outcome = self._probe(value, prepared, server)
            self.add(outcome)
            if outcome.run_id is None or outcome.interrupted:
                return
            probe = self._judged(value, outcome, self.config.slo)
            self.probes.append(probe)
            self._refuse_to_go_on(outcome, server)
            self.screen.say(f"  {probe.words}")
        self.broken_off = False

    def _probe(self, value: float, prepared: Prepared, server: Server) -> Outcome:
        saturation = Saturation(self.load.most_in_flight, self._expected(value))
        watched = prepared.config.load.open_loop

        def measuring(prepared: Prepared, findings: Findings, writer: RunWriter, screen: Screen) -> None:
            findings.launch["speed"] = server.launch
            try:
                if watched:
                    measure_speed(prepared, server, findings, writer, screen, saturation.look)
                else:
                    measure_speed(prepared, server, findings, writer, screen)
            except HarnessError as error:
                if saturation.reason is None or isinstance(error, EngineError):
                    raise
                raise Oversaturated(f"The probe was ended: {saturation.reason}.") from None

        return execute(prepared, self.screen, self.sweep, measuring)

    def _expected(self, value: float) -> float | None:
        """Requests in flight that a server which keeps up would have, by the last probe that was not missed."""
        for probe in reversed(self.probes):
            rate, e2e_ms = (
                probe.summary.get("requests_per_s"),
                (probe.summary.get("e2e_ms") or {}).get("mean"),
            )
            if probe.met is not False and probe.status == "complete" and rate and e2e_ms:
                return expected_in_flight(rate, e2e_ms, value, probe.value)
        return None

    def _judged(self, value: float, outcome: Outcome, slo: SloOptions) -> Probe:
        run = read_run(outcome.run_id or "", Path(self.config.results_dir))
        verdict = judge(run, slo, self.load.attainment)
        stopped = str(outcome.error) if isinstance(outcome.error, Oversaturated) else None
        return Probe(
            value=value,
            run=run.id,
            status=run.status,
            met=verdict.met,
            found=verdict.text,
            remarks="; ".join(verdict.remarks),
            enough=verdict.enough,
            stopped=stopped,
            summary=dict(run.summary),
        )

    def _refuse_to_go_on(self, outcome: Outcome, server: Server) -> None:
        """A probe whose requests all failed is a miss only where the server has answered at a lower load."""
        if outcome.error is None or isinstance(outcome.error, Oversaturated):
            return
        answered = any(probe.status == "complete" for probe in self.probes)
        measured = bool(self.probes[-1].summary)
        if not (server.alive and answered and measured):
            self.probes[-1] = replace(self.probes[-1], met=None)
            raise EngineError("The search ended, since a probe failed for another reason than its load.")


def _turns(plan: Plan) -> float:
    return len(plan.requests) / max(1, len({request.session for request in plan.requests}))


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HarnessError(
            f"{folder} cannot be made ({error.strerror}). Choose another place with results_dir=FOLDER."
        ) from error
