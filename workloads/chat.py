"""Chat: sessions of several turns, the whole history in each prompt, one system prompt shared by all.

history=scripted puts pre-drawn answers into later turns: their prompts are known to the token before the run.
history=real plans the same prompts as a script, and `segments` that put in what the engine answered. The true
prompt is then longer or shorter by exactly the sum of (real - scripted) answer tokens of the earlier turns: 0
where output_tokens is fixed and the engine honours it, at most that sum where answers are free.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.errors import UsageError
from harness.core.requests import AnswerOf, Plan, PlannedRequest
from harness.core.tokenizer import Message, Tokenizer
from workloads.corpus import Exchange
from workloads.drawing import Drawing, check_count, system_message, too_short
from workloads.fit import Prompt, PromptTooShort, ReadText, fit, render
from workloads.lengths import Distribution, OutputLength, parse_length, parse_output, parse_seconds
from workloads.options import ChatOptions
from workloads.pool import Beginnings, TextPool, held_back_conversations, without_markers

_HISTORIES = ("scripted", "real")


@dataclass(frozen=True, slots=True)
class _Lengths:
    first: Distribution | None
    user: Distribution | None
    answer: Distribution
    output: OutputLength
    turns: Distribution
    think: Distribution


def draw(options: ChatOptions, drawing: Drawing) -> Plan:
    """Draw the sessions one after another; the last one ends where `requests` is reached."""
    lengths = _lengths(options, drawing)
    system = system_message(_system_prompt(options, drawing))
    held_back = held_back_conversations(drawing.corpus)
    conversations = drawing.corpus.conversations[: len(drawing.corpus.conversations) - held_back]
    order = drawing.stream("chat", "conversations").permutation(len(conversations))
    wanted = check_count("workload.requests", options.requests)
    requests: list[PlannedRequest] = []
    session = 0
    beginnings = Beginnings()
    while len(requests) < wanted:
        recorded = conversations[order[session % len(order)]] if order else ()
        drawer = _Session(
            drawing, lengths, system, drawing.measured, ("measured", session), recorded, beginnings
        )
        turns = lengths.turns.draw_int(drawing.stream("chat", "turns", session))
        if recorded:
            turns = min(turns, len(recorded))
        turns = min(turns, wanted - len(requests))
        requests += drawer.draw(len(requests), session, turns, real=options.history == "real")
        session += 1
    warmup = []
    for i in range(drawing.warmup):
        recorded = drawing.corpus.conversations[len(conversations) + i % held_back] if held_back else ()
        drawer = _Session(drawing, lengths, system, drawing.reserve, ("warmup", i), recorded, beginnings)
        warmup += drawer.draw(i, i, 1, real=False)
    return Plan("chat", drawing.seed, tuple(requests), tuple(warmup))


class _Session:
    """Draws the turns of one session; `recorded` text comes before the pool's where there is any."""

    def __init__(
        self,
        drawing: Drawing,
        lengths: _Lengths,
        system: Sequence[Message],
        pool: TextPool,
        names: tuple[str, int],
        recorded: Sequence[Exchange],
        beginnings: Beginnings,
    ) -> None:
        self._drawing = drawing
        self._tokenizer = drawing.tokenizer
        self._lengths = lengths
        self._messages: list[Message] = list(system)
        self._pool = pool
        self._names = names
        self._recorded = recorded
        self._beginnings = beginnings

    def draw(self, index: int, session: int, turns: int, *, real: bool) -> list[PlannedRequest]:
        requests = []
        for turn in range(turns):
            stream = self._drawing.stream("chat", *self._names, turn)
            prompt = self._ask(turn, self._lengths.first if turn == 0 else self._lengths.user)
            output, most = self._drawing.output(self._lengths.output, stream, prompt)
            think = self._lengths.think.draw(stream) if turn else 0.0
            requests.append(
                PlannedRequest(
                    index=index + turn,
                    prompt_ids=prompt.ids,
                    messages=prompt.messages,
                    output_tokens=output,
                    max_output_tokens=most,
                    session=session,
                    turn=turn,
                    think_time_s=round(think, 6),
                    segments=segments_of(self._tokenizer, prompt.messages) if real and turn else (),
                )
            )
            if turn + 1 < turns:
                self._answer(turn, output or self._lengths.answer.draw_int(stream))
        return requests

    def _ask(self, turn: int, length: Distribution | None) -> Prompt:
        """Add the user's message of this turn."""
        before = list(self._messages)

        def build(filler: str) -> list[Message]:
            return [*before, {"role": "user", "content": filler}]

        stream = self._drawing.stream("chat", *self._names, turn, "user")
        read = self._text(turn, "user")
        if length is None:
            prompt = render(self._tokenizer, build(self._recorded_text(turn, "user")))
        elif turn == 0:
            target = length.draw_int(stream)
            try:
                prompt = fit(self._tokenizer, build, read, target)
            except PromptTooShort as error:
                raise too_short(target, error.smallest) from None
        else:
            prompt = fit(self._tokenizer, build, read, extra=length.draw_int(stream))
        self._messages = list(prompt.messages)
        return prompt

    def _answer(self, turn: int, tokens: int) -> None:
        """Add a scripted answer: the conversation gets exactly `tokens` longer than with an empty one."""
        before = list(self._messages)

        def build(filler: str) -> list[Message]:
            return [*before, {"role": "assistant", "content": filler}]

        read = self._text(turn, "assistant")
        self._messages = list(
            fit(self._tokenizer, build, read, extra=tokens, ready_for_answer=False).messages
        )

    def _recorded_text(self, turn: int, role: str) -> str:
        if turn >= len(self._recorded):
            return ""
        text = self._recorded[turn].user if role == "user" else self._recorded[turn].assistant
        return without_markers(text, self._tokenizer.special_texts)

    def _text(self, turn: int, role: str) -> ReadText:
        recorded = self._recorded_text(turn, role)
        stream = self._drawing.stream("chat", *self._names, turn, role, "text")
        if not recorded and turn == 0 and role == "user":
            number, passage = self._beginnings.draw(self._pool, stream)
            return lambda characters: number + passage.read(characters)
        passage = self._pool.passage(stream)
        if not recorded:
            return passage.read
        return lambda characters: f"{recorded}\n\n{passage.read(characters)}"


