# mypy: allow-untyped-defs
"""The functions that Python calls, compiled once for each layout and kept in the harness's cache folder."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numba
import numpy as np

from backends.kvcompress.combinations import can_rotate
from backends.kvcompress.compiled_cache import use_cache_folder
from backends.kvcompress.quant.rotation import signs
from backends.kvcompress.store import decode, packing, slots
from backends.kvcompress.store.rows import RowLayout


def _use_cache_folder() -> None:
    """For what is decorated next, which may come from any module of this folder and from the tables."""
    package = Path(__file__).parent
    tables = [package.parent / "quant" / name for name in ("codebook.py", "rotation.py")]
    use_cache_folder(*sorted(package.glob("*.py")), *tables)


@lru_cache
def attend_kernel(config: RowLayout, threads: int) -> Any:
    """attend(pool, following, book, layer, rows, queries, decay, out, scratch) -> floats that each thread needs of
    scratch [threads, floats]: more than there are, and nothing was done.

    Compiled on the first call for each layout, or read from the cache. See `decode.attend_head`.
    """
    turning = rotation_signs(config.dim) if config.rotate else np.zeros(0, np.float32)
    _use_cache_folder()

    @numba.njit(cache=True, no_cfunc_wrapper=True, error_model="numpy")
    def attend(pool, following, book, layer, rows, queries, decay, out, scratch):
        needed = decode.most_scratch(config, book, layer, rows)
        if needed <= scratch.shape[1]:
            decode.attend_share(
                config, pool, following, book, layer, rows, queries, turning, decay, out, scratch[0], 0, 1
            )
        return needed

    @numba.njit(cache=True, no_cfunc_wrapper=True, error_model="numpy", parallel=True)
    def attend_together(pool, following, book, layer, rows, queries, decay, out, scratch):
        needed = decode.most_scratch(config, book, layer, rows)
        if needed <= scratch.shape[1]:
            for part in numba.prange(threads):
                decode.attend_share(
                    config, pool, following, book, layer, rows, queries, turning, decay, out, scratch[part], part,
                    threads,
                )  # fmt: skip
        return needed

    return attend if threads == 1 else attend_together


def rotation_signs(dim: int) -> np.ndarray:
    """float32 [dim] of 1 and -1; what is not a power of two is never rotated, and has none."""
    return signs(dim).numpy() if can_rotate(dim) else np.zeros(0, np.float32)


_use_cache_folder()
append = numba.njit(cache=True, no_cfunc_wrapper=True, error_model="numpy")(slots.append_tokens.py_func)
add_chunk = numba.njit(cache=True, no_cfunc_wrapper=True, error_model="numpy")(slots.add_chunk.py_func)
keep = numba.njit(cache=True, no_cfunc_wrapper=True, error_model="numpy")(slots.keep_slots.py_func)
read = numba.njit(cache=True, no_cfunc_wrapper=True, error_model="numpy")(slots.read_slots.py_func)
pack = numba.njit(cache=True, no_cfunc_wrapper=True, error_model="numpy")(packing.pack_slots.py_func)
add_given = numba.njit(cache=True, no_cfunc_wrapper=True, error_model="numpy")(slots.add_given.py_func)
move_keys = numba.njit(cache=True, no_cfunc_wrapper=True, error_model="numpy")(slots.move_keys.py_func)
