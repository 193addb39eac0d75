"""The last calibration of this machine and this client, kept in the cache folder."""

import hashlib
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

import harness.client
from harness.client.chunk_reader import compiled_reader
from harness.core.cache import cache_root
from harness.core.errors import HarnessError
from harness.fingerprint import machine

SCHEMA = 1
_MACHINE = ("cpu", "cores", "kernel")


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the client measures exactly here: up to so many tokens a second, and so many streams at once.

    limited_by: of each, "client", or "server" where the truth server was at its own limit first, or "search"
    where the search ended before either was. own_core, realtime: whether the client had a core of its own, and was
    scheduled in real time, meanwhile.
    """

    tokens_per_s: float
    tokens_limited_by: str
    streams: int
    streams_limited_by: str
    own_core: bool = False
    realtime: bool = False

    def lacking(self, own_core: bool, realtime: bool) -> tuple[str, ...]:
        """What the client had when it was calibrated, and one under these conditions has not."""
        had = (
            (self.own_core, own_core, "a core of its own"),
            (self.realtime, realtime, "real-time scheduling"),
        )
        return tuple(what for then, now, what in had if then and not now)

    def times(self, workers: int) -> "Capacity":
        """That of so many processes on a core each."""
        return replace(self, tokens_per_s=self.tokens_per_s * workers, streams=self.streams * workers)

    def exceeded(self, tokens_per_s: float, streams: int) -> bool:
        """Whether a load is beyond a limit of the client's own; past another's it may hold more."""
        return (self.tokens_limited_by == "client" and tokens_per_s > self.tokens_per_s) or (
            self.streams_limited_by == "client" and streams > self.streams
        )

    def used(self, tokens_per_s: float, streams: int) -> float:
        """The larger share that a load takes of the two."""
        return max(
            tokens_per_s / self.tokens_per_s if self.tokens_per_s else float("inf"),
            streams / self.streams if self.streams else float("inf"),
        )


def circumstances() -> dict[str, Any]:
    """What a calibration is good for: this machine and this version of the client."""
    here = machine()
    digest = hashlib.sha256()
    for path in sorted(Path(harness.client.__path__[0]).glob("*.[cp]*")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return {
        **{name: here[name] for name in _MACHINE},
        "client": digest.hexdigest(),
        "reader": "python" if compiled_reader() is None else "compiled",
        "uvloop": version("uvloop"),
        "httptools": version("httptools"),
    }


def path_of(good_for: dict[str, Any]) -> Path:
    """Where the calibration for these circumstances lies, whether there is one or not."""
    key = hashlib.sha256(orjson.dumps(good_for, option=orjson.OPT_SORT_KEYS)).hexdigest()[:20]
    return cache_root() / "calibration" / f"{key}.json"


def keep(capacity: Capacity, readings: list[dict[str, Any]], measured_at: str) -> Path:
    """Write a calibration in place of the last one. Raises HarnessError if the cache cannot be written."""
    good_for = circumstances()
    record = {
        "schema": SCHEMA,
        "measured_at": measured_at,
        "good_for": good_for,
        "capacity": capacity,
        "readings": readings,
    }
    path = path_of(good_for)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".part")
        temporary.write_bytes(orjson.dumps(record, option=orjson.OPT_INDENT_2))
        temporary.replace(path)
    except OSError as error:
        raise HarnessError(
            f"The calibration cannot be kept in {path.parent} ({error.strerror}). "
            "Set INFERENCE_HARNESS_CACHE to a folder that can be written."
        ) from error
    return path


def kept_capacity() -> Capacity | None:
    """What the last calibration found for these very circumstances; None where there was none."""
    try:
        record = orjson.loads(path_of(circumstances()).read_bytes())
        return Capacity(**record["capacity"]) if record["schema"] == SCHEMA else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
