"""Every command that the documentation shows is run, made small where it would take long.

A command is found by its first words in a fenced block of README.md, CONTRIBUTING.md or docs/. One that is neither
run here nor named in RUN_ELSEWHERE fails the suite.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backends.process import free_port
from harness.engines.__main__ import parse as parse_engines
from harness.engines.catalogue import default_offer
from harness.gate.gating import NIGHTLY
from harness.gate.options import options_from
from harness.runs.__main__ import main as main_of_runs
from tests.support.command_line import ROOT, Done, records, run
from tests.support.fixtures import ScriptedServer, scripted_server
from tests.support.model import embedded_model
from tests.support.synthetic_runs import write_failed_run, write_run

pytestmark = pytest.mark.engine

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Commands whose running is the business of somebody else, and whose.
RUN_ELSEWHERE = (
    (
        r"make (bench|test|test-unit|test-engines|lint|lock|lock-engines|setup|clean)( |$)",
        "make targets: their existence is tested below",
    ),
    (r"python benchmarks/", "benchmarks: their existence is tested below"),
    (r"python3? -m venv", "making an environment is what the Makefile does before these tests"),
    (r"\S+/pip install|.*-m pip install", "installing is what the Makefile does before these tests"),
    (r"\.venv/bin/ruff", "the linters run before these tests"),
    (r"\.venv/bin/python -m pytest", "these tests"),
    (r"export OPENAI_API_KEY", "a setting"),
    (r"sudo apt-get", "the browser's packages are installed by .ci/run"),
)
HEAVY = (
    "backend=vllm",
    "backend=sglang",
    "backend=tensorrt_llm",
    "backend.device=cuda",
    "backend.weight_dtype=int8",
    "experiment=engines",
    "experiment=context_scaling",
    "experiment=rag_tradeoff",
    "experiment=kv_granularity",
    "experiment=weight_precision",
    "experiment=kv_saving",
)
SMALL = ["load.warmup=1", "load.requests=3"]
# What a drawn workload asks for, where the command itself does not say it.
SHORT = {"workload.prompt_tokens": 600, "workload.output_tokens": 4}
SHORT_CHAT = {"workload.output_tokens": 4, "workload.think_time_s": 0}
SMALL_QUALITY = ["quality.perplexity.tokens=140", "quality.perplexity.window=70"]


def commands() -> list[str]:
    found: dict[str, None] = {}
    for page in PAGES:
        for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
            joined = block.replace("\\\n", " ")
            for line in re.split(r"\n(?=\S)", joined):
                words = re.sub(r"\s+#\s.*$", "", line, flags=re.DOTALL if "{" in line else 0).strip()
                if re.match(r"(\.venv/bin/)?python3? |make |curl |\S*pip |export |sudo |\.venv/", words):
                    found.setdefault(words)
    return list(found)


def runs_the_harness(command: str) -> bool:
    return bool(re.match(r"(\.venv/bin/)?python -m harness(\s|$)", command))


def arguments_of(command: str) -> list[str]:
    """Those after `python -m`."""
    return shlex.split(command)[2:]


# Which interpreter is named makes no other run of it.
HARNESS = list(
    {tuple(arguments_of(command)): command for command in commands() if runs_the_harness(command)}.values()
)


def short(arguments: list[str]) -> list[str]:
    """Lengths for a command whose own say nothing of them; none where they are those of a file."""
    if any(argument in ("workload=trace", "workload=file") for argument in arguments):
        return []
    drawn = [argument for argument in arguments if argument.startswith(("workload=", "experiment="))]
    lengths = SHORT_CHAT if drawn in ([], ["workload=chat"]) else SHORT
    given = {argument.split("=", 1)[0] for argument in arguments}
    return [f"{key}={value}" for key, value in lengths.items() if key not in given]


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    """Stands for a server of the reader's."""
    with scripted_server() as running:
        yield running


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plan that a documented command saves, once for the command itself and for the one that replays it."""
    (command,) = [command for command in HARNESS if "workload.save=plan.jsonl" in command]
    folder = tmp_path_factory.mktemp("saved")
    made_small = [*arguments_of(command), *SMALL, *short(arguments_of(command))]
    assert_complete(run(made_small, folder), folder)
    return folder / "plan.jsonl"


def assert_complete(done: Done, folder: Path) -> list[dict[str, Any]]:
    """The records of a command that went well."""
    assert done.status == 0, done.err
    found = records(folder / "results")
    assert found
    assert all(record["status"] == "complete" for record in found)
    return found


def test_commands_are_found():
    assert len(HARNESS) >= 8
    assert "make bench" in commands()


def test_every_command_is_run_somewhere():
    handled = (r"(\.venv/bin/)?python -m harness", r"python -m backends\.serving", r"curl ")
    for command in commands():
        known = [pattern for pattern, _ in RUN_ELSEWHERE if re.match(pattern, command)]
        assert known or any(re.match(pattern, command) for pattern in handled), f"nobody runs: {command}"


def test_make_targets_and_benchmarks_exist():
    text = "\n".join(page.read_text() for page in PAGES)
    targets = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text()
    assert targets
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    scripts = re.findall(r"python (benchmarks/\w+\.py)", text)
    assert scripts
    assert all((ROOT / script).is_file() for script in scripts)


def _heavy(command: str) -> bool:
    return any(argument in HEAVY for argument in arguments_of(command))


def test_commands_of_heavy_engines_compose(tmp_path: Path):
    """make test-engines runs these engines, where they can run; here every key is read, by one process for all."""
    shown = [arguments_of(command)[1:] for command in HARNESS if _heavy(command)]
    assert shown
    composing = "import json, sys; from harness.app import run_command; "
    composing += "print([run_command([*each, '--cfg', 'job']) for each in json.loads(sys.argv[1])])"
    done = subprocess.run(
        [sys.executable, "-c", composing, json.dumps(shown)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str([0] * len(shown)), done.stderr


@pytest.mark.parametrize("command", [command for command in HARNESS if not _heavy(command)])
def test_harness_command(
    command: str, server: ScriptedServer, request: pytest.FixtureRequest, tmp_path: Path
):
    arguments = arguments_of(command)
    if "--help" in arguments:
        done = run(arguments, tmp_path)
        assert done.status == 0
        assert "usage:" in done.out
        return
    if "workload.save=plan.jsonl" in arguments:
        assert request.getfixturevalue("saved").is_file()
        return
    bare = arguments == ["harness"]
    if bare:
        arguments.append("experiment=default")  # what a bare call means, so that it can be made small
    if "workload.path=plan.jsonl" in arguments:
        shutil.copy(request.getfixturevalue("saved"), tmp_path)
    if "workload.path=trace.csv" in arguments:
        rows = "\n".join(f"2023-11-16 18:17:03.{at}799600,200,4" for at in range(5))
        (tmp_path / "trace.csv").write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}")
    arguments = [_here(argument) for argument in arguments]
    quality = SMALL_QUALITY if bare or any("experiment=" in argument for argument in arguments) else []
    arguments = [
        f"backend.base_url={server.base_url}" if argument.startswith("backend.base_url=") else argument
        for argument in arguments
    ]
    few = ["load.probes=2"] if "load=search" in arguments else []
    looked = [] if bare else ["hardware.drift_limit=null"]  # once is enough: it takes longer than such a load
    done = run([*arguments, *SMALL, *short(arguments), *quality, *few, *looked], tmp_path)
    found = assert_complete(done, tmp_path)
    if bare:
        assert [record["config"]["workload"]["name"] for record in found] == ["chat", "rag", "summarization"]


def _here(argument: str) -> str:
    """An environment of the reader's is this one."""
    return f"backend.python={sys.executable}" if argument.startswith("backend.python=") else argument


