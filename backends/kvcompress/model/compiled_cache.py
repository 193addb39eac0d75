"""Where compiled functions are kept, other than the store's."""

import hashlib
from functools import lru_cache
from pathlib import Path

import numba

from harness.core.cache import cache_root


@lru_cache
def _digest() -> str:
    digest = hashlib.sha256()
    for name in ("norms.py", "panels.py", "tiles.py", "../selection_compiled.py", "../given.py"):
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.hexdigest()[:16]


def use_cache_folder() -> None:
    """Let what is decorated next be kept in the harness's cache.

    numba looks at the age of the function's own file; here a change of any of them is another folder.
    """
    numba.config.CACHE_DIR = str(cache_root() / "numba" / _digest())
