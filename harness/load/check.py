"""Refuses load options that make no sense, before anything starts."""

from harness.core.errors import UsageError
from harness.load.arrivals import NAMES
from harness.load.options import LoadOptions

_TIMEOUTS = ("connect_timeout_s", "first_token_timeout_s", "token_timeout_s", "request_timeout_s")


def check_load(load: LoadOptions) -> None:
    """Raise UsageError, naming the key, where the options contradict themselves or each other."""
    if load.name not in NAMES:
        raise UsageError(
            f"load.name={load.name} is not an arrival process. Choose one of {', '.join(NAMES)}."
        )
    if load.name == "closed":
        _closed(load)
    else:
        _open(load)
    if load.requests is not None and load.requests < 1:
        raise UsageError(
            f"load.requests={load.requests} measures nothing. Give at least 1, or null for the plan."
        )
    if load.duration_s is not None and not load.duration_s > 0:
        raise UsageError(f"load.duration_s={load.duration_s} is no duration. Give seconds above 0, or null.")
    for key in ("drain_s", "warmup"):
        if getattr(load, key) < 0:
            raise UsageError(f"load.{key}={getattr(load, key)} is negative. Give 0 or more.")
    for key in _TIMEOUTS:
        if not getattr(load, key) > 0:
            raise UsageError(f"load.{key}={getattr(load, key)} leaves no time. Give seconds above 0.")


def _closed(load: LoadOptions) -> None:
    if load.concurrency is None or load.concurrency < 1:
        raise UsageError(
            f"load.concurrency={_shown(load.concurrency)}: a closed loop needs at least 1 session in flight. "
            "Give load.concurrency=1 or more."
        )
    if load.rate is not None:
        raise UsageError(
            f"load.rate={load.rate} has no meaning in a closed loop, whose rate follows the server. "
            "Leave it out, or choose load=constant or load=poisson."
        )


def _open(load: LoadOptions) -> None:
    if load.rate is None or not 0 < load.rate < float("inf"):
        raise UsageError(
            f"load.rate={_shown(load.rate)}: load={load.name} needs sessions per second. "
            "Give a number above 0, for example load.rate=2."
        )
    if load.concurrency is not None and load.concurrency < 1:
        raise UsageError(
            f"load.concurrency={load.concurrency} would send nothing. Give at least 1, or null for no bound."
        )


def _shown(value: object) -> str:
    return "null" if value is None else str(value)
