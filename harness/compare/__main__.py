"""`python -m harness.compare`: whether a candidate's runs differ from a baseline's, by how much and how sure."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import HarnessError, UsageError
from harness.core.key_values import key_values
from harness.records.selection import names

HELP = """Compares recorded runs: a baseline's with a candidate's. Measures nothing.

  python -m harness.compare baseline=ID candidate=ID
  python -m harness.compare 'baseline=[ID,ID]' 'candidate=*vllm*' format=markdown
  python -m harness.compare baseline=SWEEP candidate=SWEEP out=compared

  baseline=, candidate=    runs by id, folder, *pattern* over ids, or sweep; several as [A,B]
  gating=[PATH,...]        figures that decide, at most 4 (default: output_tokens_per_s, ttft_ms.p50,
                           tpot_ms.p50, memory.kv_per_request_bytes); the others inform
  least_effect=SHARE       the smallest relative change that matters, of every figure (0.03 is 3 %;
                           of right answers 3 points)
  least_effect.PATH=SHARE  of one
  format=table|markdown|json   what is printed (default: table)
  out=FOLDER               also writes compare.json, compare.md and compare.html
  results_dir=FOLDER       where runs lie (default: results)

A verdict takes 5 runs a side, best measured in turns: repeats=5. One on quality takes the items that both
sides were asked, however many runs there are.

Exit codes: 0 compared (whatever was found), 1 a run is missing or damaged, 2 wrong usage
"""
_FORMATS = ("table", "markdown", "json")


@dataclass
class Request:
    """What the command line asks for. gating: None leaves the usual ones; least_effects: by path, "" for all."""

    baseline: Sequence[str]
    candidate: Sequence[str]
    gating: Sequence[str] | None
    least_effects: dict[str, float]
    form: str
    out: Path | None
    results_dir: Path


def parse(arguments: Sequence[str]) -> Request:
    """Read key=value arguments. Raises UsageError for anything else."""
    from harness.compare.measures import MEASURES

    effects = ["least_effect", *(f"least_effect.{measure.path}" for measure in MEASURES)]
    free = ("baseline", "candidate", "gating", "out", "results_dir", *effects)
    given = key_values(arguments, free, {"format": _FORMATS})
    for side in ("baseline", "candidate"):
        if not names(given.get(side, "")):
            raise UsageError(f"{side}=… is missing: name its runs by id, pattern or sweep. See --help.")
    return Request(
        names(given["baseline"]),
        names(given["candidate"]),
        names(given["gating"]) if "gating" in given else None,
        {
            key.removeprefix("least_effect").lstrip("."): _share(key, given[key])
            for key in effects
            if key in given
        },
        given.get("format", "table"),
        Path(given["out"]) if "out" in given else None,
        Path(given.get("results_dir", "results")),
    )


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    if "--help" in arguments or "-h" in arguments:
        print(HELP, end="")
        return 0
    try:
        execute(parse(arguments))
    except HarnessError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def execute(request: Request) -> None:
    """Compare, print, and write where that was asked for."""
    from harness.compare.cells import cells, left_out, runs_named
    from harness.compare.measures import chosen
    from harness.compare.two_sides import judge
    from harness.compare.write import json_text, markdown, write

    measures = chosen(request.gating, request.least_effects)
    baseline, candidate = (
        runs_named(patterns, request.results_dir) for patterns in (request.baseline, request.candidate)
    )
    paired = cells(baseline, candidate)
    found = [judge(cell, measures) for cell in paired]
    left = left_out(baseline, candidate, paired)
    if request.form == "json":
        print(json_text(found, left))
    elif request.form == "markdown":
        print(markdown(found, left), end="")
    else:
        from rich.console import Console

        from harness.compare.show import show

        show(found, left, Console(highlight=False))
    if request.out is not None:
        print(write(found, left, request.out), file=sys.stderr if request.form != "table" else sys.stdout)


def _share(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{key}={text} is no number: 0.03 is 3 %.") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
