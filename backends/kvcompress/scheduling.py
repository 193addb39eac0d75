"""What a scheduler is told beside the KV setting: headroom, bounds, what is known of classes. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.core.errors import UsageError

USUAL = "other"  # the class of requests that name none


@dataclass(frozen=True, slots=True)
class WorkloadClass:
    """What is known of a kind of request before it is read. entries: how many hold most of its
    prompts' attention (`RequestAttention.broad_entries`). weight: what it is given beyond what these ask for."""

    entries: float
    weight: float


@dataclass(frozen=True, slots=True)
class Scheduling:
    """headroom: tokens that every answer of no certain length is taken to grow by before another request starts.
    breadth: the usual share of a prompt's entries that hold most of its attention. least, most: a budget that was
    asked for is multiplied by the prompt's own share over the usual one, within these bounds. classes: by name;
    `USUAL` is one of them.
    """

    headroom: int
    breadth: float
    least: float
    most: float
    classes: Mapping[str, WorkloadClass]

    def weight(self, kind: str | None, prompt: int, entries: float | None) -> float:
        """What a budget asked for is multiplied by. prompt: its tokens. entries: None as long as not measured."""
        known = self.classes[USUAL if kind is None else kind]
        breadth = (known.entries if entries is None else entries) / prompt
        return min(self.most, max(self.least, breadth / self.breadth * known.weight))


def scheduling_of(wanted: Mapping[str, Any]) -> Scheduling:
    """From the options; raises UsageError for what cannot be."""
    classes = {name: WorkloadClass(**known) for name, known in wanted["classes"].items()}
    found = Scheduling(**{**wanted, "classes": classes})
    if USUAL not in classes:
        raise UsageError(
            f"backend.scheduling.classes lacks {USUAL}, the class of requests that name none. Add it."
        )
    if any(one.entries <= 0 or one.weight <= 0 for one in classes.values()):
        raise UsageError("backend.scheduling.classes: entries and weight are above 0.")
    if not 0 < found.breadth <= 1:
        raise UsageError("backend.scheduling.breadth is above 0 and at most 1.")
    if not 0 < found.least <= 1 <= found.most:
        raise UsageError(
            "backend.scheduling.least is above 0 and at most 1, backend.scheduling.most at least 1."
        )
    if found.headroom < 0:
        raise UsageError("backend.scheduling.headroom is at least 0.")
    return found


def check_class(kind: object, scheduling: Scheduling) -> None:
    """Raises UsageError, naming the choices, for a class that is not known."""
    if kind is not None and (not isinstance(kind, str) or kind not in scheduling.classes):
        raise UsageError(f"kv.class={kind} is unknown. Choose one of {', '.join(scheduling.classes)}.")
