"""Summarization: one long document with planted facts, and the instruction at its end.

Each document begins at another place of the corpus, with other words than all before it, so that no two
prompts share a prefix beyond the chat template and the system prompt.
"""

from harness.core.requests import Plan, PlannedRequest
from harness.core.tokenizer import Message
from workloads.drawing import Drawing, check_count, system_message, token_depth, too_short
from workloads.facts import Fact, codes_in, draw_facts, gap, plant
from workloads.fit import Prompt, PromptTooShort, fit, render
from workloads.lengths import Distribution, OutputLength, parse_length, parse_output
from workloads.options import SummarizationOptions
from workloads.pool import Beginnings, Passage, TextPool

_INSTRUCTION = (
    "Summarize the document above in a few sentences. Name every project it mentions together with its "
    "access code."
)
# Facts lie in this part of a document, so that cutting its end to length does not cut a fact off; where it
# does (a document hardly longer than its facts), they move to its beginning.
_DEEPEST = (0.9, 0.5, 0.0)


def draw(options: SummarizationOptions, drawing: Drawing) -> Plan:
    """Draw the documents one after another."""
    wanted = check_count("workload.requests", options.requests)
    facts = check_count("workload.facts", options.facts, least=0)
    length = parse_length("workload.prompt_tokens", options.prompt_tokens)
    output = parse_output("workload.output_tokens", options.output_tokens)
    system = system_message(options.system_prompt)
    codes = codes_in(drawing.measured.text) | codes_in(drawing.reserve.text)
    beginnings = Beginnings()
    measured = _Documents(drawing, system, length, output, facts, codes, beginnings, warmup=False)
    requests = tuple(measured.request(i) for i in range(wanted))
    reserve = _Documents(drawing, system, length, output, facts, codes, beginnings, warmup=True)
    return Plan(
        "summarization", drawing.seed, requests, tuple(reserve.request(i) for i in range(drawing.warmup))
    )


class _Documents:
    def __init__(
        self,
        drawing: Drawing,
        system: list[Message],
        length: Distribution,
        output: OutputLength,
        facts: int,
        codes: set[str],
        beginnings: Beginnings,
        *,
        warmup: bool,
    ) -> None:
        self._drawing = drawing
        self._tokenizer = drawing.tokenizer
        self._system = system
        self._length = length
        self._output = output
        self._facts = facts
        self._codes = codes
        self._beginnings = beginnings
        self._warmup = warmup
        self._kind = "warmup" if warmup else "measured"
        self._pool: TextPool = drawing.reserve if warmup else drawing.measured

    def request(self, index: int) -> PlannedRequest:
        stream = self._drawing.stream("summarization", self._kind, index)
        target = self._length.draw_int(stream)
        facts = draw_facts(
            self._drawing.stream("summarization", self._kind, index, "facts"),
            self._facts,
            set(self._codes),
            self._warmup,
        )
        try:
            prompt = self._prompt(index, facts, target)
        except PromptTooShort as error:
            raise too_short(target, error.smallest) from None
        tokens, most = self._drawing.output(self._output, stream, prompt)
        depths = [token_depth(self._tokenizer, prompt, fact.sentence) for fact in facts]
        return PlannedRequest(
            index=index,
            prompt_ids=prompt.ids,
            messages=prompt.messages,
            output_tokens=tokens,
            max_output_tokens=most,
            session=index,
            expected=tuple(fact.code for fact in facts),
            tags={"facts": len(facts), "depths": ",".join(f"{depth:.4f}" for depth in depths)},
        )

    def _prompt(self, index: int, facts: list[Fact], target: int) -> Prompt:
        sentences = [fact.sentence for fact in facts]
        stream = self._drawing.stream("summarization", self._kind, index, "begin")
        opening, passage = self._beginnings.draw(self._pool, stream)
        # The shortest document there can be: its opening words and the facts.
        fixed = render(self._tokenizer, self._messages(opening + "\n" + "\n".join(sentences) + "\n"))
        room = target - len(fixed.ids)
        if room < 0:
            raise PromptTooShort(len(fixed.ids))
        for deepest in _DEEPEST:
            positions = [len(opening) + p for p in self._positions(index, passage, room, deepest)]

            def read(characters: int, positions: list[int] = positions) -> str:
                text = opening + passage.read(max(characters, positions[-1] + 1 if positions else 0))
                return plant(text, sentences, positions)

            prompt = fit(self._tokenizer, self._messages, read, target)
            if all(sentence in prompt.text for sentence in sentences):
                return prompt
        raise PromptTooShort(len(fixed.ids) + 4 * len(sentences))

    def _messages(self, document: str) -> list[Message]:
        return [*self._system, {"role": "user", "content": f"{document}\n\n{_INSTRUCTION}"}]

    def _positions(self, index: int, passage: Passage, room: int, deepest: float) -> list[int]:
        """Where facts go, in characters: one in each of equal parts of the document, at a drawn place."""
        if not self._facts:
            return []
        text = passage.read(room * 8 + 80)
        ends = [end for _, end in self._tokenizer.encode_with_offsets(text)[1]]
        uniforms = self._drawing.stream("summarization", self._kind, index, "depths").uniforms(self._facts)
        positions = []
        for part, uniform in enumerate(uniforms):
            token = int((part + float(uniform)) / self._facts * deepest * room)
            begin, end = (ends[min(i, len(ends) - 1)] for i in (token, token + room // 20))
            positions.append(gap(text, begin, end) if deepest else 0)
        return positions
