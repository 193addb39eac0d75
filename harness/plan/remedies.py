"""What would make a wish fit that does not, and how far each change alone goes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from harness.core.errors import UsageError
from harness.plan.policy import Policy
from harness.plan.precision import Precision
from harness.plan.setting import Hardware, Setting, largest

_MOST_DEVICES = 64
_FEWEST_KEPT = 16  # tokens: below that a cache holds no more than the attention sinks and a few words


@dataclass(frozen=True)
class Remedy:
    """One change. overrides: what to type for it. users, context: the most it allows, the other as wished.

    enough: whether the wish fits with it.
    """

    title: str
    overrides: str
    users: int
    context: int
    enough: bool


def remedies(setting: Setting, users: int, context: int, cards: Sequence[Hardware]) -> list[Remedy]:
    """Changes from the cheapest to the dearest; those that change nothing for the better are left out."""
    found = list(_smaller_wishes(setting, users, context))
    for title, overrides, changed in _changes(setting, users, context, cards):
        most, longest = changed.most_users(context), changed.longest_context(users)
        if most > setting.most_users(context) or longest > setting.longest_context(users):
            found.append(Remedy(title, overrides, most, longest, changed.fits(users, context)))
    return found


def _smaller_wishes(setting: Setting, users: int, context: int) -> Iterator[Remedy]:
    most, longest = setting.most_users(context), setting.longest_context(users)
    if most:
        yield Remedy("fewer users", f"users={most}", most, context, True)
    if longest:
        yield Remedy("a shorter context", f"context={longest}", users, longest, True)


def _changes(
    setting: Setting, users: int, context: int, cards: Sequence[Hardware]
) -> Iterator[tuple[str, str, Setting]]:
    """Title, overrides and the changed setting."""
    kv, weights = _smaller(setting.kv, ("fp8", "int4")), _smaller(setting.weights, ("fp8", "int4"))
    for precision in kv:
        yield f"{precision.dtype} KV cache", f"kv_dtype={precision.dtype}", replace(setting, kv=precision)
    for precision in weights:
        changed = replace(setting, weights=precision)
        yield f"{precision.dtype} weights", f"weight_dtype={precision.dtype}", changed
    if kv and weights:
        both = replace(setting, kv=kv[0], weights=weights[-1])
        title = f"{kv[0].dtype} KV and {weights[-1].dtype} weights"
        yield title, f"kv_dtype={kv[0].dtype} weight_dtype={weights[-1].dtype}", both
    yield from _budgets(setting, users, context)
    yield from _larger_card(setting, users, context, cards)
    yield from _more_devices(setting, users, context)


def _budgets(setting: Setting, users: int, context: int) -> Iterator[tuple[str, str, Setting]]:
    """The largest budget with which the wish fits."""

    def kept(tokens: int) -> Setting:
        return replace(setting, policy=Policy("tokens", tokens=tokens))

    most = setting.policy.kept(context)
    tokens = largest(lambda tokens: kept(tokens).fits(users, context), most)
    if _FEWEST_KEPT <= tokens < most:
        share = f"{100 * tokens / context:.0f} %"
        yield f"keep {tokens:,} tokens ({share})", f"policy=tokens policy.tokens={tokens}", kept(tokens)


def _larger_card(
    setting: Setting, users: int, context: int, cards: Sequence[Hardware]
) -> Iterator[tuple[str, str, Setting]]:
    """The smallest card with which the wish fits, else the largest there is."""
    larger = [card for card in cards if card.memory_bytes > setting.hardware.memory_bytes]
    enough = [card for card in larger if replace(setting, hardware=card).fits(users, context)]
    for card in (enough or larger[-1:])[:1]:
        yield f"a larger card: {card.name}", f"hardware={card.name}", replace(setting, hardware=card)


def _more_devices(setting: Setting, users: int, context: int) -> Iterator[tuple[str, str, Setting]]:
    """The fewest devices, doubled each time, with which the wish fits, else the most whose split is even."""
    last, count = None, setting.devices * 2
    while count <= _MOST_DEVICES:
        try:
            last = replace(setting, devices=count)
        except UsageError:
            break
        if last.fits(users, context):
            break
        count *= 2
    if last is not None:
        yield f"{last.devices} devices", f"devices={last.devices}", last


def _smaller(now: Precision, dtypes: Sequence[str]) -> list[Precision]:
    """Precisions without scales that take less than now."""
    return [one for one in map(Precision, dtypes) if one.bytes_per_value < now.bytes_per_value]