def segments_of(tokenizer: Tokenizer, messages: Sequence[Message]) -> tuple[tuple[int, ...] | AnswerOf, ...]:
    """The prompt of these messages as literal ids with a hole for each answer, as the template renders them.

    Filling the holes with answer ids (without an end-of-sequence token) gives the next prompt.
    """
    holes: list[str] = []
    marked: list[Message] = []
    for message in messages:
        if message["role"] == "assistant":
            holes.append(f"\u241eanswer {len(holes)}\u241e")
            message = {"role": "assistant", "content": holes[-1]}
        marked.append(message)
    rest = tokenizer.render_chat(marked)
    segments: list[tuple[int, ...] | AnswerOf] = []
    for turn, hole in enumerate(holes):
        literal, found, rest = rest.partition(hole)
        if not found:
            raise UsageError(
                "This model's chat template leaves out or rewrites earlier answers, so "
                "workload.history=real cannot build its prompts. Use workload.history=scripted."
            )
        segments += [tuple(tokenizer.encode(literal)), AnswerOf(turn)]
    return (*segments, tuple(tokenizer.encode(rest)))


def _system_prompt(options: ChatOptions, drawing: Drawing) -> str | None:
    if options.system_tokens is None:
        return options.system_prompt
    wanted = check_count("workload.system_tokens", options.system_tokens)
    begin = f"{options.system_prompt}\n\n" if options.system_prompt else ""
    user: Message = {"role": "user", "content": "?"}
    passage = drawing.measured.passage(drawing.stream("chat", "system"))

    def build(filler: str) -> list[Message]:
        return [{"role": "system", "content": (begin + filler).rstrip()}, user]

    own = len(drawing.tokenizer.encode((options.system_prompt or "").rstrip()))
    if own > wanted:
        raise UsageError(
            f"workload.system_tokens={wanted} is too short: workload.system_prompt alone has {own} tokens."
        )
    return fit(drawing.tokenizer, build, passage.read, extra=wanted - own).messages[0]["content"]


def _lengths(options: ChatOptions, drawing: Drawing) -> _Lengths:
    if options.history not in _HISTORIES:
        raise UsageError(
            f"workload.history={options.history} is unknown. Choose one of {', '.join(_HISTORIES)}."
        )
    recorded = bool(drawing.corpus.conversations)
    for key in ("prompt_tokens", "user_tokens"):
        if getattr(options, key) is None and not recorded:
            raise UsageError(
                f"workload.{key}=null takes the lengths of recorded conversations, and the corpus "
                f"{drawing.corpus.name} holds none. Give a length, or use "
                "workload.corpus.name=sharegpt or messages."
            )

    def optional(key: str) -> Distribution | None:
        value = getattr(options, key)
        return None if value is None else parse_length(f"workload.{key}", value)

    lengths = _Lengths(
        first=optional("prompt_tokens"),
        user=optional("user_tokens"),
        answer=parse_length("workload.answer_tokens", options.answer_tokens),
        output=parse_output("workload.output_tokens", options.output_tokens),
        turns=parse_length("workload.turns", options.turns),
        think=parse_seconds("workload.think_time_s", options.think_time_s),
    )
    if options.history == "real" and lengths.output.fixed is None and lengths.output.maximum is None:
        raise UsageError(
            "workload.history=real with workload.output_tokens=free has no bound on later prompts. "
            "Use workload.output_tokens=free:MAX."
        )
    return lengths
