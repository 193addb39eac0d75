"""Measuring a night: both sides in turns, each run a command of its own, all kept in the night's folder."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness.core.errors import HarnessError, UsageError
from harness.records.reader import Run, list_runs, read_run

BASELINE, CANDIDATE = "baseline", "candidate"
_ENDED_BY_CTRL_C = 130
Say = Callable[[str], None]


@dataclass(frozen=True)
class Night:
    """folder: everything of this night. arguments: of `python -m harness`, for both sides."""

    folder: Path
    arguments: tuple[str, ...]

    @property
    def id(self) -> str:
        """Its name: when it began."""
        return self.folder.name

    def results(self, side: str, look: int) -> Path:
        """Where the runs of one side of one look are: a results folder like any other."""
        return self.folder / f"look-{look}" / side

    def runs(self, side: str, look: int) -> list[Run]:
        """The recorded runs, oldest first."""
        folder = self.results(side, look)
        return [read_run(name, folder) for name in list_runs(folder)]


def new_night(folder: Path, arguments: Sequence[str]) -> Night:
    """A folder for tonight, named by the time. Raises HarnessError where it cannot be made."""
    name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    path = folder / "nights" / name
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise HarnessError(
            f"{path} cannot be made ({error.strerror or error}). Name another gate.folder=FOLDER."
        ) from error
    return Night(path, tuple(arguments))


def turns(repeats: int) -> Iterator[str]:
    """A B B A A B B A …: each side `repeats` times; a steady drift of the machine then falls on both alike."""
    for number in range(repeats):
        pair = (BASELINE, CANDIDATE) if number % 2 == 0 else (CANDIDATE, BASELINE)
        yield from pair


def measure(night: Night, look: int, order: Sequence[str], of_side: dict[str, list[str]], say: Say) -> None:
    """Run the commands of one look; a failed run is recorded by the harness and the night goes on.

    of_side: arguments that only this side gets. Raises UsageError where the harness refuses the arguments, and
    KeyboardInterrupt where it was interrupted.
    """
    for number, side in enumerate(order, 1):
        say(f"look {look}, run {number} of {len(order)}: {side}")
        results = night.results(side, look)
        results.mkdir(parents=True, exist_ok=True)
        command = [*night.arguments, *of_side.get(side, []), f"results_dir={results}"]
        _run(command, night.folder / "harness.log")


def _run(arguments: Sequence[str], log: Path) -> None:
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ python -m harness {' '.join(arguments)}\n")
        file.flush()
        process = subprocess.Popen(
            [sys.executable, "-m", "harness", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            _, said = process.communicate()
        except KeyboardInterrupt:
            # A terminal has sent Ctrl-C to both; a signal to this process alone is handed on. Either way the run is
            # recorded as far as it came, and its engine ended, before this process ends.
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.communicate()
            raise
        file.write(said)
    if process.returncode == _ENDED_BY_CTRL_C:
        raise KeyboardInterrupt
    if process.returncode == UsageError.exit_code:
        lines = said.strip().splitlines() or ["no reason was given"]
        refused = [line for line in lines if line.startswith("Error: ")] or lines
        raise UsageError(refused[0].removeprefix("Error: "))
