"""What of an engine's output tells why it ended: its last lines without the frames of Python's tracebacks.

An engine of several processes ends with the traceback of the one that noticed ("initialisation failed, see above");
the cause stands a hundred frames before it. Without the frames both are among the last few lines.
"""

from collections.abc import Iterator

_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = (
    "During handling of the above exception",
    "The above exception was the direct cause",
)


def last_words(output: str, lines: int) -> str:
    """The last `lines` lines of `output` that are neither blank nor frames, each said once."""
    told: dict[str, None] = {}
    for line in without_frames(output.splitlines()):
        told.pop(line, None)  # said again: its last place counts
        told[line] = None
    return "\n".join(list(told)[-lines:])


def without_frames(lines: list[str]) -> Iterator[str]:
    """The lines, of each traceback only the exception it ends with, without what a logger wrote before it."""
    indent: int | None = None  # within a traceback: how much stands before its lines
    for line in lines:
        start = line.find(_TRACEBACK)
        if start >= 0:
            indent = start
            continue
        if indent is not None:
            said = line[indent:]
            if not said.strip() or said[0].isspace():
                continue
            line, indent = said, None
        if line.strip() and not any(words in line for words in _CHAINED):
            yield line.rstrip()
