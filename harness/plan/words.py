"""A plan in sentences and labelled figures, the same on the terminal and on the page."""

from collections.abc import Sequence

from harness.plan.measured import TITLES, Comparison, typical_ratio
from harness.plan.planning import Plan
from harness.plan.precision import Precision
from harness.plan.roofline import Speeds
from harness.plan.setting import Setting
from harness.report.values import MISSING, duration, memory, money, number, percent

_MS = 1000


def title(plan: Plan) -> str:
    """What is planned."""
    return f"{plan.setting.geometry.name} on {devices(plan.setting)}"


def devices(setting: Setting) -> str:
    """4 × NVIDIA L4."""
    count = f"{setting.devices} × " if setting.devices > 1 else ""
    return count + setting.hardware.title


def verdict(plan: Plan) -> str:
    """Whether the wish fits, in one sentence."""
    users = f"{plan.wish.users:,} {'user' if plan.wish.users == 1 else 'users'}"
    wish = f"{users} × {plan.wish.context:,} tokens"
    if plan.setting.kv_room <= 0:
        return f"{wish} do not fit: the weights alone are more than an engine may fill."
    return f"{wish} {'fit' if plan.fits else 'do not fit'}."


def balance(plan: Plan) -> str:
    """What is needed against what there is."""
    s, wish = plan.setting, plan.wish
    kv = wish.users * s.kv_bytes(wish.context)
    return (
        f"Needed: {memory(s.needed_bytes(wish.users, wish.context))}, of which weights {memory(s.weight_bytes)} and "
        f"KV {memory(kv)}. Usable: {memory(s.usable_bytes)} of {memory(s.memory_bytes)}."
    )


def limits(plan: Plan) -> str:
    """The most users and the longest context."""
    wish = plan.wish
    longest = f"{plan.longest_context:,} tokens" if plan.longest_context else "none"
    if plan.longest_context == plan.setting.geometry.context_length:
        longest += " (the model's limit)"
    return (
        f"Most users at {wish.context:,} tokens: {plan.most_users:,}. "
        f"Longest context for {wish.users:,}: {longest}."
    )


def facts(plan: Plan, comparisons: Sequence[Comparison]) -> list[tuple[str, str, str]]:
    """Label, value and what it is made of."""
    s, wish, g = plan.setting, plan.wish, plan.setting.geometry
    kv = wish.users * s.kv_bytes(wish.context)
    active = f", {billions(g.active_parameters)} active" if g.experts else ""
    found = [
        (
            "weights",
            memory(s.weight_bytes),
            f"{billions(g.parameters)} parameters{active}, {precision(s.weights)}",
        ),
        ("KV per token", memory(s.kv_bytes_per_token), f"{precision(s.kv)}{_window(s)}"),
        ("KV per request", memory(s.kv_bytes(wish.context)), f"{wish.context:,} tokens, {s.policy.title}"),
        ("KV of all", memory(kv), f"{percent(kv / (kv + s.weight_bytes))} of weights and KV"),
    ]
    if plan.speeds:
        found += _speed_facts(plan.speeds, plan, comparisons)
    return found


def _speed_facts(bounds: Speeds, plan: Plan, comparisons: Sequence[Comparison]) -> list[tuple[str, str, str]]:
    def measured(name: str, shown: str) -> str:
        return f"; as measured: {shown}" if typical_ratio(comparisons, name) is not None else ""

    from harness.plan.measured import expected

    likely = expected(bounds, comparisons)
    waits = f", limited by {bounds.limited_by}" if bounds.limited_by else ""
    found = [
        (
            "TTFT, at least",
            seconds(bounds.ttft_s),
            f"a prompt of {bounds.prompt_tokens:,} alone{measured('ttft_s', seconds(likely.ttft_s))}",
        ),
        (
            "TPOT, at least",
            seconds(bounds.tpot_s),
            f"{bounds.users:,} users; a step alone {seconds(bounds.step_s)}{waits}"
            f"{measured('tpot_s', seconds(likely.tpot_s))}",
        ),
        (
            "tokens/s, at most",
            number(bounds.tokens_per_s),
            f"{number(bounds.requests_per_s)} queries/s of {bounds.output_tokens:,} tokens"
            f"{measured('tokens_per_s', number(likely.tokens_per_s))}",
        ),
    ]
    if plan.cost:
        found.append(
            ("cost, at least", cost(plan.cost["per_million_output_tokens"], plan), _cost_words(plan))
        )
    return found


def _cost_words(plan: Plan) -> str:
    price = f"{plan.setting.price_per_hour:.4g} {plan.cost['currency']} an hour"
    query, user = (cost(plan.cost[key], plan) for key in ("per_query", "per_user_hour"))
    return f"a million tokens; {query} a query, {user} a user-hour, at {price}"


def cost(amount: float | None, plan: Plan) -> str:
    """An amount with its currency."""
    return MISSING if amount is None else f"{money(amount)} {plan.setting.hardware.currency}"


def comparison_lines(comparisons: Sequence[Comparison]) -> list[str]:
    """How far the roofline was off, a sentence a run."""
    lines = []
    for one in comparisons:
        parts = []
        for name, title in TITLES.items():
            calculated, found = one.figures[name]
            ratio = one.ratio(name)
            if ratio is not None:
                shown = memory if name == "kv_bytes" else number if name == "tokens_per_s" else seconds
                parts.append(f"{title} {shown(found)}, {number(ratio)} × the calculated {shown(calculated)}")
        what = "; ".join(parts) or "nothing to compare: give the hardware's bandwidth and FLOP/s"
        beaten = " It is faster than the bound: the hardware's figures are set too low." if one.beaten else ""
        lines.append(
            f"{one.run} ({one.users} at once, {one.prompt_tokens} + {one.output_tokens} tokens): {what}.{beaten}"
        )
    return lines


def sources(plan: Plan) -> list[str]:
    """Where the figures are from."""
    hardware = plan.setting.hardware
    found = [f"Hardware: {hardware.source}."]
    if hardware.price_per_hour is not None and hardware.price_source:
        found.append(f"Price: {hardware.price_source}.")
    return found


def seconds(value: float | None) -> str:
    """A length of time with its unit."""
    return duration(None if value is None else value * _MS)


def billions(parameters: int) -> str:
    """7.25 B, 135 M."""
    return f"{number(parameters / 1e9)} B" if parameters >= 1e9 else f"{number(parameters / 1e6)} M"


def precision(one: Precision) -> str:
    """Its dtype and the scales that were counted."""
    return f"{one.dtype} with scales by {one.group}" if one.group else one.dtype


def _window(setting: Setting) -> str:
    g = setting.geometry
    if g.window is None:
        return ""
    return f"; in {g.window_layers} of {g.layers} layers only the last {g.window:,} tokens stay"
