"""A plan: what fits, how fast it could be, what it costs, and what would help where it does not fit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.core.errors import UsageError
from harness.metrics.cost import cost_summary
from harness.plan.options import PlanOptions
from harness.plan.policy import checked_policy
from harness.plan.precision import checked
from harness.plan.remedies import Remedy, remedies
from harness.plan.roofline import Speeds, speeds
from harness.plan.setting import Hardware, Setting

_SHORTEST = 1024  # tokens, of the table and the heat map
_USERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class Wish:
    """How many requests at once, tokens each may hold, and how many of them are prompt and answer."""

    users: int
    context: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Row:
    """A context length: what one request takes, and the most that fit; their bounds and cost where any fits."""

    context: int
    kv_bytes: float
    most_users: int
    speeds: Speeds | None
    cost: dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """All that is shown. speeds: at the wish, or at the most users who fit; None where none does."""

    setting: Setting
    wish: Wish
    fits: bool
    most_users: int
    longest_context: int
    speeds: Speeds | None
    cost: dict[str, Any]
    rows: list[Row]
    grid_users: list[int]
    remedies: list[Remedy]


def setting_of(options: PlanOptions) -> Setting:
    """What is planned for. Raises UsageError for whatever cannot be."""
    from harness.plan.composing import geometry_from, hardware_from

    policy = checked_policy(options.policy.name, options.policy.tokens, options.policy.fraction)
    return Setting(
        geometry=geometry_from(options.model),
        weights=checked("weight", options.weight_dtype, options.weight_group, options.weight_scale_bytes),
        kv=checked("kv", options.kv_dtype, options.kv_group, options.kv_scale_bytes),
        policy=policy,
        hardware=hardware_from(options.hardware),
        devices=options.devices,
    )


def wish_of(options: PlanOptions, setting: Setting) -> Wish:
    """The wish. Raises UsageError where lengths contradict each other or are over the model's limit."""
    for key in ("users", "output_tokens", "context", "prompt_tokens"):
        if (value := getattr(options, key)) is not None and value < 1:
            raise UsageError(f"{key}={value}: must be at least 1.")
    if options.context is None and options.prompt_tokens is None:
        raise UsageError("context=null needs prompt_tokens: a request holds its prompt and its answer.")
    output = options.output_tokens
    context = options.context or (options.prompt_tokens or 0) + output
    prompt = options.prompt_tokens or context - output
    if prompt < 1 or prompt + output > context:
        raise UsageError(
            f"context={context}: a prompt of {max(prompt, 1)} and an answer of {output} tokens are longer. "
            "Raise context, or lower prompt_tokens or output_tokens."
        )
    limit = setting.geometry.context_length
    if context > limit:
        raise UsageError(
            f"context={context}: {setting.geometry.name} was made for at most {limit} tokens. Shorten the context, "
            "or say model.config.max_position_embeddings=… if you stretch its positions."
        )
    return Wish(options.users, context, prompt, output)


def plan(setting: Setting, wish: Wish, cards: Sequence[Hardware]) -> Plan:
    """Calculate it. cards: what a larger card may be."""
    fits = setting.fits(wish.users, wish.context)
    most = setting.most_users(wish.context)
    bounds = _speeds(setting, min(wish.users, most), wish.prompt_tokens, wish.output_tokens)
    return Plan(
        setting=setting,
        wish=wish,
        fits=fits,
        most_users=most,
        longest_context=setting.longest_context(wish.users),
        speeds=bounds,
        cost=cost_of(setting, bounds),
        rows=[_row(setting, wish, context) for context in contexts_of(setting, wish)],
        grid_users=sorted({*_USERS, wish.users}),
        remedies=[] if fits else remedies(setting, wish.users, wish.context, cards),
    )


def contexts_of(setting: Setting, wish: Wish) -> list[int]:
    """Powers of two from _SHORTEST to the model's limit, the wish and the limit themselves among them."""
    limit = setting.geometry.context_length
    powers = [1 << exponent for exponent in range(_SHORTEST.bit_length() - 1, limit.bit_length())]
    return sorted({*(power for power in powers if power <= limit), limit, wish.context})


def cost_of(setting: Setting, bounds: Speeds | None) -> dict[str, Any]:
    """Cost by the common definition (docs/metrics.md) at the roofline's throughput; {} without price or speed."""
    if bounds is None or bounds.tokens_per_s is None:
        return {}
    rates = {"output_tokens_per_s": bounds.tokens_per_s, "requests_per_s": bounds.requests_per_s}
    return cost_summary(rates, setting.price_per_hour, setting.hardware.currency, bounds.users)


def _row(setting: Setting, wish: Wish, context: int) -> Row:
    """The same answer length where it leaves room for a prompt, else half of the context."""
    most = setting.most_users(context)
    output = min(wish.output_tokens, context // 2)
    bounds = _speeds(setting, most, context - output, output)
    return Row(context, setting.kv_bytes(context), most, bounds, cost_of(setting, bounds))


def _speeds(setting: Setting, users: int, prompt_tokens: int, output_tokens: int) -> Speeds | None:
    return speeds(setting, users, prompt_tokens, output_tokens) if users else None
