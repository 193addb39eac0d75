"""Every command that the documentation shows is run, made small where it would take long.

A command is found by its first words in a fenced block of README.md, CONTRIBUTING.md or docs/. One that is neither
run here nor named in RUN_ELSEWHERE fails the suite.
"""

import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from backends.process import free_port
from harness.engines.__main__ import parse as parse_engines
from harness.engines.catalogue import default_offer
from tests.support.command_line import ROOT, records, run
from tests.support.fixtures import scripted_server
from tests.support.model import embedded_model
from tests.support.synthetic_runs import write_run

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
)
SMALL = ["load.warmup=1", "load.requests=3"]
SMALL_QUALITY = ["quality.perplexity.tokens=120", "quality.perplexity.window=60"]


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


HARNESS = [command for command in commands() if runs_the_harness(command)]


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


@pytest.mark.parametrize("command", HARNESS)
def test_harness_command(command: str, tmp_path: Path):
    arguments = shlex.split(command)[2:]  # after `python -m`
    if any(argument in HEAVY for argument in arguments):
        # make test-engines runs these engines, where they can run; here only every key is read.
        done = run([*arguments, "--cfg", "job"], tmp_path)
        assert done.status == 0, done.err
        return
    if "--help" in arguments:
        done = run(arguments, tmp_path)
        assert done.status == 0
        assert "usage:" in done.out
        return
    bare = arguments == ["harness"]
    if bare:
        arguments.append("experiment=default")  # what a bare call means, so that it can be made small
    if "workload=file" in arguments:
        save = [c for c in HARNESS if "workload.save=plan.jsonl" in c]
        assert save, "the plan that is replayed must be saved by a documented command"
        saved = run([*shlex.split(save[0])[2:], *SMALL], tmp_path)
        assert saved.status == 0, saved.err
    if "workload.path=trace.csv" in arguments:
        rows = "\n".join(f"2023-11-16 18:17:03.{at}799600,200,4" for at in range(5))
        (tmp_path / "trace.csv").write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}")
    arguments = [_here(argument) for argument in arguments]
    quality = SMALL_QUALITY if bare or any("experiment=" in argument for argument in arguments) else []
    with scripted_server() as server:
        arguments = [
            f"backend.base_url={server.base_url}" if argument.startswith("backend.base_url=") else argument
            for argument in arguments
        ]
        few = ["load.probes=2"] if "load=search" in arguments else []
        done = run([*arguments, *SMALL, *quality, *few], tmp_path)
    assert done.status == 0, done.err
    found = records(tmp_path / "results")
    assert found
    assert all(record["status"] == "complete" for record in found)
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


def test_report_commands(tmp_path: Path):
    with scripted_server() as server:
        for workload in ("chat", "rag"):
            made = run(
                [
                    "harness",
                    "backend=endpoint",
                    f"backend.base_url={server.base_url}",
                    f"workload={workload}",
                    *SMALL,
                ],
                tmp_path,
            )
            assert made.status == 0, made.err
    first = records(tmp_path / "results")[0]["id"]
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
