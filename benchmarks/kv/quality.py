"""What a setting costs in quality: perplexity beside the full cache's, recall of needles, and the bytes held."""

from collections.abc import Mapping, Sequence
from statistics import median

from benchmarks.kv.intervals import Interval, perplexity_ratio, share
from benchmarks.kv.processes import Worker
from benchmarks.kv.readings import Readings
from benchmarks.kv.settings import Named
from benchmarks.kv.text import Needle, Window
from harness.core.tokenizer import Tokenizer

_ANSWER_TOKENS = 8  # five digits, and room for a space before them
_PEER_STEP = 32  # tokens that transformers is given at once; this project's engine gets one, as in service


def measure_perplexity(
    worker: Worker, named: Named, half: str, windows: Sequence[Window], at_once: int, readings: Readings
) -> None:
    """Read each window's prompt, then force its continuation; windows that were measured before are left out."""
    done = {one["window"] for one in readings.of("perplexity", named, half=half, of=len(windows))}
    missing = [i for i in range(len(windows)) if i not in done]
    for first in range(0, len(missing), at_once):
        group = missing[first : first + at_once]
        chosen = [windows[i] for i in group]
        opened = worker.call("open", prompts=[one.prompt for one in chosen], setting=named.setting)
        held = worker.call("held_bytes", handle=opened["handle"]) / len(group)
        found = worker.call(
            "forced",
            handle=opened["handle"],
            continuations=[one.continuation for one in chosen],
            step=_PEER_STEP,
        )
        held_after = worker.call("held_bytes", handle=opened["handle"]) / len(group)
        worker.call("close", handle=opened["handle"])
        for i, log_probs in zip(group, found, strict=True):
            readings.add(
                "perplexity",
                named,
                half=half,
                of=len(windows),
                window=i,
                held_bytes=held,
                held_bytes_after=held_after,
                log_probs=[round(value, 5) for value in log_probs],
            )


def measure_recall(
    worker: Worker,
    named: Named,
    half: str,
    needles: Mapping[int, Needle],
    seen: bool,
    tokenizer: Tokenizer,
    at_once: int,
    readings: Readings,
) -> None:
    """Ask for each needle, by number of its trial.

    seen: the question is part of the prompt that is compressed, not what follows it.
    """
    done = {one["trial"] for one in readings.of("recall", named, half=half, seen=seen)}
    missing = [i for i in needles if i not in done]
    for first in range(0, len(missing), at_once):
        group = missing[first : first + at_once]
        chosen = [needles[i] for i in group]
        prompts = [one.context + one.question if seen else one.context for one in chosen]
        handle = worker.call("open", prompts=prompts, setting=named.setting)["handle"]
        if not seen:
            questions = [one.question for one in chosen]
            worker.call("forced", handle=handle, continuations=questions, step=max(map(len, questions)))
        answers = worker.call("greedy", handle=handle, tokens=_ANSWER_TOKENS)
        worker.call("close", handle=handle)
        for i, needle, ids in zip(group, chosen, answers, strict=True):
            answer = tokenizer.decode(ids)
            right = answer.lstrip().startswith(needle.code)
            readings.add("recall", named, half=half, seen=seen, trial=i, right=right, answer=answer)


def ratio_to_full(readings: Readings, named: Named, full: Named, half: str) -> Interval | None:
    """Perplexity over the full cache's, over the windows that both were measured on."""
    ours, theirs = (
        {(one["of"], one["window"]): one["log_probs"] for one in readings.of("perplexity", which, half=half)}
        for which in (named, full)
    )
    both = sorted(ours.keys() & theirs.keys())
    if len(both) < 2:
        return None
    return perplexity_ratio([ours[i] for i in both], [theirs[i] for i in both])


def recall(readings: Readings, named: Named, half: str, seen: bool | None = None) -> Interval | None:
    """Share of right answers; seen None: of all trials."""
    like = {} if seen is None else {"seen": seen}
    found = [one["right"] for one in readings.of("recall", named, half=half, **like)]
    return share(sum(found), len(found)) if found else None


def held_bytes(readings: Readings, named: Named, half: str) -> float | None:
    """After the prompt; median over windows."""
    found = [one["held_bytes"] for one in readings.of("perplexity", named, half=half)]
    return median(found) if found else None
