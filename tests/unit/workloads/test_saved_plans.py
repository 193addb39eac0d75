from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from harness.core.errors import HarnessError, UsageError
from harness.core.requests import Plan
from harness.core.tokenizer import Tokenizer
from tests.support.workload_options import longest_context, workload_options
from workloads.file import load_plan, save_plan
from workloads.registry import draw_plan


def replayed(tokenizer: Tokenizer, path: Path, warmup: int = 0, **overrides: object) -> Plan:
    return draw_plan(workload_options("file", path=str(path), **overrides), tokenizer, 99, warmup, 4096)


@pytest.mark.parametrize("overrides", [{}, {"history": "real"}])
def test_a_saved_plan_is_replayed_to_the_same_bytes(
    tokenizer: Tokenizer, tmp_path: Path, overrides: dict
) -> None:
    path = tmp_path / "new" / "plan.jsonl"
    drawn = draw_plan(
        workload_options("chat", requests=6, save=str(path), **overrides), tokenizer, 7, 2, 4096
    )
    again = replayed(tokenizer, path, warmup=2)
    assert again == drawn
    assert again.sha256() == drawn.sha256()
    assert [entry.name for entry in path.parent.iterdir()] == ["plan.jsonl"]


def test_every_workload_can_be_saved(default_plans: dict[str, Plan], tmp_path: Path) -> None:
    for name, plan in default_plans.items():
        save_plan(plan, tmp_path / f"{name}.jsonl")
        assert load_plan(tmp_path / f"{name}.jsonl") == plan


def test_the_file_says_what_it_is(default_plans: dict[str, Plan], tmp_path: Path) -> None:
    plan = default_plans["rag"]
    save_plan(plan, tmp_path / "plan.jsonl")
    header, *lines = map(orjson.loads, (tmp_path / "plan.jsonl").read_bytes().splitlines())
    assert header["schema"] == 1
    assert (header["workload"], header["seed"], header["sha256"]) == ("rag", 11, plan.sha256())
    assert header["sources"] == plan.sources
    assert [line["phase"] for line in lines] == ["measured"] * len(plan.requests) + ["warmup"] * len(
        plan.warmup
    )


def test_the_first_requests_can_be_replayed_alone(
    tokenizer: Tokenizer, default_plans: dict[str, Plan], tmp_path: Path
) -> None:
    plan = default_plans["summarization"]
    save_plan(plan, tmp_path / "plan.jsonl")
    some = replayed(tokenizer, tmp_path / "plan.jsonl", warmup=1, requests=2)
    assert some.requests == plan.requests[:2]
    assert some.warmup == plan.warmup[:1]
    for changed, message in (
        ({"warmup": 4}, "load.warmup=3"),
        ({"requests": len(plan.requests) + 1}, f"holds {len(plan.requests)}"),
        ({"output_tokens": 5}, "workload.output_tokens cannot be set"),
        ({"history": "real"}, "workload.history cannot be set"),
    ):
        with pytest.raises(UsageError, match=message):
            replayed(tokenizer, tmp_path / "plan.jsonl", **changed)


def test_a_replayed_plan_must_fit_the_context(
    tokenizer: Tokenizer, default_plans: dict[str, Plan], tmp_path: Path
) -> None:
    plan = default_plans["summarization"]
    save_plan(plan, tmp_path / "plan.jsonl")
    options = workload_options("file", path=str(tmp_path / "plan.jsonl"))
    assert draw_plan(options, tokenizer, 0, 0, context_length=longest_context(plan)) == replace(
        plan, warmup=()
    )
    too_short = longest_context(plan) - 1
    with pytest.raises(UsageError, match=rf"backend\.context_length={too_short}"):
        draw_plan(options, tokenizer, 0, 0, context_length=too_short)


