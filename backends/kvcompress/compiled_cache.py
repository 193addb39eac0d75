"""Where compiled functions are kept: in the harness's cache folder, by what their sources say, not where they lie."""

import hashlib
from functools import lru_cache
from pathlib import Path

import numba
from numba.core.caching import UserProvidedCacheLocator

from harness.core.cache import cache_root

_PACKAGE = Path(__file__).parent


class ByModule(UserProvidedCacheLocator):
    """Finds a function of this package by its module, where numba would by the path of its file: another checkout of
    the same sources compiles nothing again."""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """Folder within `numba.config.CACHE_DIR`."""
        folder = Path(py_file).parent
        if not folder.is_relative_to(_PACKAGE):
            return str(super().get_suitable_cache_subpath(py_file))
        return "-".join(("kvcompress", *folder.relative_to(_PACKAGE).parts))


def use_cache_folder(*sources: Path) -> None:
    """Let what is decorated next be kept. sources: all that it is compiled from.

    numba looks at the function's own file alone; here a change of any of them is another folder.
    """
    numba.config.CACHE_DIR = str(cache_root() / "numba" / _digest(sources))
    numba.config.CACHE_LOCATOR_CLASSES = f"{ByModule.__module__}.{ByModule.__qualname__}"


@lru_cache
def _digest(sources: tuple[Path, ...]) -> str:
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
