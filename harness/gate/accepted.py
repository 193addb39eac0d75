"""The accepted version: how its engine is started again, and whether it was asked what tonight's is asked."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.core.errors import UsageError
from harness.fingerprint import machine
from harness.gate.baselines import Baseline, Key, hardware_class, read_baseline, slug
from harness.gate.cells import Side
from harness.records.reader import Run


def accepted_side(folder: Path, arguments: Sequence[str]) -> list[str]:
    """Arguments that start the accepted version of the engine. Raises UsageError where that is not known or gone."""
    hardware = hardware_class({"machine": machine()})
    engine = next((a.partition("=")[2] for a in arguments if a.startswith("backend=")), "")
    found = sorted(folder.glob(f"*--{slug(engine) or '*'}--{hardware}.json"))
    experiment = next((a.partition("=")[2] for a in arguments if a.startswith("experiment=")), "")
    found = [path for path in found if path.name.startswith(slug(experiment))]
    if len(found) != 1:
        what = "Nothing was accepted here yet" if not found else f"{len(found)} baselines would do"
        raise UsageError(
            f"{what} ({folder}). Accept a night first (python -m harness.gate gate.mode=stored gate.accept=true), or "
            "say what the other side is: 'gate.baseline=[backend.python=/path/to/python]'."
        )
    experiment, engine, hardware = found[0].stem.split("--", 2)
    accepted = read_baseline(folder, Key(experiment, engine, hardware))
    python = Path(accepted.environment) / "bin" / "python" if accepted and accepted.environment else None
    if python is None or not python.exists():
        where = f"{python} is gone" if python else f"{engine} ran in the harness's own environment"
        raise UsageError(
            f"The accepted version of {engine} cannot be started: {where}. Install it in an environment of its own "
            f"(python -m harness.engines action=install engine={engine}) and accept a night with it, or use "
            "gate.mode=stored."
        )
    return [f"backend.python={python}"]


def environment_of(runs: Sequence[Run]) -> str:
    """The folder of the environment whose interpreter ran the engine; "" for the harness's own, and for none."""
    command = (runs[0].launch or {}).get("speed") or []
    python = next((Path(word) for word in command if Path(word).name.startswith("python")), None)
    if python is None or not python.is_absolute():
        return ""
    folder = python.parent.parent
    return "" if folder == Path(sys.prefix) else str(folder)


def check_same_plans(baseline: Baseline, cells: Mapping[str, Side]) -> None:
    """Raise UsageError where tonight's requests are not those of the accepted night."""
    for name, side in cells.items():
        accepted = baseline.plans.get(name)
        if accepted is not None and side.complete and accepted != plans(side):
            raise UsageError(
                f"{name}: tonight's requests are not those of the accepted night {baseline.night}. If the workload "
                "was changed on purpose, accept a night with it: gate.accept=true."
            )


def plans(side: Side) -> list[str]:
    """SHA-256 of the requests of a cell, one for each seed, sorted."""
    return sorted({str(run.fingerprint.get("plan_sha256")) for run in side.complete})
