"""Writing a plan: plan.json for programs, and plan.html that needs nothing else."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from harness.core.errors import HarnessError
from harness.plan import words
from harness.plan.figure import heat_map
from harness.plan.measured import TITLES, Comparison, typical_ratio
from harness.plan.planning import Plan
from harness.report.values import memory, number

SCHEMA = 1
_HERE = Path(__file__).parent


def write(plan: Plan, comparisons: Sequence[Comparison], folder: Path) -> Path:
    """Write folder/plan.json and folder/plan.html; returns the path of the latter.

    Raises HarnessError where the folder cannot be written.
    """
    html = _page(plan, comparisons)
    data = orjson.dumps(as_record(plan, comparisons), option=orjson.OPT_INDENT_2)
    path = folder / "plan.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "plan.json").write_bytes(data + b"\n")
        path.write_text(html, encoding="utf-8")
    except OSError as error:
        raise HarnessError(
            f"The plan cannot be written to {folder} ({error.strerror or error}). Name another out=FOLDER."
        ) from error
    return path


def as_record(plan: Plan, comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """The plan as plain values: bytes, seconds, tokens."""
    s, wish = plan.setting, plan.wish
    return {
        "schema": SCHEMA,
        "model": {
            **asdict(s.geometry),
            "parameters": s.geometry.parameters,
            "active_parameters": s.geometry.active_parameters,
        },
        "hardware": asdict(s.hardware) | {"devices": s.devices},
        "weights": asdict(s.weights) | {"bytes": s.weight_bytes},
        "kv": asdict(s.kv)
        | {
            "policy": asdict(s.policy),
            "bytes_per_token": s.kv_bytes_per_token,
            "bytes_per_request": s.kv_bytes(wish.context),
        },
        "wish": asdict(wish)
        | {
            "fits": plan.fits,
            "needed_bytes": s.needed_bytes(wish.users, wish.context),
            "usable_bytes": s.usable_bytes,
        },
        "most_users": plan.most_users,
        "longest_context": plan.longest_context,
        "roofline": asdict(plan.speeds) if plan.speeds else None,
        "cost": plan.cost,
        "by_context": [asdict(row) for row in plan.rows],
        "needed_bytes": [
            {"context": row.context, "users": users, "bytes": s.needed_bytes(users, row.context)}
            for row in plan.rows
            for users in plan.grid_users
        ],
        "remedies": [asdict(one) for one in plan.remedies],
        "measured": [
            asdict(one) | {"measured_over_calculated": {name: one.ratio(name) for name in TITLES}}
            for one in comparisons
        ],
        "typical_measured_over_calculated": {name: typical_ratio(comparisons, name) for name in TITLES},
    }


def _page(plan: Plan, comparisons: Sequence[Comparison]) -> str:
    import jinja2

    import harness.report.write as report

    styles = Path(report.__file__).parent / "templates"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([_HERE / "templates", styles]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"memory": memory, "number": number, "seconds": words.seconds}
    return environment.get_template("plan.html.j2").render(
        plan=plan,
        title=words.title(plan),
        verdict=words.verdict(plan),
        balance=words.balance(plan),
        limits=words.limits(plan),
        facts=words.facts(plan, comparisons),
        measured=words.comparison_lines(comparisons),
        sources=words.sources(plan),
        currency=plan.setting.hardware.currency,
        priced=plan.setting.price_per_hour is not None,
        heat_map=heat_map(plan),
    )
