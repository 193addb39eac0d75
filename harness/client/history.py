"""The helper process of chats with real history: builds a turn's body from what the engine answered before.

It runs during think times, off the measuring loop. Answers come as the raw bytes of their event streams;
token ids are those in the stream where there are any, else the tokenizer's of the text.
"""

import os
import sys
from itertools import pairwise
from pathlib import Path
from typing import IO

import orjson

from harness.client.bodies import BodyStyle
from harness.client.chunks import read_stream
from harness.client.history_link import FRAME
from harness.core.requests import AnswerOf, PlannedRequest
from harness.core.tokenizer import Tokenizer

Answer = tuple[list[int], str]


class Historian:
    """Remembers the answers of each session and builds the turn that follows.

    sessions: (request number, planned request) in order of turns. An answer ends before a closing end-of-text
    id, since the template's own closing follows it in the plan's literal ids.
    """

    def __init__(
        self, style: BodyStyle, tokenizer: Tokenizer, sessions: list[list[tuple[int, PlannedRequest]]]
    ) -> None:
        self._style = style
        self._tokenizer = tokenizer
        self._answers: dict[tuple[int, int], Answer] = {}
        self._turns: dict[int, PlannedRequest] = {}
        self._next: dict[int, int] = {}
        for session in sessions:
            self._turns.update(session)
            for (number, _), (following, _) in pairwise(session):
                self._next[number] = following

    def answer(self, number: int, stream: bytes) -> tuple[int, int, bytes] | None:
        """Take in an answer; return (next request's number, its prompt tokens, its body).

        None if nothing follows that depends on answers; an empty body if an answer it needs is missing.
        """
        request = self._turns[number]
        answer = self._read(stream)
        if answer is not None:
            self._answers[request.session, request.turn] = answer
        following = self._next.get(number)
        if following is None or not self._turns[following].segments:
            return None
        return (following, *self._build(self._turns[following]))

    def _read(self, stream: bytes) -> Answer | None:
        content = read_stream(stream)
        if content.error is not None or not (content.text or content.ids):
            return None
        ids = list(content.ids) or self._tokenizer.encode(content.text)
        while ids and ids[-1] in self._tokenizer.eos_ids:
            ids.pop()
        return ids, content.text

    def _build(self, request: PlannedRequest) -> tuple[int, bytes]:
        ids: list[int] = []
        texts: list[str] = []
        for part in request.segments:
            if not isinstance(part, AnswerOf):
                ids += part
                continue
            answer = self._answers.get((request.session, part.turn))
            if answer is None:
                return 0, b""
            ids += answer[0]
            texts.append(answer[1])
        return len(ids), self._style.body(request, ids, _with_answers(request.messages, texts))


def _with_answers(messages: tuple[dict[str, str], ...], texts: list[str]) -> list[dict[str, str]]:
    """`messages` with the last assistant messages replaced by `texts`, in order."""
    places = [at for at, message in enumerate(messages) if message.get("role") == "assistant"]
    replaced = list(messages)
    for at, text in zip(places[len(places) - len(texts) :], texts, strict=False):
        replaced[at] = {**messages[at], "content": text}
    return replaced


def _read_plan(path: Path) -> list[list[tuple[int, PlannedRequest]]]:
    """Lines of [[number, planned request as a JSON string], …], one a session."""
    with path.open("rb") as lines:
        return [
            [(number, PlannedRequest.from_json(line)) for number, line in orjson.loads(session)]
            for session in lines
        ]


def main(source: IO[bytes], sink: IO[bytes]) -> None:
    """Serve answers from `source` until it ends."""
    setup = orjson.loads(source.readline())
    os.nice(10)  # on a core shared with the measuring loop, that one goes first
    historian = Historian(
        BodyStyle(**setup["style"]),
        Tokenizer.from_folder(Path(setup["tokenizer_folder"])),
        _read_plan(Path(setup["plan"])),
    )
    sink.write(b"ready\n")
    sink.flush()
    while len(head := source.read(FRAME.size)) == FRAME.size:
        number, _, length = FRAME.unpack(head)
        built = historian.answer(number, source.read(length))
        if built is not None:
            following, tokens, body = built
            sink.write(FRAME.pack(following, tokens, len(body)) + body)
            sink.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
