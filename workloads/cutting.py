"""Prompts of an exact length cut from text that was encoded once, for plans of tens of thousands of them.

`workloads.fit` encodes every prompt several times. Here the ids in the middle of a prompt are those of the running
text; only its two ends, where they meet a number and the chat template, are encoded again and must fall into step
with them. Where they do not, there is no cut, and `fit` makes the prompt.
"""

from dataclasses import dataclass

import numpy as np

from harness.core.tokenizer import Message, Tokenizer
from workloads.corpus import Document
from workloads.fit import Prompt
from workloads.pool import TextPool

MOST_CHARACTERS = 4_000_000  # of a corpus: about a million tokens; encoding all of a large one takes minutes
_HEAD, _TAIL, _STEP = 16, 16, 4  # tokens encoded again at each end, and how many of them must be in step
_PADS = (" and", " the", " of", " to", " in", " a")
_MARK = "\u241e"


def bounded(pool: TextPool) -> TextPool:
    """The pool, or its beginning where it is very long."""
    if len(pool.text) <= MOST_CHARACTERS:
        return pool
    return TextPool([Document("beginning", pool.text[:MOST_CHARACTERS])])


@dataclass(frozen=True, slots=True)
class _Template:
    """What the chat template puts around a user's only message."""

    before: str
    after: str
    before_ids: list[int]
    after_ids: list[int]


class Cutter:
    """Cuts prompts from one pool. The text goes round once, so that a prompt may be as long as the pool."""

    def __init__(self, tokenizer: Tokenizer, pool: TextPool) -> None:
        self._tokenizer = tokenizer
        self._text = f"{pool.text}\n\n{pool.text}"
        ids, offsets = tokenizer.encode_with_offsets(self._text)
        self._ids = np.array(ids, dtype=np.int64)
        self._starts, self._ends = np.array(offsets, dtype=np.int64).reshape(-1, 2).T
        self._template = self._try_template()

    def cut(self, begin: str, start: int, target: int) -> Prompt | None:
        """`begin` and the text from character `start` on, `target` tokens in all once rendered; None where this
        place or length allows no cut."""
        template = self._template
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        if template is None or first + 2 * _HEAD >= len(self._ids):
            return None
        for middle in range(first + _HEAD, first + 2 * _HEAD, _STEP):
            head = self._tokenizer.encode(begin + self._text[start : self._ends[middle - 1]])
            if head[-_STEP:] == self._ids[middle - _STEP : middle].tolist():
                break
        else:
            return None
        wanted = target - len(template.before_ids) - len(head) - len(template.after_ids)
        if wanted < _TAIL + len(_PADS) or middle + wanted > len(self._ids):
            return None
        for pads in range(len(_PADS)):
            last = middle + wanted - pads
            if (end := self._end(last, "".join(_PADS[:pads]), template)) is not None:
                content = f"{begin}{self._text[start : self._ends[last - 1]]}{''.join(_PADS[:pads])}"
                ids = (*template.before_ids, *head, *self._ids[middle:last].tolist(), *end)
                text = f"{template.before}{content}{template.after}"
                return Prompt(({"role": "user", "content": content},), text, ids)
        return None

    def _end(self, last: int, pad: str, template: _Template) -> list[int] | None:
        """Ids of `pad` and the template's end behind token `last` - 1, if all fall into step there."""
        text = self._text[self._starts[last - _TAIL] : self._ends[last - 1]]
        if text[-1:].isspace():  # templates may strip it
            return None
        ids = self._tokenizer.encode(text + pad + template.after)
        again = ids[_TAIL - _STEP : _TAIL]
        if again != self._ids[last - _STEP : last].tolist():
            return None
        rest = ids[_TAIL:]
        words = pad.count(" ")
        in_step = len(rest) == words + len(template.after_ids) and rest[words:] == template.after_ids
        return rest if in_step else None

    def _try_template(self) -> _Template | None:
        """None where the template changes what it is given, so that text cannot be put in between."""
        message: Message = {"role": "user", "content": f"1. {_MARK}word"}
        before, found, after = self._tokenizer.render_chat([message]).partition(f"1. {_MARK}word")
        if not found or _MARK in after:
            return None
        template = _Template(before, after, self._tokenizer.encode(before), self._tokenizer.encode(after))
        whole = self._tokenizer.encode(f"{before}1. word")
        joins = whole == [*template.before_ids, *self._tokenizer.encode("1. word")]
        return template if joins else None
