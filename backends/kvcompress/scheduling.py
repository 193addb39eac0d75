"""What a scheduler is told beside the KV setting: headroom, bounds, what is known of classes. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.core.errors import UsageError

USUAL = "other"  # the class of requests that name none


@dataclass(frozen=True, slots=True)
class WorkloadClass:
    """What is known of a kind of request before it is read. breadth: of its prompts' attention
    (`RequestAttention.breadth`). weight: what it is given beyond what its breadth asks for."""

    breadth: float
    weight: float


@dataclass(frozen=True, slots=True)
class Scheduling:
    """headroom: tokens that every answer of no certain length is taken to grow by before another request starts.
    tokens: of the prompt that gets what it asked for, where its attention is as broad as `USUAL` prompts' is.
    least, most: bounds of what others get of what they asked for. classes: by name; `USUAL` is one of them.
    """

    headroom: int
    tokens: int
    least: float
    most: float
    classes: Mapping[str, WorkloadClass]

    def weight(self, kind: str | None, prompt: int, breadth: float | None) -> float:
        """What a budget asked for is multiplied by. prompt: its tokens. breadth: None as long as it is not measured.

        Proportional to the share of the prompt's entries that hold most of its attention: their number grows with
        the root of the length, so the share falls with it.
        """
        usual, known = self.classes[USUAL], self.classes[USUAL if kind is None else kind]
        broad = (known.breadth if breadth is None else breadth) / usual.breadth
        return min(self.most, max(self.least, broad * (self.tokens / prompt) ** 0.5 * known.weight))


def scheduling_of(wanted: Mapping[str, Any]) -> Scheduling:
    """From the options; raises UsageError for what cannot be."""
    classes = {name: _class(name, known) for name, known in wanted["classes"].items()}
    found = Scheduling(**{**wanted, "classes": classes})
    if USUAL not in classes:
        raise UsageError(
            f"backend.scheduling.classes lacks {USUAL}, the class of requests that name none. Add it."
        )
    if any(one.breadth <= 0 or one.weight <= 0 for one in classes.values()):
        raise UsageError("backend.scheduling.classes: breadth and weight are above 0.")
    if found.tokens < 1:
        raise UsageError("backend.scheduling.tokens is at least 1.")
    if not 0 < found.least <= 1 <= found.most:
        raise UsageError(
            "backend.scheduling.least is above 0 and at most 1, backend.scheduling.most at least 1."
        )
    if found.headroom < 0:
        raise UsageError("backend.scheduling.headroom is at least 0.")
    return found


def _class(name: str, known: Mapping[str, Any]) -> WorkloadClass:
    if set(known) != {"breadth", "weight"} or not all(
        isinstance(value, int | float) for value in known.values()
    ):
        raise UsageError(
            f"backend.scheduling.classes.{name} needs two numbers, breadth and weight, and nothing else. "
            f"For example backend.scheduling.classes.{name}.weight=1.0."
        )
    return WorkloadClass(**known)


def check_class(kind: object, scheduling: Scheduling) -> None:
    """Raises UsageError, naming the choices, for a class that is not known."""
    if kind is not None and (not isinstance(kind, str) or kind not in scheduling.classes):
        raise UsageError(f"kv.class={kind} is unknown. Choose one of {', '.join(scheduling.classes)}.")
