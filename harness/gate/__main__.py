"""`python -m harness.gate`: whether tonight's serving is worse than what was accepted, for a CI job to act on."""

import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from harness.core.errors import HarnessError, UsageError

if TYPE_CHECKING:
    from harness.gate.baselines import Key
    from harness.gate.night import Night

HELP = """Measures tonight's engine against the accepted one and says whether serving got worse.

  python -m harness.gate                                    experiment=nightly, paired
  python -m harness.gate gate.mode=stored gate.accept=true  measure, and accept tonight as the baseline
  python -m harness.gate workload=rag 'gate.baseline=[backend.kv_dtype=f16]' 'gate.candidate=[backend.kv_dtype=int8]'
  python -m harness.gate gate.mode=stored                   against the history since the accepted night

Other arguments are those of python -m harness, for both sides. Keys of the gate (conf/gate/config.yaml):

  gate.mode=paired|stored   paired: the accepted version and tonight's in turns (A B B A …)
                            stored: tonight against the nights since the accepted one
  gate.baseline=[…], gate.candidate=[…]   arguments that only this side gets (paired)
  gate.accept=true          make tonight the baseline, whatever was found
  gate.first=accept         do so where nothing was accepted yet (else paired mode refuses)
  gate.repeats=5            runs a side in one look; what looks worse is measured a second time
  gate.gating=[PATH,…]      figures that decide, at most 4
  gate.least_effect=0.03, gate.false_alarms=0.01, gate.suspicion=0.15, gate.largest_blind=0.15
  gate.fewest_nights=20     history that stored mode needs before it says what it can see
  gate.exit_regressed=1, gate.exit_inconclusive=3
  gate.folder=results/gate, gate.baselines=results/baselines

Writes summary.md, junit.xml and report/ to the night's folder, and a row a figure to history.parquet; in GitHub
Actions the step summary and annotations too.

Exit codes: 0 passed, 1 regressed, 2 wrong usage, 3 inconclusive, or the gate itself failed, 130 interrupted
"""
_INVALID = 3
_INTERRUPTED = 130


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code. A fault of the gate itself is no regression: it is code 3, and told."""
    if "--help" in arguments or "-h" in arguments:
        print(HELP, end="")
        return 0
    signal.signal(
        signal.SIGTERM, _interrupt
    )  # so that a CI system that ends the job ends its measurement too
    try:
        return execute(arguments)
    except UsageError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    except HarnessError as error:
        print(f"Error: {error}", file=sys.stderr)
        return _INVALID
    except KeyboardInterrupt:
        print(
            "Interrupted. What was measured is kept in the night's folder; nothing was judged.",
            file=sys.stderr,
        )
        return _INTERRUPTED
    except Exception:
        traceback.print_exc()
        print("Error: this is a fault of the gate, and no verdict; please report it.", file=sys.stderr)
        return _INVALID


def execute(arguments: list[str]) -> int:
    """Measure, judge, tell; returns the exit code."""
    from harness.gate.findings import INCONCLUSIVE, PASSED, REGRESSED
    from harness.gate.gating import run_gate
    from harness.gate.history import changes, read_history
    from harness.gate.junit import write_junit
    from harness.gate.options import options_from
    from harness.gate.words import annotations, change_words, headline, lines, markdown

    options, rest = options_from(arguments)
    outcome, key, night = run_gate(options, rest, lambda text: print(text, file=sys.stderr, flush=True))
    levels = changes(read_history(Path(options.folder)), key)
    summary = markdown(outcome, levels)
    (night.folder / "summary.md").write_text(summary, encoding="utf-8")
    write_junit(outcome, night.folder)
    if step_summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(step_summary).open("a", encoding="utf-8") as file:
            file.write(summary)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        print("\n".join(annotations(outcome)))
    for text in (headline(outcome), *lines(outcome), *outcome.cautions, *map(change_words, levels)):
        print(text)
    accepted = _is_baseline(outcome.night, options.baselines, key)
    if accepted:
        print(f"Accepted: night {night.id} is the baseline now ({options.baselines}/{key.file_name}).")
    _report(night)
    print(night.folder)
    codes = {PASSED: 0, REGRESSED: options.exit_regressed, INCONCLUSIVE: options.exit_inconclusive}
    return 0 if accepted and outcome.word != REGRESSED else codes[outcome.word]


def _is_baseline(night: str, baselines: str, key: "Key") -> bool:
    from harness.gate.baselines import read_baseline

    found = read_baseline(Path(baselines), key)
    return found is not None and found.night == night


def _report(night: "Night") -> None:
    """The HTML report of all the night's runs; the verdict stands whether it can be written or not."""
    from harness.gate.night import BASELINE, CANDIDATE
    from harness.report import write_report

    runs = [run for look in (1, 2) for side in (BASELINE, CANDIDATE) for run in night.runs(side, look)]
    try:
        write_report(runs, night.folder / "report")
    except HarnessError as error:
        print(f"Warning: the report was not written: {error}", file=sys.stderr)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
