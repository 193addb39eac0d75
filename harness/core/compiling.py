"""Compiles a C file of this project on first use, once for each version of it, where there is a compiler."""

import hashlib
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.core.cache import cached_folder
from harness.core.errors import HarnessError

_COMPILERS = ("cc", "gcc", "clang")
_PATIENCE_S = 60.0


def compiled_c(source: Path, instead: str, options: Sequence[str] = ()) -> Path | None:
    """What the system's C compiler makes of `source` with `-O2` and `options`; None where nothing compiles it.

    The result lies in the cache folder. instead: what takes its place, told on stderr where compiling fails.
    """
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        return None
    name = source.stem

    def build(folder: Path) -> None:
        command = [compiler, "-O2", *options, "-o", str(folder / name), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE_S)
        if done.returncode:
            raise HarnessError(f"{source.name} did not compile: {done.stderr.strip()[-300:]}")

    what = "\0".join([platform.machine(), *options]).encode()
    digest = hashlib.sha256(what + b"\0" + source.read_bytes()).hexdigest()[:16]
    try:
        return cached_folder(f"{name.replace('_', '-')}/{digest}", build) / name
    except (HarnessError, OSError, subprocess.TimeoutExpired) as error:  # a broken compiler, a full disk
        print(f"{error} {instead} takes its place.", file=sys.stderr)
        return None
