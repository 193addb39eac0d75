"""A recorded trace as a workload: prompts and answers of exactly its lengths, with the instants it was recorded at.

Traces carry no text. A prompt is corpus text inside the model's chat template, fitted to the recorded length;
where that is shorter than the template alone, it is corpus text without a template. Where the trace names blocks,
equal ids become the same token ids, so that prompts share prefixes as the recorded ones did; such prompts are
sent without a template, which would shift the blocks.

Rows of one recorded session become its turns. Where a later row's prompt is longer than the prompt and the answer
before it, it holds them: the history, a scripted answer of the recorded length, and new text. Where it is not, it
begins anew, since nothing recorded says what it held. The think time is the gap between the answer before it (where
the trace does not say when that came: the request) and the row.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from harness.core.errors import UsageError
from harness.core.requests import Plan, PlannedRequest
from harness.core.tokenizer import Message, Tokenizer
from workloads.cutting import Cutter, bounded
from workloads.drawing import Drawing, check_count
from workloads.fit import PromptTooShort, fit, render
from workloads.options import TraceWorkloadOptions
from workloads.pool import Passage, TextPool
from workloads.traces import BLOCK_TOKENS, Row, Trace, read_trace

_TOO_LONG = ("error", "clip", "drop")
_COUNTED = ("left_out", "clipped", "dropped", "without_template", "begun_anew")
_CHARACTERS_PER_TOKEN = 8
_ROOM = 16  # tokens beside the template from which a prompt has room for its number


def draw(options: TraceWorkloadOptions, drawing: Drawing) -> Plan:
    """One request a row, in order of arrival, as a turn of its recorded session where it has one."""
    path = _path(options)
    for key in ("prompt_tokens", "output_tokens"):
        if getattr(options, key) is not None:
            raise UsageError(f"workload.{key} cannot be set with workload=trace: the trace has its own.")
    trace = read_trace(path, options.format)
    counts: Counter[str] = Counter(left_out=trace.left_out)
    rows = _fitting(_slice(trace, options), options, drawing.context_length, counts)
    sessions = _in_sessions(rows, options.sessions)
    if options.history == "real" and len({session.number for session in sessions}) < len(rows):
        raise UsageError(
            "workload.history=real cannot be had from a trace, whose later prompts have recorded lengths. "
            "Use workload.history=scripted, or workload.sessions=false."
        )
    maker = _Prompts(drawing, drawing.measured, "measured", len(rows), counts)
    start_s = rows[0].arrival_s
    requests = [
        replace(maker.request(index, row, session), arrival_s=round(row.arrival_s - start_s, 9))
        for index, (row, session) in enumerate(zip(rows, sessions, strict=True))
    ]
    sources = {
        "trace": path.name,
        "trace_format": trace.format,
        "trace_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "trace_requests": len(trace.rows),
        "trace_sessions": len({session.number for session in sessions}),
        **{f"trace_{name}": counts[name] for name in _COUNTED},
    }
    warming = _Prompts(drawing, drawing.reserve, "warmup", drawing.warmup, Counter())
    warmup = [
        warming.request(i, replace(rows[i % len(rows)], blocks=()), _Session(i))
        for i in range(drawing.warmup)
    ]
    return Plan("trace", drawing.seed, tuple(requests), tuple(warmup), sources)


def rows_for_sessions(options: TraceWorkloadOptions) -> tuple[int, ...]:
    """How many rows of the slice asked for hold the first session whole, how many the first two, and so on to all."""
    rows = _slice(read_trace(_path(options), options.format), options)
    ends: dict[int, int] = {}
    for count, session in enumerate(_in_sessions(list(rows), options.sessions), start=1):
        ends[session.number] = count
    return tuple(accumulate(ends.values(), max))


def _path(options: TraceWorkloadOptions) -> Path:
    if not options.path:
        raise UsageError(
            "workload=trace needs workload.path=FILE, a recorded trace (docs/load.md names formats)."
        )
    return Path(options.path).expanduser()


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
class _Session:
    """What a recorded session holds so far. messages: () where the next turn cannot build on them."""

    number: int
    turns: int = 0
    messages: tuple[Message, ...] = ()
    last: Row | None = None


class _Prompts:
    """Makes requests of the lengths that rows say."""

    def __init__(
        self, drawing: Drawing, pool: TextPool, phase: str, count: int, counts: Counter[str]
    ) -> None:
        self._drawing = drawing
        self._tokenizer = drawing.tokenizer
        self._pool = bounded(pool)
        self._cutter = Cutter(drawing.tokenizer, self._pool)
        self._smallest = len(render(drawing.tokenizer, [{"role": "user", "content": ""}]).ids)
        self._phase = phase
        self._counts = counts
        self._places = drawing.stream("trace", phase, "places").uniforms(count)
        self._blocks: dict[int, tuple[int, ...]] = {}
        self._pool_ids: list[int] = []

    def request(self, index: int, row: Row, session: _Session) -> PlannedRequest:
        """The next request of this session."""
        ids, messages = self._prompt(index, row, session)
        if not messages:
            self._counts["without_template"] += 1
        turn, last = session.turns, session.last
        think_s = 0.0
        if last is not None:
            since = last.arrival_s if last.answered_s is None else last.answered_s
            think_s = max(0.0, round(row.arrival_s - since, 6))
        session.turns, session.messages, session.last = turn + 1, messages, row
        return PlannedRequest(
            index=index,
            prompt_ids=ids,
            messages=messages,
            output_tokens=row.output_tokens,
            max_output_tokens=row.output_tokens,
            session=session.number,
            turn=turn,
            think_time_s=think_s,
        )

    def _prompt(self, index: int, row: Row, session: _Session) -> tuple[tuple[int, ...], tuple[Message, ...]]:
        if row.blocks:
            ids = [token for block in row.blocks for token in self._block(block)]
            return tuple(ids[: row.prompt_tokens]), ()
        passage = self._pool.passage_at(self._places[index])
        if session.last is not None:
            later = self._later_turn(row, session, passage)
            if later is not None:
                return later
            self._counts["begun_anew"] += 1
        roomy = row.prompt_tokens >= self._smallest + _ROOM
        number = f"{index + 1}. " if roomy else ""  # so that no two prompts begin alike
        prompt = self._cutter.cut(number, passage.start, row.prompt_tokens)
        if prompt is not None:
            return prompt.ids, prompt.messages

        def build(filler: str) -> list[Message]:
            return [{"role": "user", "content": number + filler}]

        try:
            prompt = fit(self._tokenizer, build, passage.read, row.prompt_tokens)
        except PromptTooShort:
            return read_tokens(self._tokenizer, passage, row.prompt_tokens), ()
        return prompt.ids, prompt.messages

    def _later_turn(
        self, row: Row, session: _Session, passage: Passage
    ) -> tuple[tuple[int, ...], tuple[Message, ...]] | None:
        """The history, a scripted answer as long as the recorded one, and new text; None where the recorded prompt
        is too short to have held that."""
        before, last = session.messages, session.last
        if not before or last is None or row.prompt_tokens <= last.prompt_tokens + last.output_tokens:
            return None

        def answer(filler: str) -> list[Message]:
            return [*before, {"role": "assistant", "content": filler}]

        def ask(filler: str) -> list[Message]:
            return [*answered, {"role": "user", "content": filler}]

        answered = fit(
            self._tokenizer, answer, passage.read, extra=last.output_tokens, ready_for_answer=False
        ).messages
        asked = Passage(self._pool, (passage.start + len(self._pool.text) // 2) % len(self._pool.text))
        try:
            prompt = fit(self._tokenizer, ask, asked.read, row.prompt_tokens)
        except PromptTooShort:
            return None
        return prompt.ids, prompt.messages

    def _block(self, block: int) -> tuple[int, ...]:
        """The 512 tokens of a block; its number comes first, so that no two blocks begin alike."""
        if block not in self._blocks:
            if not self._pool_ids:  # encoded once; a long trace has tens of thousands of blocks
                self._pool_ids = self._tokenizer.encode(self._pool.text)
            number = self._tokenizer.encode(f"({block}) ")
            start = self._drawing.stream("trace", "block", block).below(len(self._pool_ids))
            text = (
                self._pool_ids[(start + i) % len(self._pool_ids)] for i in range(BLOCK_TOKENS - len(number))
            )
            self._blocks[block] = (*number, *text)
        return self._blocks[block]


def _in_sessions(rows: list[Row], keep: bool) -> list[_Session]:
    """The session of each row: one for all rows of a recorded one, numbered by their first rows."""
    sessions: list[_Session] = []
    known: dict[str, _Session] = {}
    count = 0
    for row in rows:
        session = known.get(row.session) if keep and row.session is not None else None
        if session is None:
            session = _Session(count)
            count += 1
            if row.session is not None:
                known[row.session] = session
        sessions.append(session)
    return sessions


def read_tokens(tokenizer: Tokenizer, passage: Passage, count: int) -> tuple[int, ...]:
    """Exactly `count` token ids of the text at `passage`, without a template."""
    characters = count * _CHARACTERS_PER_TOKEN + 80
    while len(ids := tokenizer.encode(passage.read(characters))) <= count:
        characters *= 2
    return tuple(ids[:count])
