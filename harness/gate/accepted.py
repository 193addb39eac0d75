"""The accepted version: how its engine is started again, and whether it was asked what tonight's is asked."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.core.errors import UsageError
from harness.gate.baselines import Baseline, Key
from harness.gate.cells import Side, asked_of
from harness.records.reader import Run


def accepted_side(accepted: Baseline | None, key: Key) -> list[str]:
    """Arguments that start the accepted version of the engine. Raises UsageError where that is not known or gone."""
    if accepted is None:
        raise UsageError(
            f"Nothing was accepted yet for {key.experiment} on {key.engine} here. Accept a night first (python -m "
            "harness.gate gate.mode=stored gate.accept=true), or say what the other side is: "
            "'gate.baseline=[backend.python=/path/to/python]'."
        )
    python = Path(accepted.environment) / "bin" / "python" if accepted.environment else None
    if python is None or not python.exists():
        where = (
            f"{python} is gone"
            if python
            else "it ran in the harness's own environment, or on a server of yours"
        )
        raise UsageError(
            f"The accepted version of {key.engine} cannot be started: {where}. Install it in an environment of its "
            f"own (python -m harness.engines action=install engine={key.engine}) and accept a night with it, name "
            "the other side with gate.baseline=[…], or use gate.mode=stored."
        )
    return [f"backend.python={python}"]


def environment_of(runs: Sequence[Run]) -> str:
    """The folder of the environment that ran the engine; "" for the harness's own, and for a server of the user's."""
    run = next((run for run in runs if run.status == "complete"), None)
    command = (run.launch or {}).get("speed") or [] if run else []
    program = next((Path(word) for word in command if not re.match(r"[A-Za-z_]\w*=", word)), None)
    if program is None or not program.is_absolute() or program.parent.name != "bin":
        return ""
    folder = program.parent.parent
    return "" if folder == Path(sys.prefix) else str(folder)


def check_same_plans(baseline: Baseline, cells: Mapping[str, Side]) -> None:
    """Raise UsageError where tonight's requests, or model, are not those of the accepted night."""
    for name, side in cells.items():
        accepted = baseline.plans.get(name)
        if accepted is not None and side.complete and accepted != asked_of(side):
            raise UsageError(
                f"{name}: tonight's requests or model are not those of the accepted night {baseline.night}. If that "
                "was changed on purpose, accept a night with it: gate.accept=true."
            )
