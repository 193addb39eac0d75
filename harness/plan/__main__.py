"""`python -m harness.plan`: what fits on a device, how fast it could be, and what it costs, before anything runs."""

import sys
import textwrap
from pathlib import Path

from harness.core.errors import HarnessError

HELP = """Calculates what fits and how fast it could be. Runs nothing.

  python -m harness.plan model=mistral-7b hardware=l4 users=80 context=4000
  python -m harness.plan model=config model.path=FOLDER hardware=h100 devices=2
  python -m harness.plan kv_dtype=fp8 weight_dtype=int4 policy=fraction
  python -m harness.plan hardware.price_per_hour=0.5 out=plan
  python -m harness.plan model=smollm2-135m hardware=cpu 'runs=[ID,ID]'

  users=N            requests at once
  context=N          tokens a request may hold, prompt and answer together
  prompt_tokens=N, output_tokens=N    (the prompt: what the answer leaves)
  weight_dtype=, kv_dtype=            f32, bf16, f16, fp8, int8 or int4
  weight_group=, kv_group=            how many values share a counted scale
  weight_scale_bytes=, kv_scale_bytes=  its bytes
  devices=N          share the model among so many
  runs=[ID,...]      recorded runs: how far the calculation was off
  results_dir=FOLDER where runs lie
  out=FOLDER         also writes plan.json and plan.html with a heat map
  KEY.NAME=VALUE     any figure of a choice: hardware.memory_gb=20

"""
_EXIT = "Exit codes: 0 calculated (whether it fits or not), 1 failed, 2 wrong usage"


def help_text() -> str:
    """HELP, the choices from conf/plan/, and the exit codes."""
    from harness.plan.choices import PLAN

    lines = [HELP.rstrip("\n"), ""]
    for group, of in PLAN.groups.items():
        lines.append(f"  {group}: {of.meaning}")
        for name, text in PLAN.choices(group).items():
            label = f"    {name:<14} "
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
    """Calculate, print, and write where that was asked for."""
    from rich.console import Console

    from harness.plan.composing import all_cards, options_from
    from harness.plan.measured import compare
    from harness.plan.planning import plan, setting_of, wish_of
    from harness.plan.show import show
    from harness.plan.write import write
    from harness.records.reader import find_runs

    options = options_from(arguments)
    setting = setting_of(options)
    wish = wish_of(options, setting)
    runs = find_runs(options.runs, Path(options.results_dir)) if options.runs else []
    comparisons = compare(runs, setting)
    # Larger cards are looked for only where they are needed: reading them all takes a second.
    cards = [] if setting.fits(wish.users, wish.context) else all_cards()
    made = plan(setting, wish, cards)
    console = Console(highlight=False)
    show(made, comparisons, console)
    if options.out is not None:
        path = write(made, comparisons, Path(options.out))
        console.print(str(path), markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
