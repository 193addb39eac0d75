"""A cache folder of derived files, keyed by content: made once, safe between processes, never half-made.

An entry is a folder. It is built beside its final place under a file lock and renamed in one step, so a reader
sees all of it or nothing, and a builder that is killed leaves only a temporary folder that the next one removes.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from harness.core.errors import HarnessError

_CHUNK = 1 << 20


def cache_root() -> Path:
    """Where derived files live: $INFERENCE_HARNESS_CACHE, else the user's cache folder (XDG)."""
    explicit = os.environ.get("INFERENCE_HARNESS_CACHE")
    if explicit:
        return Path(explicit).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "inference-harness"


def cached_folder(key: str, build: Callable[[Path], None]) -> Path:
    """Return the folder for `key`, calling `build(empty_folder)` once if it is not there yet."""
    final = cache_root() / key
    if final.is_dir():
        return final
    with locked(final):
        if final.is_dir():  # another process built it while this one waited
            return final
        building = final.with_name(final.name + ".building")
        shutil.rmtree(building, ignore_errors=True)  # left by a builder that was killed
        building.mkdir(parents=True)
        try:
            build(building)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
        building.rename(final)
    return final


@contextmanager
def locked(final: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[TextIO]:
    """Hold the lock of the entry `final`; `waiting` is called once where another process has it.

    Yields the lock's file: a child process that inherits it keeps the lock if this process is killed.
    """
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        lock = final.with_name(final.name + ".lock").open("w")
    except OSError as error:
        raise HarnessError(
            f"The cache folder {final.parent} cannot be written ({error.strerror}). "
            "Set INFERENCE_HARNESS_CACHE to a folder that can."
        ) from error
    with lock:  # released by the kernel if this process dies
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield lock
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)  # also where a child has the file open still


def sha256_of_file(path: Path) -> str:
    """SHA-256 of a file, remembered by its path, size and modification time."""
    stat = path.stat()
    identity = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}"
    note = cache_root() / "hashes" / hashlib.sha256(identity.encode()).hexdigest()
    try:
        return note.read_text()
    except OSError:
        pass
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    _remember(note, digest.hexdigest())
    return digest.hexdigest()


def _remember(note: Path, value: str) -> None:
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        temporary = note.with_name(f"{note.name}.{os.getpid()}")
        temporary.write_text(value)
        temporary.replace(note)
    except OSError:
        pass  # only a memo: an unwritable cache costs time, not correctness
