"""All runs of one command: collects their outcomes, and at the end makes the report and decides the exit code."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from harness.config import Config
from harness.core.errors import HarnessError, Oversaturated, UsageError
from harness.recording import record_failure
from harness.records.unfinished import notice
from harness.resuming import Earlier
from harness.run import Outcome, checked, execute, prepare
from harness.screen import Screen
from harness.search.options import ProbeOptions
from harness.search.probing import run_probes

INTERRUPTED = 130  # 128 + SIGINT, as shells say it


def time_left(seconds: float, done: int, total: int) -> str:
    """How long the runs that are left take, in words, if they take as long as the `done` ones did on average."""
    minutes = seconds / done * (total - done) / 60
    if minutes < 1:
        return "less than a minute left"
    return f"about {minutes:.0f} min left" if minutes < 90 else f"about {minutes / 60:.1f} h left"


@dataclass
class Job:
    """One member of a sweep, or the only run of a command. configured: composes it; may raise UsageError."""

    configured: Callable[[], Config]
    config: Config | None = None
    given_up: bool = False  # it cannot start, so that its later repeats cannot either


@dataclass
class Session:
    """What happened so far. Jobs after an interruption are skipped, and the count of them is told."""

    screen: Screen
    resume: str | None = None  # the sweep to go on with
    interrupted: bool = False
    jobs: list[Job] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    skipped: int = 0
    results_dir: Path = Path("results")
    _noticed: set[Path] = field(default_factory=set)
    _begun: int = 0  # runs, searches counted as one
    _earlier: Earlier | None = None
    _taken: int = 0  # runs of an earlier command that stand for those of this one
    started: datetime = field(default_factory=lambda: datetime.now(UTC))

    def add_job(self, configured: Callable[[], Config]) -> None:
        """Note a job; nothing runs until all are known."""
        self.jobs.append(Job(configured))

    def run_jobs(self) -> None:
        """Run every job, and all of them again for each repeat: A B C, A B C. Never raises.

        A machine's speed drifts over minutes; repeats that follow one another would each get another part of it,
        interleaved ones share it. A job that cannot start is told and, in a sweep, recorded as failed: its row must
        not be missing from the report. Alone it leaves nothing behind.
        """
        self._check_ahead()
        if self.resume is not None and not self._look_back(self.resume):
            return
        repeat, most = 0, 1
        while repeat < most:
            for job in self.jobs:
                self._run_job(job, repeat)
            most = max((job.config.repeats for job in self.jobs if job.config), default=1)
            repeat += 1

    def _check_ahead(self) -> None:
        """In a sweep, tell now of what cannot run: a typo in the last of its values must not cost an hour to see."""
        if len(self.jobs) < 2:
            return
        try:
            with self.screen.phase(f"Checking {len(self.jobs)} runs") as detail:
                problems = []
                for number, job in enumerate(self.jobs, 1):
                    detail(f"run {number} of {len(self.jobs)}")
                    if problem := self._problem(job, detail):
                        problems.append(problem)
        except KeyboardInterrupt:
            self.interrupted = True
            return
        for problem in dict.fromkeys(problems):
            self.screen.warn(f"A run will be recorded as failed, the others go on: {problem}")

    def _look_back(self, sweep: str) -> bool:
        """Find what was measured before; False, and told, where there is nothing to go on with."""
        try:
            configs = [config for job in self.jobs if (config := self._composed(job)) is not None]
            if not configs:
                return True  # each job tells what is wrong with it when its turn comes
            self._earlier = Earlier(sweep, Path(configs[0].results_dir))
            if not any(self._earlier.holds(config) for config in configs):
                raise UsageError(
                    f"None of these runs belongs to {self._earlier.sweep}. Give the arguments that it was started "
                    "with, or leave resume= out."
                )
        except HarnessError as error:
            self._add(Outcome(None, "failed", error))
            return False
        found = self._earlier.left()
        self.screen.say(f"Going on with {self._earlier.sweep}: {found} of its runs are complete.")
        return True

    def _composed(self, job: Job) -> Config | None:
        try:
            job.config = job.config or job.configured()
        except HarnessError:
            return None
        return job.config

    def _problem(self, job: Job, say: Callable[[str], None]) -> str | None:
        try:
            if job.config is None:
                job.config = job.configured()
            if not isinstance(job.config.load, ProbeOptions):
                checked(job.config, say)
        except HarnessError as error:
            return str(error)
        except Exception:  # a fault of the harness: told, with its traceback, when the job's turn comes
            return None
        return None

    def _run_job(self, job: Job, repeat: int) -> None:
        if job.given_up or (job.config is not None and repeat >= job.config.repeats):
            return
        if self.interrupted:
            self.skipped += 1
            return
        try:
            if job.config is None:
                job.config = job.configured()
            config = job.config
            self._look_at(Path(config.results_dir))
            if self._earlier and (run_id := self._earlier.take(config)) is not None:
                self._taken += 1
                self._add(Outcome(run_id, "complete"))
                return
            suffix = f", repeat {repeat + 1} of {config.repeats}" if config.repeats > 1 else ""
            self.screen.heading(f"{config.workload.name} on {config.backend.name}{suffix}{self._how_far()}")
            if isinstance(config.load, ProbeOptions):
                run_probes(config, self.screen, self._sweep_name(), self._add)
            else:
                self._add(execute(prepare(config, self.screen), self.screen, self._sweep_name()))
        except KeyboardInterrupt:
            self.interrupted = True
        except Exception as error:
            job.given_up = True
            in_sweep = len(self.jobs) > 1
            recorded = (
                record_failure(job.config, error, self._sweep_name()) if job.config and in_sweep else None
            )
            self._add(Outcome(recorded, "failed", error))

    def _how_far(self) -> str:
        """Which run of a sweep this is, and how long the rest takes if it goes on as so far; "" for a single run."""
        total = sum(job.config.repeats if job.config else 1 for job in self.jobs) - self._taken
        if total < 2:
            return ""
        done, self._begun = self._begun, self._begun + 1
        if not done:
            return f" (1 of {total})"
        seconds = (datetime.now(UTC) - self.started).total_seconds()
        return f" ({done + 1} of {total}, {time_left(seconds, done, total)})"

    def _look_at(self, results_dir: Path) -> None:
        """Take note of where the records go; tell once of what was left there by a command that was killed."""
        self.results_dir = results_dir
        left = notice(results_dir)
        if left is not None and results_dir not in self._noticed:
            self.screen.warn(left)
        self._noticed.add(results_dir)

    def _sweep_name(self) -> str:
        """Runs of one command belong together: the report without `runs=` takes the latest such group."""
        return self._earlier.sweep if self._earlier else self.started.strftime("s%Y%m%d-%H%M%S")

    def _add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.interrupted |= outcome.interrupted
        if outcome.error is None or outcome.interrupted or isinstance(outcome.error, Oversaturated):
            return
        if isinstance(outcome.error, HarnessError):
            self.screen.error(outcome.error)
        else:
            self.unexpected(outcome.error)

    def unexpected(self, error: Exception) -> None:
        """A fault of the harness itself: one line for the person, the traceback into the log."""
        log = self.results_dir / "harness.log"
        lines = "".join(traceback.format_exception(error))
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("a", encoding="utf-8") as file:
                file.write(f"{datetime.now(UTC).isoformat()}\n{lines}\n")
            where = f"The traceback is in {log}."
        except OSError:
            where = lines
        self.screen.error(
            f"{type(error).__name__}: {error}. This is a fault of the harness; please report it. {where}"
        )

    def finish(self) -> int:
        """Report what was measured; returns the exit code."""
        measured = [outcome for outcome in self.outcomes if outcome.status != "failed"]
        recorded = [outcome.run_id for outcome in self.outcomes if outcome.run_id]
        reported = True
        if measured:
            reported = self._report(recorded)
        elif recorded:
            self.screen.say(
                f"Nothing was measured. What is known of it: {self.results_dir / 'runs' / recorded[-1]}"
            )
        if self.interrupted:
            self.screen.warn(self._interruption(bool(measured)))
            return INTERRUPTED
        failed = [
            outcome.error
            for outcome in self.outcomes
            if outcome.status != "complete" and not isinstance(outcome.error, Oversaturated)
        ]
        if not failed:
            return 0 if reported else HarnessError.exit_code
        only_usage = all(isinstance(error, UsageError) for error in failed)
        return UsageError.exit_code if only_usage and not measured else HarnessError.exit_code

    def _interruption(self, measured: bool) -> str:
        what = (
            "what was measured is kept and marked partial." if measured else "before anything was measured."
        )
        if not self.skipped:
            return f"Interrupted: {what}"
        rest = "1 more run was" if self.skipped == 1 else f"{self.skipped} more runs were"
        return f"Interrupted: {what} {rest} not started."

    def _report(self, run_ids: list[str]) -> bool:
        """Whether the report was written and told."""
        from harness.records.reader import read_run
        from harness.report import write_report
        from harness.report.quality_costs import cost_lines
        from harness.report.terminal import advice, one_sentence, summary_table

        try:
            with self.screen.phase("Writing the report"):
                runs = [read_run(run_id, self.results_dir) for run_id in run_ids]
                path = write_report(runs, self.results_dir / "reports" / self._sweep_name())
            self.screen.result(summary_table(runs))
            self.screen.result(one_sentence(runs))
            for line in cost_lines(runs):
                self.screen.result(line)
            for line in advice(runs):
                self.screen.warn(line)
            self.screen.result(str(path))
        except (HarnessError, OSError) as error:
            self.screen.error(f"{error} The records are in {self.results_dir / 'runs'}.")
            return False
        except KeyboardInterrupt:
            self.interrupted = True
            return False
        except Exception as error:  # the runs are recorded; `python -m harness.report` can be tried again
            self.unexpected(error)
            return False
        return True
