"""What the tables say of a request beside what came of it; kept on disk while a run lasts, prompts left out."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Asked:
    """Of a planned request what the tables hold; see `PlannedRequest`."""

    index: int
    session: int
    turn: int
    prompt_tokens: int
    output_tokens: int | None
    expected: tuple[str, ...]
    tags: dict[str, Any]