def damage(lines: list[bytes], line: int, change: dict | bytes) -> list[bytes]:
    if isinstance(change, bytes):
        return [*lines[: line - 1], change, *lines[line:]]
    record = orjson.loads(lines[line - 1])
    target = record if line == 1 else record["request"]
    for key, value in change.items():
        if value is ...:
            del target[key]
        else:
            target[key] = value
    return damage(lines, line, orjson.dumps(record))


@pytest.mark.parametrize(
    ("line", "change", "message"),
    [
        (1, b"hello", "line 1 is no header"),
        (1, b"[]", "line 1 is no header"),
        (1, b'{"kind": "other"}', "line 1 is no header"),
        (1, {"schema": 2}, "plan schema 2, this version reads 1"),
        (1, {"seed": "x"}, "no valid 'seed'"),
        (1, {"requests": 0}, "holds no requests"),
        (1, {"sha256": "0" * 64}, "SHA-256"),
        (3, b"{", "line 3 is no planned request"),
        (3, b"", "line 3 is no planned request"),
        (3, b'{"phase": "measured"}', "line 3 is no planned request"),
        (3, {"prompt_ids": ["a"]}, "line 3 .*prompt_ids"),
        (3, {"prompt_ids": []}, "line 3 .*prompt_ids"),
        (3, {"prompt_ids": 5}, "line 3"),
        (3, {"messages": ["x"]}, "line 3 .*messages"),
        (3, {"output_tokens": 1}, "line 3 .*output_tokens"),
        (3, {"max_output_tokens": ...}, "line 3"),
        (3, {"surprise": 1}, "line 3"),
        (3, {"think_time_s": 9.0}, "SHA-256"),
    ],
)
def test_a_damaged_file_names_the_line(
    default_plans: dict[str, Plan], tmp_path: Path, line: int, change: dict | bytes, message: str
) -> None:
    path = tmp_path / "plan.jsonl"
    save_plan(default_plans["summarization"], path)
    path.write_bytes(b"\n".join(damage(path.read_bytes().splitlines(), line, change)))
    with pytest.raises(UsageError, match=message):
        load_plan(path)


def test_a_file_cut_short_is_told(default_plans: dict[str, Plan], tmp_path: Path) -> None:
    path = tmp_path / "plan.jsonl"
    save_plan(default_plans["summarization"], path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:5]))
    count = len(default_plans["summarization"].requests)
    with pytest.raises(UsageError, match=rf"line 5: the file ends after 4 of {count} requests"):
        load_plan(path)
    path.write_bytes(b"".join(lines)[:-100])
    with pytest.raises(UsageError, match=f"line {len(lines)} is no planned request"):
        load_plan(path)
    path.write_bytes(b"")
    with pytest.raises(UsageError, match=r"line 1 is no header"):
        load_plan(path)


def test_a_plan_for_another_tokenizer_is_refused(
    tokenizer: Tokenizer, default_plans: dict[str, Plan], tmp_path: Path
) -> None:
    save_plan(default_plans["rag"], tmp_path / "plan.jsonl")

    class Other:
        def render_chat(self, messages: object) -> str:
            return tokenizer.render_chat(messages)[1:]  # type: ignore[arg-type]

        def encode(self, text: str) -> list[int]:
            return tokenizer.encode(text)

    with pytest.raises(UsageError, match=r"another tokenizer or chat template"):
        replayed(Other(), tmp_path / "plan.jsonl")  # type: ignore[arg-type]


def test_places_that_cannot_be_read_or_written(
    tokenizer: Tokenizer, default_plans: dict[str, Plan], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"workload\.path=.*No such file"):
        replayed(tokenizer, tmp_path / "nowhere.jsonl")
    with pytest.raises(UsageError, match=r"workload\.path=.*directory"):
        replayed(tokenizer, tmp_path)
    with pytest.raises(UsageError, match=r"needs workload\.path"):
        draw_plan(workload_options("file"), tokenizer, 0, 0, 4096)
    (tmp_path / "file").write_text("")
    with pytest.raises(HarnessError, match=r"workload\.save"):
        save_plan(default_plans["rag"], tmp_path / "file" / "plan.jsonl")
