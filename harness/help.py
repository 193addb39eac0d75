"""The help text, written from the configuration files themselves, so that it cannot lag behind them.

Every file of a group begins with a comment of one line: what the choice means to a person.
"""

import shutil
import textwrap
from importlib.resources import files

GROUPS = {
    "experiment": "a prepared set of runs",
    "workload": "what is asked",
    "backend": "who answers",
    "load": "how requests arrive",
    "model": "the language model",
    "quality": "what is measured beside speed",
    "slo": "limits a good answer keeps",
    "hardware": "how this machine is used, and its price",
}
# hydra/launcher belongs to Hydra: `basic` runs jobs one after another; its plugins add more.
_LAUNCHER = (
    "hydra/launcher",
    "where the jobs of a sweep run",
    {"basic": "One after another, on this machine"},
)

_INTRO = """\
Measures how an engine serves a language model under a real workload: TTFT,
throughput, KV memory and quality, as records and as an HTML report.

usage: python -m harness [KEY=VALUE ...] [-m KEY=A,B ...]

python -m harness
    chat, RAG and summarization on the embedded engine (experiment=default);
    with any argument but results_dir= it is one run, chat unless said otherwise
python -m harness workload=rag load.concurrency=8
    one run
python -m harness -m backend.kv_dtype=f16,int8
    a sweep: one run for each value
python -m harness backend=endpoint backend.base_url=http://127.0.0.1:8000
    a server that runs already
python -m harness load=search slo.ttft_p95_ms=500 slo.tpot_p95_ms=50
    the highest rate that keeps these limits
python -m harness.report 'runs=[ID,ID]'
    a report from recorded runs
python -m harness.compare baseline=ID candidate=ID
    did it change, by how much, how sure
python -m harness.gate
    has serving got worse since the accepted night
python -m harness.runs
    which runs are recorded; show, export or delete them
python -m harness.engines
    which engines there are, which are installed here, and how to install one
python -m harness.plan users=80 context=4000
    what fits on a device, how fast it could be and what it costs, calculated
python -m harness.advise slo.ttft_p95_ms=700
    which setting to take, from what was measured

Choices (GROUP=CHOICE; any key below one is set as GROUP.KEY=VALUE):
"""
_OUTRO = """
Often set:
    seed repeats results_dir
    resume=latest, resume=NAME: go on with a sweep that was stopped; give its
        other arguments again
    backend.kv_dtype backend.context_length backend.max_running
    backend.prefix_cache backend.threads
    workload.prompt_tokens workload.output_tokens workload.requests
    load.concurrency load.rate load.requests load.duration_s load.warmup
    setting=ENGINE-kv-NAME, setting=ENGINE-weights-NAME: an engine in one precision
        of its KV cache or weights, by conf/settings.yaml
All values that would be used, without running: python -m harness --cfg job
Exit codes: 0 done, 1 something failed (what was measured is kept),
    2 wrong usage (nothing was started), 130 interrupted
"""


def choices_of(group: str) -> dict[str, str]:
    """Names of a group's choices and their one-line meanings, from the files under conf/."""
    if group == "setting":
        from harness.settings import setting_names

        return dict.fromkeys(setting_names(), "")
    found = {}
    for entry in files("conf").joinpath(group).iterdir():
        if entry.name.endswith(".yaml"):
            with entry.open(encoding="utf-8") as file:
                comments = [line[1:].strip() for line in file if line.startswith("#")]
            meaning = next((line for line in comments if not line.startswith("@")), "")
            found[entry.name.removesuffix(".yaml")] = meaning
    return dict(sorted(found.items()))


def main_help() -> str:
    """The text of `python -m harness --help`, as wide as the terminal allows (at most 110 columns)."""
    width = max(40, min(shutil.get_terminal_size((100, 24)).columns, 110))
    blocks = [_reflow(_INTRO, width)]
    groups = [(name, meaning, choices_of(name)) for name, meaning in GROUPS.items()]
    for name, meaning, choices in [*groups, _LAUNCHER]:
        blocks.append(_reflow(f"  {name}: {meaning}", width))
        for choice, text in choices.items():
            label = f"    {choice:<14} "
            hanging = " " * (len(label) if width >= 70 else 8)
            blocks.append(textwrap.fill(text, width, initial_indent=label, subsequent_indent=hanging))
    blocks.append(_reflow(_OUTRO, width))
    return "\n".join(blocks)


def _reflow(text: str, width: int) -> str:
    """Fold lines that the terminal is too narrow for; shorter ones stay as they are written."""
    lines = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        lines.append(line if len(line) <= width else textwrap.fill(line, width, subsequent_indent=indent))
    return "\n".join(lines)
