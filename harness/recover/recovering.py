"""One killed run: from the raw files in its hidden folder to a record."""

from pathlib import Path
from typing import Any

import orjson

from harness.client import Measurement
from harness.client.stored import Phase, read_result, stored_measurement
from harness.config import SCHEMAS, HardwareOptions
from harness.core.errors import RecordError
from harness.metrics.slo import SloOptions
from harness.recording import Findings, figures, tables
from harness.records.schema import SCHEMA
from harness.records.writer import BEGUN, RunWriter

_REASON = "The harness was killed; this is what its client had written by then."


def recover_run(results_dir: Path, run_id: str) -> str:
    """Turn what is there into a record, partial or failed; returns one sentence about it.

    Memory and the engine's own gauges are lost: they are written at the end only. Raises RecordError where the run
    still lives or is damaged; its folder then stays as it was.
    """
    writer = RunWriter.take_over(results_dir, run_id)
    try:
        begun = _begun(writer.folder / BEGUN)
        findings = Findings(warmup=_phase(writer, "warmup"), measurement=_phase(writer, "measured"))
        measured = 0 if findings.measurement is None else int(findings.measurement.requests["ok"].sum())
        status = "partial" if measured else "failed"
        writer.finish(status, _record(begun, findings), *tables(findings))
    finally:
        writer.close()
    answered = "1 request was" if measured == 1 else f"{measured} requests were"
    return f"{status}: {answered} answered before the harness was killed."


def remove_run(results_dir: Path, run_id: str) -> None:
    """Remove what is there. Raises RecordError where the run still lives."""
    RunWriter.take_over(results_dir, run_id).discard()


def _begun(path: Path) -> dict[str, Any]:
    try:
        begun: dict[str, Any] = orjson.loads(path.read_bytes())
        newer = begun.pop("schema") > SCHEMA
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(
            f"{path} is missing or damaged, so nobody knows what was measured. {_REMOVE}"
        ) from error
    if newer:
        raise RecordError(f"{path} is of a later version. Update inference-harness.")
    return begun


_REMOVE = "It can only be removed: python -m harness.recover action=remove"


def _phase(writer: RunWriter, name: str) -> Measurement | None:
    """What a phase left; None where it had not begun."""
    folder = writer.scratch / name
    journals = sorted(folder.glob(f"{name}.journal*"))
    if not journals:
        return None
    try:
        phase = Phase.load(folder / f"{name}.asked")
        results = [read_result(Path(str(path).replace(".journal", ".result"))) for path in journals]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"What was asked cannot be read from {folder}. {_REMOVE}") from error
    return stored_measurement(phase, journals, results)


def _record(begun: dict[str, Any], findings: Findings) -> dict[str, Any]:
    config = begun["config"]
    load = SCHEMAS["load"][config["load"]["name"]](**config["load"])
    computed = figures(findings, load, SloOptions(**config["slo"]), HardwareOptions(**config["hardware"]), {})
    return {**begun, "reason": _REASON, **computed}
