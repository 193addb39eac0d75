"""Retrieval-augmented questions: popular chunks first, then a question that one of the drawn chunks answers.

Why prefixes are shared: popularity follows Zipf's law, so few chunks are in many prompts, and with
order=popular_first the drawn chunks stand in order of popularity, so that prompts which have their most
popular chunks in common begin alike. order=as_drawn is what a retriever that sorts by relevance sends:
prefixes are then shared only where the same chunk comes first by chance. How much is shared is in each
request's tags.
"""

from harness.core.errors import UsageError
from harness.core.requests import Plan, PlannedRequest
from harness.core.tokenizer import Message
from workloads.chunks import Chunk, build_store, draw_ranks, popularity
from workloads.drawing import Drawing, check_count, system_message, token_depth, too_short
from workloads.facts import codes_in
from workloads.fit import Prompt, PromptTooShort, fit, render
from workloads.lengths import Distribution, OutputLength, parse_length, parse_output
from workloads.options import RagOptions
from workloads.pool import TextPool
from workloads.streams import Stream

_ORDERS = ("popular_first", "as_drawn")
_FURTHER = "Further context:\n"


def draw(options: RagOptions, drawing: Drawing) -> Plan:
    """Build the store, then draw a question for each request; warm-up asks about a store of its own."""
    k = check_count("workload.chunks_per_query", options.chunks_per_query)
    count = check_count("workload.chunks", options.chunks, least=k)
    chunk_tokens = check_count("workload.chunk_tokens", options.chunk_tokens)
    if options.order not in _ORDERS:
        raise UsageError(f"workload.order={options.order} is unknown. Choose one of {', '.join(_ORDERS)}.")
    if not 0 <= options.zipf_exponent <= 10:
        raise UsageError(
            f"workload.zipf_exponent={options.zipf_exponent}: use a number from 0 (all alike) to 10."
        )
    length = (
        None
        if options.prompt_tokens is None
        else parse_length("workload.prompt_tokens", options.prompt_tokens)
    )
    output = parse_output("workload.output_tokens", options.output_tokens)
    system = system_message(options.system_prompt)
    wanted = check_count("workload.requests", options.requests)

    taken = codes_in(drawing.measured.text) | codes_in(drawing.reserve.text)
    store = build_store(drawing, count, chunk_tokens, taken)
    questions = _Questions(drawing, system, length, output, drawing.measured, "measured")
    probabilities = popularity(count, options.zipf_exponent)
    for i in range(wanted):
        drawn = draw_ranks(drawing.stream("rag", "ranks", i), probabilities, k)
        questions.ask(i, [store[rank] for rank in _ordered(drawn, options.order)])

    warmup = _Questions(drawing, system, length, output, drawing.reserve, "warmup")
    if drawing.warmup:
        fresh = build_store(drawing, drawing.warmup * k, chunk_tokens, taken, warmup=True)
        for i in range(drawing.warmup):
            warmup.ask(i, fresh[i * k : (i + 1) * k])
    return Plan("rag", drawing.seed, questions.finish(), warmup.finish())


def _ordered(ranks: list[int], order: str) -> list[int]:
    return sorted(ranks) if order == "popular_first" else ranks


class _Questions:
    """Turns drawn chunks into requests, and remembers the longest shortfall to tell of it once."""

    def __init__(
        self,
        drawing: Drawing,
        system: list[Message],
        length: Distribution | None,
        output: OutputLength,
        pool: TextPool,
        kind: str,
    ) -> None:
        self._drawing = drawing
        self._system = system
        self._length = length
        self._output = output
        self._pool = pool
        self._kind = kind
        self._requests: list[PlannedRequest] = []
        self._shortfalls: list[int] = []

    def ask(self, index: int, chunks: list[Chunk]) -> None:
        """Ask for the fact of one of these chunks; the facts of the others are its distractors."""
        stream = self._drawing.stream("rag", self._kind, index)
        asked = stream.below(len(chunks))
        try:
            prompt = self._prompt(index, chunks, chunks[asked].fact.question, stream)
        except PromptTooShort as error:
            self._shortfalls.append(error.smallest)
            return
        tokens, most = self._drawing.output(self._output, stream, prompt)
        self._requests.append(
            PlannedRequest(
                index=index,
                prompt_ids=prompt.ids,
                messages=prompt.messages,
                output_tokens=tokens,
                max_output_tokens=most,
                session=index,
                expected=(chunks[asked].fact.code,),
                tags={
                    "depth": token_depth(self._drawing.tokenizer, prompt, chunks[asked].fact.sentence),
                    "depth_in_chunk": chunks[asked].depth,
                    "answer_chunk": asked,
                    "chunks": ",".join(str(chunk.rank) for chunk in chunks),
                },
            )
        )

    def finish(self) -> tuple[PlannedRequest, ...]:
        """The requests. Raises UsageError where a wanted length was too short for its chunks."""
        if self._shortfalls:
            smallest = max(self._shortfalls)
            wanted = 0 if self._length is None else int(self._length.low)
            raise too_short(wanted, smallest)
        return tuple(self._requests)

    def _prompt(self, index: int, chunks: list[Chunk], question: str, stream: Stream) -> Prompt:
        """Chunks first, so that they can be shared; then what fills up to the length, then the question."""
        documents = "".join(f"Document {chunk.rank + 1}:\n{chunk.text}\n\n" for chunk in chunks)
        ending = f"Answer from the documents above. {question}"

        def messages(further: str) -> list[Message]:
            return [*self._system, {"role": "user", "content": documents + further + ending}]

        def build(filler: str) -> list[Message]:
            return messages(f"{_FURTHER}{filler}\n\n")

        if self._length is None:
            return render(self._drawing.tokenizer, messages(""))
        passage = self._pool.passage(self._drawing.stream("rag", self._kind, index, "text"))
        return fit(self._drawing.tokenizer, build, passage.read, self._length.draw_int(stream))
