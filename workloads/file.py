"""Plans as files: written whole or not at all, replayed to the same bytes.

A JSONL file. The first line is the header: {"kind", "schema", "workload", "seed", "sources", "requests",
"warmup", "sha256"}; each further line is {"phase": "measured" | "warmup", "request": {…}}.

Schema history
1  first version
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from harness.core.errors import HarnessError, UsageError
from harness.core.requests import PLAN_SCHEMA, Plan, PlannedRequest
from harness.core.tokenizer import Tokenizer
from workloads.drawing import check_count
from workloads.options import FileOptions

_KIND = "inference-harness plan"
_COMPARED = 3  # requests whose text is encoded again, to notice a plan drawn for another model


def save_plan(plan: Plan, path: str | Path) -> None:
    """Write the plan to `path` in one step. Raises HarnessError where the place cannot be written."""
    target = Path(path).expanduser()
    header = {
        "kind": _KIND,
        "schema": PLAN_SCHEMA,
        "workload": plan.workload,
        "seed": plan.seed,
        "sources": plan.sources,
        "requests": len(plan.requests),
        "warmup": len(plan.warmup),
        "sha256": plan.sha256(),
    }
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(orjson.dumps(header) + b"\n")
            for phase, requests in ((b"measured", plan.requests), (b"warmup", plan.warmup)):
                for request in requests:
                    file.write(b'{"phase":"' + phase + b'","request":' + request.to_json() + b"}\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        raise HarnessError(
            f"The plan cannot be written to {target}: {error.strerror}. Set workload.save to a "
            "place that can be."
        ) from error
    finally:
        with suppress(OSError):  # gone already where all went well
            temporary.unlink()


def load_plan(path: str | Path) -> Plan:
    """Read a saved plan. Raises UsageError that names the line where the file is damaged or no plan."""
    source = Path(path).expanduser()
    try:
        lines = source.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(
            f"workload.path={path} cannot be read: {error.strerror}. Give a file that workload.save wrote."
        ) from error
    header = _header(source, lines)
    phases: dict[str, list[PlannedRequest]] = {"measured": [], "warmup": []}
    for number, line in enumerate(lines[1:], 2):
        try:
            record = orjson.loads(line)
            request = PlannedRequest.from_json(orjson.dumps(record["request"]))
            _check(request)
            phases[record["phase"]].append(request)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(
                f"{source} line {number} is no planned request ({type(error).__name__}: {error}). "
                "Save the plan again."
            ) from error
    plan = Plan(
        header["workload"],
        header["seed"],
        tuple(phases["measured"]),
        tuple(phases["warmup"]),
        header["sources"],
    )
    for name, requests in (("requests", plan.requests), ("warmup", plan.warmup)):
        if len(requests) != header[name]:
            raise UsageError(
                f"{source} line {len(lines)}: the file ends after {len(requests)} of {header[name]} {name}. "
                "It was cut short; save the plan again."
            )
    if plan.sha256() != header["sha256"]:
        raise UsageError(
            f"{source} line 1: the SHA-256 in the header is not that of the requests, so the file "
            "was changed. Save the plan again."
        )
    return plan


def replay(options: FileOptions, tokenizer: Tokenizer, warmup: int) -> Plan:
    """The plan of `workload.path`, its first `requests` where that is set, with `warmup` warm-up requests."""
    if not options.path:
        raise UsageError("workload=file needs workload.path=FILE.jsonl, a file that workload.save wrote.")
    for key in ("prompt_tokens", "output_tokens", "history"):
        if getattr(options, key) is not None:
            raise UsageError(f"workload.{key} cannot be set with workload=file: the saved plan has its own.")
    plan = load_plan(options.path)
    if warmup > len(plan.warmup):
        raise UsageError(
            f"load.warmup={warmup}, but {options.path} holds {len(plan.warmup)} warm-up requests. "
            f"Use load.warmup={len(plan.warmup)}, or save the plan again with load.warmup={warmup}."
        )
    requests = plan.requests
    if options.requests is not None:
        wanted = check_count("workload.requests", options.requests)
        if wanted > len(requests):
            raise UsageError(f"workload.requests={wanted}, but {options.path} holds {len(requests)}.")
        requests = requests[:wanted]
    with_messages = [request for request in (*requests[:_COMPARED], *plan.warmup[:1]) if request.messages]
    for request in with_messages:
        if tuple(tokenizer.encode(tokenizer.render_chat(request.messages))) != request.prompt_ids:
            raise UsageError(
                f"{options.path} was drawn for a model with another tokenizer or chat template. "
                "Name that model, or save the plan again with this one."
            )
    return Plan(plan.workload, plan.seed, requests, plan.warmup[:warmup], plan.sources)


def _header(source: Path, lines: list[bytes]) -> dict[str, Any]:
    try:
        header = orjson.loads(lines[0])
        known = header["kind"] == _KIND
    except (IndexError, KeyError, TypeError, orjson.JSONDecodeError):
        known = False
    if not known:
        raise UsageError(
            f"{source} line 1 is no header of a saved plan. Give a file that workload.save wrote."
        )
    if header.get("schema") != PLAN_SCHEMA:
        raise UsageError(
            f"{source} line 1: plan schema {header.get('schema')}, this version reads {PLAN_SCHEMA}. "
            "Save the plan again with this version."
        )
    kinds = {"workload": str, "seed": int, "sources": dict, "requests": int, "warmup": int, "sha256": str}
    for key, kind in kinds.items():
        if not isinstance(header.get(key), kind):
            raise UsageError(f"{source} line 1: the header has no valid {key!r}. Save the plan again.")
    if not header["requests"]:
        raise UsageError(f"{source} line 1: the plan holds no requests. Save one that does.")
    return dict(header)


def _check(request: PlannedRequest) -> None:
    """Raise TypeError or ValueError for what JSON allows and a request does not."""
    if not request.prompt_ids or not all(isinstance(i, int) and i >= 0 for i in request.prompt_ids):
        raise ValueError("prompt_ids are no token ids")
    if not all(isinstance(m, dict) and {"role", "content"} <= m.keys() for m in request.messages):
        raise ValueError("messages are no chat messages")
    if not isinstance(request.max_output_tokens, int) or request.max_output_tokens < 1:
        raise ValueError("max_output_tokens is no count of tokens")
    if request.output_tokens not in (None, request.max_output_tokens):
        raise ValueError("output_tokens is neither null nor max_output_tokens")
