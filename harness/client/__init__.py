"""The measuring client: a process of its own that only timestamps and keeps bytes.

`measure(job, on_progress)` runs it. The names below are imported when first asked for, since that process
passes here too: it needs nothing but httptools, uvloop, orjson and the standard library, and nothing else may run
beside its clock.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.client.job import ClientJob, Measurement, Progress
    from harness.client.measuring import measure

__all__ = ["ClientJob", "Measurement", "Progress", "measure"]

_HOMES = {
    "ClientJob": "harness.client.job",
    "Measurement": "harness.client.job",
    "Progress": "harness.client.job",
    "measure": "harness.client.measuring",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
