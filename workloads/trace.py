"""A recorded trace as a workload: prompts and answers of exactly its lengths, with the instants it was recorded at.

Traces carry no text. A prompt is corpus text inside the model's chat template, fitted to the recorded length;
where that is shorter than the template alone, it is corpus text without a template. Where the trace names blocks,
equal ids become the same token ids, so that prompts share prefixes as the recorded ones did; such prompts are
sent without a template, which would shift the blocks.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from harness.core.errors import UsageError
from harness.core.requests import Plan, PlannedRequest
from harness.core.tokenizer import Message, Tokenizer
from workloads.drawing import Drawing, check_count
from workloads.fit import PromptTooShort, fit
from workloads.options import TraceWorkloadOptions
from workloads.pool import Beginnings, Passage, TextPool
from workloads.traces import BLOCK_TOKENS, Row, Trace, read_trace

_TOO_LONG = ("error", "clip", "drop")
_CHARACTERS_PER_TOKEN = 8


def draw(options: TraceWorkloadOptions, drawing: Drawing) -> Plan:
    """One request a row, each a session of its own, in order of arrival."""
    if not options.path:
        raise UsageError(
            "workload=trace needs workload.path=FILE, a recorded trace (docs/load.md names formats)."
        )
    for key in ("prompt_tokens", "output_tokens"):
        if getattr(options, key) is not None:
            raise UsageError(f"workload.{key} cannot be set with workload=trace: the trace has its own.")
    path = Path(options.path).expanduser()
    trace = read_trace(path, options.format)
    counts: Counter[str] = Counter(left_out=trace.left_out)
    rows = _fitting(_slice(trace, options), options, drawing.context_length, counts)
    maker = _Prompts(drawing, counts)
    start_s = rows[0].arrival_s
    requests = [
        replace(
            maker.request(index, row, drawing.measured, "measured"),
            arrival_s=round(row.arrival_s - start_s, 9),
        )
        for index, row in enumerate(rows)
    ]
    sources = {
        "trace": path.name,
        "trace_format": trace.format,
        "trace_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "trace_requests": len(trace.rows),
        **{f"trace_{name}": counts[name] for name in ("left_out", "clipped", "dropped", "without_template")},
    }
    warmup = [
        maker.request(i, replace(rows[i % len(rows)], blocks=()), drawing.reserve, "warmup")
        for i in range(drawing.warmup)
    ]
    return Plan("trace", drawing.seed, tuple(requests), tuple(warmup), sources)


def _slice(trace: Trace, options: TraceWorkloadOptions) -> tuple[Row, ...]:
    first = check_count("workload.first", options.first, least=0)
    rows = trace.rows[first:]
    if not rows:
        raise UsageError(
            f"workload.first={first}, but {options.path} holds {len(trace.rows)} usable requests."
        )
    if options.requests is None:
        return rows
    wanted = check_count("workload.requests", options.requests)
    if wanted > len(rows):
        raise UsageError(
            f"workload.requests={wanted}, but {options.path} holds {len(rows)} usable requests from "
            f"workload.first={first} on."
        )
    return rows[:wanted]


def _fitting(
    rows: tuple[Row, ...], options: TraceWorkloadOptions, context: int, counts: Counter[str]
) -> list[Row]:
    """The rows that fit the context, or are made to; what was done is counted."""
    if options.too_long not in _TOO_LONG:
        raise UsageError(
            f"workload.too_long={options.too_long} is unknown. Choose one of {', '.join(_TOO_LONG)}."
        )
    too_long = [row for row in rows if row.prompt_tokens + row.output_tokens > context]
    if too_long and options.too_long == "error":
        longest = max(too_long, key=lambda row: row.prompt_tokens + row.output_tokens)
        raise UsageError(
            f"{len(too_long)} of {len(rows)} requests do not fit backend.context_length={context} (the longest "
            f"has {longest.prompt_tokens} prompt + {longest.output_tokens} output tokens). Raise it, choose other "
            "requests with workload.first and workload.requests, or set workload.too_long=clip or drop."
        )
    kept = []
    for row in rows:
        if row.prompt_tokens + row.output_tokens <= context:
            kept.append(row)
        elif options.too_long == "drop":
            counts["dropped"] += 1
        else:
            counts["clipped"] += 1
            output = min(row.output_tokens, max(1, context // 2))
            kept.append(
                replace(row, output_tokens=output, prompt_tokens=min(row.prompt_tokens, context - output))
            )
    if not kept:
        raise UsageError(
            f"None of {len(rows)} requests fits backend.context_length={context}. Raise it, or set "
            "workload.too_long=clip."
        )
    return kept


@dataclass
class _Prompts:
    """Makes requests of the lengths that rows say."""

    drawing: Drawing
    counts: Counter[str]

    def __post_init__(self) -> None:
        self._beginnings = Beginnings()
        self._blocks: dict[int, tuple[int, ...]] = {}
        self._pool_ids: list[int] = []

    def request(self, index: int, row: Row, pool: TextPool, phase: str) -> PlannedRequest:
        ids, messages = self._prompt(index, row, pool, phase)
        if not messages and phase == "measured":
            self.counts["without_template"] += 1
        return PlannedRequest(
            index=index,
            prompt_ids=ids,
            messages=messages,
            output_tokens=row.output_tokens,
            max_output_tokens=row.output_tokens,
            session=index,
        )

    def _prompt(
        self, index: int, row: Row, pool: TextPool, phase: str
    ) -> tuple[tuple[int, ...], tuple[Message, ...]]:
        if row.blocks:
            ids = [token for block in row.blocks for token in self._block(block, pool)]
            return tuple(ids[: row.prompt_tokens]), ()
        number, passage = self._beginnings.draw(pool, self.drawing.stream("trace", phase, index))

        def build(filler: str) -> list[Message]:
            return [{"role": "user", "content": number + filler if filler else ""}]

        try:
            prompt = fit(self.drawing.tokenizer, build, passage.read, row.prompt_tokens)
        except PromptTooShort:
            return read_tokens(self.drawing.tokenizer, number, passage, row.prompt_tokens), ()
        return prompt.ids, prompt.messages

    def _block(self, block: int, pool: TextPool) -> tuple[int, ...]:
        """The 512 tokens of a block; its number comes first, so that no two blocks begin alike."""
        if block not in self._blocks:
            if not self._pool_ids:  # encoded once; a long trace has tens of thousands of blocks
                self._pool_ids = self.drawing.tokenizer.encode(pool.text)
            number = self.drawing.tokenizer.encode(f"({block}) ")
            start = self.drawing.stream("trace", "block", block).below(len(self._pool_ids))
            text = (
                self._pool_ids[(start + i) % len(self._pool_ids)] for i in range(BLOCK_TOKENS - len(number))
            )
            self._blocks[block] = (*number, *text)
        return self._blocks[block]


def read_tokens(tokenizer: Tokenizer, begin: str, passage: Passage, count: int) -> tuple[int, ...]:
    """Exactly `count` token ids of `begin` and the text that follows at `passage`, without a template."""
    characters = count * _CHARACTERS_PER_TOKEN + 80
    while len(ids := tokenizer.encode(begin + passage.read(characters))) <= count:
        characters *= 2
    return tuple(ids[:count])
