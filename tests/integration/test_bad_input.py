"""Everything a user can get wrong: one clear message, the right exit code, no traceback, nothing half-written."""

import socket
from pathlib import Path

import pytest

from tests.support.command_line import Done, leftovers, records, run
from tests.support.fixtures import ScriptedServer
from tests.support.in_one_process import run_each
from tests.support.scripts import Script


def endpoint(server: ScriptedServer, *more: str) -> list[str]:
    return ["harness", "backend=endpoint", f"backend.base_url={server.base_url}", *more]


def assert_one_clear_message(done: Done, status: int, *words: str) -> None:
    assert done.status == status, done.err
    assert done.err.count("Error:") == 1
    assert "Traceback" not in done.err + done.out
    message = done.err[done.err.index("Error:") :]
    for word in words:
        assert word in message


WRONG: list[tuple[list[str], list[str]]] = [
    (["load.concurency=4"], ["Did you mean load.concurrency?"]),
    (["load.concurrency=four"], ["a whole number"]),
    (["workload=poetry"], ["Choices:", "rag"]),
    (["rag"], ["KEY=VALUE"]),
    (["--halp"], ["--help"]),
    (["backend.kv_dtype=f16,int8"], ["-m"]),
    (["backend.threads=0"], ["backend.threads"]),
    (["load.concurrency=0"], ["load.concurrency"]),
    (["load=poisson", "load.rate=0"], ["load.rate"]),
    (["workload.output_tokens=lots"], ["workload.output_tokens"]),
    (["workload.prompt_tokens=10"], ["workload.prompt_tokens"]),
    (["backend=endpoint"], ["backend.base_url"]),
    (["model=path", "model.path=/nowhere/model.gguf"], ["model.path", "does not exist"]),
    (["backend.kv_dtype=fp8"], ["backend.kv_dtype", "int8"]),
    (
        ["workload=rag", "workload.prompt_tokens=9000"],
        ["workload.prompt_tokens", "backend.context_length"],
    ),
    (["backend.context_length=100000"], ["backend.context_length", "8192"]),
    (["workload.corpus.name=folder", "workload.corpus.path=."], ["workload.corpus.path"]),
    (["quality=perplexity", "quality.perplexity.text=missing.txt"], ["quality.perplexity.text"]),
    (["quality=perplexity", "quality.perplexity.stride=0"], ["quality.perplexity.stride"]),
    (["quality=perplexity", "quality.chunk=0"], ["quality.chunk=0", "at least 1"]),
    (["quality=recall", "quality.recall.lengths=[10]"], ["quality.recall.lengths: 10", "Use at least"]),
    (["workload=file"], ["workload.path"]),
]


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Done]]:
    """How each of WRONG ended, and the folder it ran in."""
    folders = [tmp_path_factory.mktemp("wrong") for _ in WRONG]
    done = run_each([(folder, arguments) for folder, (arguments, _) in zip(folders, WRONG, strict=True)])
    return list(zip(folders, done, strict=True))


@pytest.mark.parametrize("number", range(len(WRONG)), ids=[" ".join(arguments) for arguments, _ in WRONG])
def test_wrong_usage_starts_nothing(number: int, refused: list[tuple[Path, Done]]):
    folder, done = refused[number]
    assert_one_clear_message(done, 2, *WRONG[number][1])
    assert records(folder / "results") == []
    assert leftovers(folder / "results") == []


def test_wrong_usage_ends_the_process_with_its_status(tmp_path: Path):
    arguments, words = WRONG[0]
    assert_one_clear_message(run(["harness", *arguments], tmp_path), 2, *words)


def test_a_model_that_does_not_fit_the_engine(tmp_path: Path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(
        '{"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, "vocab_size": 100,'
        ' "max_position_embeddings": 8192}'
    )
    (folder / "model.safetensors").write_bytes(b"weights")
    done = run(["harness", "model=path", f"model.path={folder}"], tmp_path)
    assert_one_clear_message(done, 2, "exported for OpenVINO", "backend.weight_dtype=f32")


def test_a_port_in_use(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run(["harness", f"backend.port={taken.getsockname()[1]}", "load.warmup=0"], tmp_path)
    assert_one_clear_message(done, 2, "backend.port")
    assert records(tmp_path / "results") == []


def test_an_endpoint_that_is_down(tmp_path: Path):
    done = run(["harness", "backend=endpoint", "backend.base_url=http://127.0.0.1:1"], tmp_path)
    assert_one_clear_message(done, 1, "http://127.0.0.1:1", "backend.base_url")


def test_an_endpoint_that_wants_a_key(server: ScriptedServer, tmp_path: Path):
    secret = "sk-a-secret-that-must-not-be-seen"
    body = f'{{"error": {{"message": "Incorrect API key provided: {secret}"}}}}'  # as some servers do
    server.play(Script(status=401, body=body, content_type="application/json"))
    done = run(endpoint(server, "-m", "seed=1"), tmp_path, OPENAI_API_KEY=secret)
    assert_one_clear_message(done, 1, "401", "Incorrect API key provided")
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert all(secret.encode() not in content for content in written)
    assert secret not in done.out + done.err
    (record,) = records(tmp_path / "results")  # in a sweep the failed run is recorded, with its reason
    assert "Incorrect API key provided: (key)" in record["reason"]


def test_an_engine_environment_that_lacks_the_engine(tmp_path: Path):
    done = run(["harness", "backend.python=/usr/bin/env", "load.warmup=0"], tmp_path)
    assert_one_clear_message(done, 2, "backend.python=/usr/bin/env")


def test_results_that_cannot_be_written(server: ScriptedServer, tmp_path: Path):
    (tmp_path / "results").write_text("a file where the folder should be")
    done = run(endpoint(server, "workload.requests=1"), tmp_path)
    assert_one_clear_message(done, 1, "results_dir")
