"""Which devices OpenVINO finds on this machine: asked of the library in its own environment; no model is loaded."""

import subprocess
from functools import cache

from harness.core.errors import EngineError, UsageError

_ASK = "import openvino; print(*openvino.Core().available_devices)"
_TIMEOUT_S = 60.0  # drivers of accelerators may take their time


def check_device(python: str, device: str) -> None:
    """Raise UsageError where backend.device is not there, naming what is. A CPU always is, and is not asked for."""
    if device == "cpu":
        return
    found = devices_of(python)
    if not any(_is(device.upper(), name) for name in found):
        choices = " or ".join(sorted({name.lower() for name in found})) or "none at all"
        raise UsageError(
            f"backend.device={device}: OpenVINO finds no such device on this machine. It finds {choices}; an "
            "accelerator also needs its driver."
        )


@cache
def devices_of(python: str) -> tuple[str, ...]:
    """OpenVINO's names (CPU, GPU, GPU.1, NPU) as the interpreter `python` sees them."""
    try:
        done = subprocess.run(
            [python, "-I", "-c", _ASK], capture_output=True, text=True, check=True, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineError(f"OpenVINO cannot be asked for its devices in {python}: {error}.") from error
    return tuple(done.stdout.split())


def _is(wanted: str, found: str) -> bool:
    """GPU is any; GPU.0 is also the only one, which is called GPU then."""
    return found == wanted or found.split(".")[0] == wanted or f"{found}.0" == wanted