def test_engine_commands(tmp_path: Path):
    shown = [command for command in commands() if command.startswith("python -m harness.engines")]
    assert shown
    for command in shown:
        arguments = shlex.split(command)[3:]
        request = parse_engines(arguments)
        if request.engine is not None:
            assert default_offer(request.engine, request.device).engine == request.engine
        if request.action in ("list", "doctor"):  # the others take minutes, or something away
            done = run(["harness.engines", *arguments], tmp_path)
            assert done.status == 0, done.err
            assert "openvino" in done.out


def test_plan_commands(tmp_path: Path):
    shown = [command for command in commands() if command.startswith("python -m harness.plan")]
    assert len(shown) > 3
    write_run(tmp_path / "results", "r1", config={"model": {"name": "smollm2-135m"}})
    for command in shown:
        arguments = [word.replace("ID", "r1") for word in shlex.split(command)[2:]]
        done = run(arguments, tmp_path)
        assert done.status == 0, f"{command}: {done.err}"


def test_advise_commands(tmp_path: Path):
    shown = [command for command in commands() if command.startswith("python -m harness.advise")]
    assert len(shown) > 2
    write_run(tmp_path / "results", "r1", workload="rag")
    for command in shown:
        arguments = [word.replace("ID", "r1") for word in shlex.split(command)[2:]]
        done = run(arguments, tmp_path)
        assert done.status == 0, f"{command}: {done.err}"


