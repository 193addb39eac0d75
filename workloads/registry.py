"""From a workload's name to a plan: `draw_plan` is all that the rest of the harness needs of this room."""

from collections.abc import Callable
from importlib import import_module
from typing import cast

from harness.core.errors import UsageError
from harness.core.requests import AnswerOf, Plan, PlannedRequest
from harness.core.tokenizer import Tokenizer
from workloads.corpus import read_corpus
from workloads.drawing import Drawing, check_count
from workloads.file import replay, save_plan
from workloads.options import FileOptions, TraceWorkloadOptions, WorkloadOptions
from workloads.pool import split_pools
from workloads.sharing import with_shared_prefixes
from workloads.trace import rows_for_sessions

# A workload is a module with draw(options, drawing) -> Plan, imported when it is asked for.
_MODULES = {
    "chat": "workloads.chat",
    "rag": "workloads.rag",
    "summarization": "workloads.summarization",
    "trace": "workloads.trace",
}


def draw_plan(
    options: WorkloadOptions, tokenizer: Tokenizer, seed: int, warmup: int, context_length: int
) -> Plan:
    """Draw (or replay) the plan; the same arguments and corpus give the same bytes on any machine.

    warmup: warm-up requests, whose prompts share nothing with measured ones beyond system prompt and
        template.
    context_length: most tokens the engine lets one request hold. The plan is written to `options.save` where
    that is set. Raises UsageError for anything in the options that cannot be honoured.
    """
    check_count("load.warmup", warmup, least=0)
    if options.name == "file":
        plan = replay(cast(FileOptions, options), tokenizer, warmup)
    elif options.name in _MODULES:
        plan = _drawn(options, tokenizer, seed, warmup, context_length)
    else:
        raise UsageError(
            f"workload={options.name} is unknown. Choose one of {', '.join(sorted((*_MODULES, 'file')))}."
        )
    check_context(plan, context_length)
    if options.save:
        save_plan(plan, options.save)
    return plan


def recorded_requests(options: WorkloadOptions) -> tuple[int, ...] | None:
    """How many requests of a recorded trace its first session takes, its first two, and so on to all of them; None
    where as many are drawn as one likes.

    Raises UsageError for a trace that cannot be read.
    """
    if not isinstance(options, TraceWorkloadOptions):
        return None
    return rows_for_sessions(options)


def _drawn(
    options: WorkloadOptions, tokenizer: Tokenizer, seed: int, warmup: int, context_length: int
) -> Plan:
    if options.history not in ("scripted", "real"):
        raise UsageError(f"workload.history={options.history} is unknown. Choose scripted or real.")
    corpus = read_corpus(options.corpus)
    measured, reserve = split_pools(corpus, tokenizer.special_texts)
    drawing = Drawing(tokenizer, seed, warmup, context_length, corpus, measured, reserve)
    draw: Callable[[WorkloadOptions, Drawing], Plan] = import_module(_MODULES[options.name]).draw
    plan = draw(options, drawing)
    sources = {
        "corpus": corpus.name,
        "corpus_sha256": corpus.sha256(),
        "corpus_documents": len(corpus.documents),
        "corpus_characters": sum(len(document.text) for document in corpus.documents),
        **plan.sources,
    }
    return Plan(plan.workload, plan.seed, with_shared_prefixes(plan.requests), plan.warmup, sources)


def check_context(plan: Plan, context_length: int) -> None:
    """Raise UsageError where a request could come to hold more than `context_length` tokens."""
    sessions: dict[tuple[str, int], list[PlannedRequest]] = {}
    for phase, requests in (("measured", plan.requests), ("warmup", plan.warmup)):
        for request in requests:
            turns = sessions.setdefault((phase, request.session), [])
            turns.append(request)
            prompt = _longest_prompt(request, turns)
            if prompt + request.max_output_tokens > context_length:
                raise UsageError(
                    f"A {phase} request can come to {prompt} prompt + {request.max_output_tokens} "
                    f"output tokens = {prompt + request.max_output_tokens}, more than "
                    f"backend.context_length={context_length}. "
                    "Lower workload.prompt_tokens or workload.output_tokens, or raise backend.context_length."
                )


def _longest_prompt(request: PlannedRequest, turns: list[PlannedRequest]) -> int:
    """With real history the earlier answers can be as long as they were allowed to be."""
    if not request.segments:
        return request.prompt_tokens
    answers = {turn.turn: turn.max_output_tokens for turn in turns}
    return sum(answers[part.turn] if isinstance(part, AnswerOf) else len(part) for part in request.segments)
