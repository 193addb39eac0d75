"""`python -m harness.advise`: which setting to take, from recorded runs."""

import sys
import textwrap
from pathlib import Path

from harness.core.errors import HarnessError

HELP = """Ranks what was measured by cost, under limits. Runs nothing.

  python -m harness.advise                               the latest sweep
  python -m harness.advise slo=interactive workload=rag 'runs=[ID,*-rag-*]'
  python -m harness.advise slo.ttft_p95_ms=700 hardware.price_per_hour=0.5
  python -m harness.advise loss.perplexity=0.01 out=advice

  runs=[ID,...]      recorded runs: ids, folders or patterns
  workload=NAME      which of them, where they are of several workloads
  slo.KEY=MS         one limit: slo.ttft_p95_ms, slo.tpot_p50_ms, slo.ttft_ms
  attainment=SHARE   of requests that must keep limits of single requests
  loss.FIGURE=SHARE  accepted loss: loss.perplexity=0.01, loss.recall=0.05
  hardware.price_per_hour=PRICE, hardware.currency=NAME    for all runs
  results_dir=FOLDER where runs lie
  out=FOLDER         also writes advice.json and advice.md

"""
_EXIT = "Exit codes: 0 advised (also that nothing may be taken), 1 failed, 2 wrong usage"


def help_text() -> str:
    """HELP, the choices from conf/, and the exit codes."""
    from harness.advise.options import ADVISE

    lines = [HELP.rstrip("\n"), ""]
    for name, group in ADVISE.groups.items():
        lines.append(f"  {name}: {group.meaning}")
        for choice, text in ADVISE.choices(name).items():
            label = f"    {choice:<14} "
            lines.append(textwrap.fill(text, 80, initial_indent=label, subsequent_indent=" " * len(label)))
    return "\n".join([*lines, "", _EXIT, ""])


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    if "--help" in arguments or "-h" in arguments:
        print(help_text(), end="")
        return 0
    try:
        execute(arguments)
    except HarnessError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def execute(arguments: list[str]) -> None:
    """Judge, print, and write where that was asked for."""
    from harness.advise.options import ADVISE

    options = ADVISE.composed(arguments)

    from rich.console import Console

    from harness.advise.asking import advice_for
    from harness.advise.show import show
    from harness.advise.write import write
    from harness.report.advice import advice_section

    advice = advice_for(options)
    section = advice_section(advice)
    console = Console(highlight=False)
    show(section, console)
    if options.out is not None:
        path = write(advice, section, Path(options.out))
        console.print(str(path), markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