def test_runs_commands(tmp_path: Path):
    shown = [command for command in commands() if command.startswith("python -m harness.runs")]
    assert len(shown) > 3
    write_run(tmp_path / "results", "r1", workload="rag", started_at=datetime.now(UTC).isoformat())
    write_failed_run(tmp_path / "results", "r2", "no memory")
    for command in shown:
        arguments = [word.replace("ID", "r1") for word in shlex.split(command)[3:]]
        with contextlib.chdir(tmp_path):
            assert main_of_runs(arguments) == 0, command
    assert (tmp_path / "runs.csv").is_file()


def test_gate_commands(tmp_path: Path):
    """Gates measure for minutes (tests/integration/test_gate.py runs small ones); here each key of theirs is read."""
    shown = [command for command in commands() if command.startswith("python -m harness.gate")]
    assert len(shown) > 1
    for command in shown:
        _, rest = options_from(shlex.split(command)[3:])
        done = run(["harness", *(rest or [NIGHTLY]), "--cfg", "job"], tmp_path)
        assert done.status == 0, f"{command}: {done.err}"


def test_compare_commands(tmp_path: Path):
    shown = [command for command in commands() if command.startswith("python -m harness.compare ")]
    assert shown
    for run_id in ("theirs", "ours"):
        write_run(tmp_path / "results", run_id)
    for command in shown:
        before, after = command.replace("[ID,ID]", "ID").split("candidate=", 1)
        named = f"{before.replace('ID', 'theirs')}candidate={after.replace('ID', 'ours')}"
        done = run(shlex.split(named)[2:], tmp_path)
        assert done.status == 0 and "inconclusive" in done.out, f"{command}: {done.err}"


def test_report_commands(server: ScriptedServer, tmp_path: Path):
    both = ["-m", "backend=endpoint", f"backend.base_url={server.base_url}", "workload=chat,rag"]
    first, _ = (
        record["id"] for record in assert_complete(run(["harness", *both, *SMALL], tmp_path), tmp_path)
    )
    shown = [command for command in commands() if command.startswith("python -m harness.report")]
    assert shown
    for command in shown:
        arguments = [word.replace("ID", first) for word in shlex.split(command)[2:]]
        done = run(arguments, tmp_path)
        assert done.status == 0, f"{command}: {done.err}"


def test_recover_commands(tmp_path: Path):
    shown = [command for command in commands() if command.startswith("python -m harness.recover")]
    assert shown
    for command in shown:
        done = run(shlex.split(command)[2:], tmp_path)
        assert done.status == 0 and "no killed run" in done.out, done.err


def test_the_server_by_hand(tmp_path: Path):
    (command,) = [command for command in commands() if command.startswith("python -m backends.serving")]
    (question,) = [command for command in commands() if command.startswith("curl ")]
    model, port = embedded_model(), free_port()
    words = shlex.split(command)
    for place, value in {
        "--model": str(model.weights),
        "--tokenizer": str(model.tokenizer_folder),
        "--port": str(port),
    }.items():
        words[words.index(place) + 1] = value
    process = subprocess.Popen(
        [sys.executable, *words[1:]], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        asked = [*shlex.split(question.replace(":8000/", f":{port}/")), "--silent", "--fail"]
        deadline = time.monotonic() + 120
        while True:
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, done.stderr
            time.sleep(0.3)
        assert '"choices"' in done.stdout
    finally:
        process.terminate()
        process.wait()
