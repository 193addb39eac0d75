"""`python -m harness.calibrate`: how exact the measuring client is on this machine, and how much load it can take."""

import dataclasses
import sys
from dataclasses import dataclass
from datetime import UTC, datetime

from harness.core.errors import HarnessError, UsageError
from harness.core.key_values import key_values

HELP = """Measures the measuring client itself, against a server that knows when it sent each token.

  python -m harness.calibrate                     about two minutes; leave the machine alone meanwhile
  python -m harness.calibrate quick=true          about half a minute, coarser
  python -m harness.calibrate action=show         what the last calibration of this machine found

  server=c|python   which truth server (default: C where there is a compiler)

The result is kept per machine and version of the client; every run is then held against it.
"""
_ACTIONS = ("run", "show")
_LANGUAGES = ("c", "python")
_NARROWEST = 120  # columns that the tables need; a narrower terminal breaks their lines
_TRUTHS = ("true", "false")


@dataclass
class Request:
    """What the command line asks for."""

    action: str = "run"
    quick: bool = False
    server: str | None = None


def parse(arguments: list[str]) -> Request:
    """Read key=value arguments. Raises UsageError for anything else."""
    choices = {"action": _ACTIONS, "quick": _TRUTHS, "server": _LANGUAGES}
    given = key_values(arguments, (), choices)
    return Request(given.get("action", "run"), given.get("quick") == "true", given.get("server"))


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    if "--help" in arguments or "-h" in arguments:
        print(HELP, end="")
        return 0
    try:
        request = parse(arguments)
        show() if request.action == "show" else calibrate(request)
    except HarnessError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("Interrupted: nothing is kept.", file=sys.stderr)
        return 130
    return 0


def calibrate(request: Request) -> None:
    """Drive the loads, find the limits, keep them and tell them."""
    from rich.console import Console

    from harness.calibrate.kept import keep
    from harness.calibrate.measuring import calibration, language_in_use
    from harness.calibrate.show import sentences, tables

    language = language_in_use(request.server)
    errors = Console(stderr=True, highlight=False)
    if language == "python":
        errors.print(
            "There is no C compiler, or it was not asked for: the truth server in Python is the limit."
        )
    with errors.status("Calibrating") as status:
        readings, capacity = calibration(request.quick, language, lambda title: status.update(title))
    path = keep(capacity, [dataclasses.asdict(one) for one in readings], datetime.now(UTC).isoformat())
    console = Console(highlight=False)
    console.width = max(console.width, _NARROWEST)
    for table in tables(readings):
        console.print(table)
        console.print()
    for sentence in sentences(readings, capacity):
        console.print(sentence, markup=False, soft_wrap=True)
    console.print(str(path), markup=False, soft_wrap=True)


def show() -> None:
    """Tell what is kept. Raises UsageError where nothing is."""
    from harness.calibrate.kept import circumstances, kept_capacity, path_of
    from harness.calibrate.show import sentences

    capacity = kept_capacity()
    if capacity is None:
        raise UsageError("This machine has not been calibrated. Type: python -m harness.calibrate")
    for sentence in sentences([], capacity):
        print(sentence)
    print(path_of(circumstances()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
