"""Recall of planted facts: can the model still say what stood far back, through the KV cache that is judged?

A sentence that the text does not imply ("The access code of project … is 12345.") stands in real text at a given
depth; the prompt ends with the same words up to the code. Two figures: whether the code is what the model writes
(greedy, all five digits), and the log-probability of the code given the prompt, which still tells settings apart
where every answer is right or every answer is wrong. Method: needle in a haystack (Kamradt 2023), with several
needles of which one is asked for where `facts` > 1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.core.errors import UsageError
from harness.core.tokenizer import Tokenizer
from harness.quality.options import RecallOptions
from harness.quality.scoring import shares
from harness.quality.texts import drawn_once
from workloads.facts import Fact, codes_in, draw_facts
from workloads.streams import Stream

# Takes the ids of a prompt and a count; returns the text that goes on.
Continue = Callable[[Sequence[int], int], str]
# Takes ids; returns log p of each given those before it (the first means nothing), or is None without a route.
LogProbs = Callable[[Sequence[int]], Sequence[float | None]] | None

_ANSWER_TOKENS = 8  # five digits, and room for a space before them
_LONGEST_STEP_BACK = 64  # tokens looked through for the end of a sentence before the wanted depth
_SENTENCE_ENDS = (".", "\n", ":", ";")


@dataclass(frozen=True, slots=True)
class Item:
    """One prompt. code_ids: the answer as tokens, to follow `ids`. depth: where the fact really stands, 0 to 1.

    facts: how many stand in it.
    """

    ids: tuple[int, ...]
    code_ids: tuple[int, ...]
    code: str
    length: int
    wanted_depth: float
    depth: float
    facts: int = 1


def check_recall(options: RecallOptions, longest: int) -> None:
    """Raise UsageError for options of which no item can be made, or none that fits `longest` tokens."""
    for key in ("trials", "facts"):
        if getattr(options, key) < 1:
            raise UsageError(f"quality.recall.{key}={getattr(options, key)} must be at least 1.")
    if not options.lengths or not options.depths:
        raise UsageError("quality.recall.lengths and quality.recall.depths need at least one value each.")
    if any(not 0 <= depth <= 1 for depth in options.depths):
        raise UsageError(f"quality.recall.depths={list(options.depths)}: depths run from 0 to 1.")
    if (most := max(options.lengths)) + _ANSWER_TOKENS > longest:
        raise UsageError(
            f"quality.recall.lengths={list(options.lengths)}: {most} tokens and the answer do not fit a context "
            f"of {longest}. Use at most {longest - _ANSWER_TOKENS}, or raise backend.context_length."
        )


@drawn_once
def draw_items(options: RecallOptions, tokenizer: Tokenizer, text: str, seed: int) -> Sequence[Item]:
    """Every length × depth × trial, each of exactly its length in tokens, from real `text`.

    An item does not depend on the engine, nor on how many others are drawn. Raises UsageError where a length has
    no room for its facts and question, or the text is too short.
    """
    haystack = tokenizer.encode(text)
    taken = codes_in(text)
    items = []
    for length in options.lengths:
        for trial in range(options.trials):
            stream = Stream(seed, "recall", length, trial)
            facts = draw_facts(stream, options.facts, set(taken))
            begin = stream.uniform()
            items += [
                _item(options, tokenizer, haystack, begin, facts, length, depth) for depth in options.depths
            ]
    return items


def _item(
    options: RecallOptions,
    tokenizer: Tokenizer,
    haystack: list[int],
    begin: float,
    facts: list[Fact],
    length: int,
    depth: float,
) -> Item:
    asked = facts[0]
    head = tokenizer.encode(f"Remember this question: {asked.question}\n\n") if options.question_first else []
    stem = asked.sentence.removesuffix(f" {asked.code}.")
    tail = tokenizer.encode(f"\n\nQuestion: {asked.question}\nAnswer: {stem}")
    code_ids = tokenizer.encode(f"\n{stem} {asked.code}")[len(tokenizer.encode(f"\n{stem}")) :]
    needles = [tokenizer.encode(f"\n{fact.sentence}\n") for fact in facts]
    room = length - len(head) - len(tail) - sum(map(len, needles))
    if room < 1:
        raise UsageError(
            f"quality.recall.lengths: {length} tokens have no room for {len(facts)} facts, the question and a "
            f"text. Use at least {length - room + 1}."
        )
    if room > len(haystack):
        raise UsageError(f"quality.recall.lengths: the text has {len(haystack)} tokens, {room} are needed.")
    first = int(begin * (len(haystack) - room + 1))
    filler = haystack[first : first + room]
    # The fact that is asked for stands at the wanted depth, the others spread evenly over the text.
    places = [(_sentence_end(tokenizer, filler, depth), 0)]
    places += [(_sentence_end(tokenizer, filler, i / len(facts)), i) for i in range(1, len(facts))]
    body: list[int] = []
    done, at = 0, 0
    for position, which in sorted(places):
        body += filler[done:position]
        if which == 0:
            at = len(body)
        body += needles[which]
        done = position
    body += filler[done:]
    ids = (*head, *body, *tail)
    stands = at / max(1, len(body) - len(needles[0]))
    return Item(ids, tuple(code_ids), asked.code, length, depth, stands, len(facts))


def _sentence_end(tokenizer: Tokenizer, filler: list[int], depth: float) -> int:
    """The position at `depth` of the filler, or a little before it where a sentence ends."""
    position = round(depth * len(filler))
    for back in range(min(position, _LONGEST_STEP_BACK)):
        if (
            tokenizer.decode(filler[position - back - 1 : position - back])
            .rstrip(" ")
            .endswith(_SENTENCE_ENDS)
        ):
            return position - back
    return position


def recall(
    items: Sequence[Item],
    go_on: Continue,
    log_probs: LogProbs,
    on_item: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, Any]:
    """Ask for every item and summarise; `on_item(done, of)` is told the progress.

    Returns recall (0 to 1) with its 95 % interval (Wilson 1927), recall_chance (1 / facts by copying any of several;
    0 with one fact: nobody guesses five digits),
    recall_log_prob (mean over items of the code's summed natural log-probability; None without a route),
    recall_items, recall_right, and both figures by length and depth.
    """
    right, sums = [], []
    for done, item in enumerate(items):
        on_item(done, len(items))
        right.append(go_on(item.ids, _ANSWER_TOKENS).lstrip().startswith(item.code))
        if log_probs is not None:
            values = log_probs((*item.ids, *item.code_ids))[
                len(item.ids) : len(item.ids) + len(item.code_ids)
            ]
            sums.append(float(np.sum(np.asarray(values, dtype=np.float64))))
    on_item(len(items), len(items))
    return shares("recall", right, chance=float(np.mean([_chance(item) for item in items]))) | {
        "recall_log_prob": float(np.mean(sums)) if sums else None,
        "recall_cells": [
            {
                "length": length,
                "depth": depth,
                "right": sum(right[i] for i in members),
                "of": len(members),
                "log_prob": float(np.mean([sums[i] for i in members])) if sums else None,
            }
            for (length, depth), members in _cells(items).items()
        ],
        "recall_log_probs": sums or None,
    }


def _chance(item: Item) -> float:
    return 1 / item.facts if item.facts > 1 else 0.0


def _cells(items: Sequence[Item]) -> dict[tuple[int, float], list[int]]:
    cells: dict[tuple[int, float], list[int]] = {}
    for i, item in enumerate(items):
        cells.setdefault((item.length, item.wanted_depth), []).append(i)
    return cells
