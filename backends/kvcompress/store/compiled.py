"""The functions that Python calls, compiled once for each layout and kept in the harness's cache folder."""

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba
import numpy as np

from backends.kvcompress.quant.rotation import can_rotate, signs
from backends.kvcompress.store import decode, packing, slots
from backends.kvcompress.store.layout import RowLayout
from harness.core.cache import cache_root


def _use_cache_folder() -> None:
    """numba looks at one file's age only; here a change of any file is another folder."""
    digest = hashlib.sha256()
    package = Path(__file__).parent
    for file in sorted([*package.glob("*.py"), *(package.parent / "quant").glob("*.py")]):
        digest.update(file.read_bytes())
    numba.config.CACHE_DIR = str(cache_root() / "numba" / digest.hexdigest()[:16])


@lru_cache
def attend_kernel(config: RowLayout) -> Any:
    """attend(pool, following, book, layer, rows, queries, decay, out, scratch) -> whether scratch was large enough.

    Compiled on the first call for each layout, or read from the cache. See `decode.attend_head`.
    """
    turning = rotation_signs(config.dim) if config.rotate else np.zeros(0, np.float32)

    @numba.njit(cache=True)
    def attend(pool, following, book, layer, rows, queries, decay, out, scratch):  # type: ignore[no-untyped-def]
        for request in range(len(rows)):
            for head in range(config.heads):
                first = head * config.group
                enough = decode.attend_head(
                    config, pool, following, book[rows[request], layer, head],
                    queries[request, first : first + config.group], turning, decay[request],
                    out[request, first : first + config.group], scratch,
                )  # fmt: skip
                if not enough:
                    return False
        return True

    return attend


def rotation_signs(dim: int) -> np.ndarray:
    """float32 [dim] of 1 and -1; what is not a power of two is never rotated, and has none."""
    return signs(dim).numpy() if can_rotate(dim) else np.zeros(0, np.float32)


_use_cache_folder()
append = numba.njit(cache=True)(slots.append_tokens.py_func)
keep = numba.njit(cache=True)(slots.keep_slots.py_func)
read = numba.njit(cache=True)(slots.read_slots.py_func)
pack = numba.njit(cache=True)(packing.pack_slots.py_func)
add_given = numba.njit(cache=True)(slots.add_given.py_func)
move_keys = numba.njit(cache=True)(slots.move_keys.py_func)
