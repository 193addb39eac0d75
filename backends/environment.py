"""The environments that engines live in: what each is made of, and where it is once it was made.

An environment is a cache folder keyed by the hash of its lock, so a changed lock is a new environment and an
unchanged one is never installed twice. How one is made: `backends.environment_making`.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from harness.core.cache import cache_root

LOCKS = Path(__file__).parent / "environments"
_COMPLETE = "complete.json"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an environment is made.

    name: such as "vllm-cpu"; its lock, exact versions of every package, is backends/environments/NAME.txt, and
        what the lock is resolved from is NAME.in beside it.
    imports: modules that must import in it. packages: those whose versions tell the engine's.
    uninstall: packages that the engine's own requirements ask for and that break it; left out of the lock.
    alone: requirements that are taken without their own, which contradict others; added to the lock as they are.
    overlay: folder under backends/environments/overlays whose modules are put on its path, or None.
    gpu: it is of no use without an NVIDIA GPU. minimum_python: (3, 11) and the like.
    megabytes: about how much disk space it takes.
    on_request: a converter that the engine needs only for some models, so it is made only where asked for.
    """

    name: str
    imports: tuple[str, ...]
    packages: tuple[str, ...]
    uninstall: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    overlay: str | None = None
    gpu: bool = False
    minimum_python: tuple[int, int] = (3, 11)
    megabytes: int = 1000
    on_request: bool = False

    @property
    def lock(self) -> Path:
        """File of exact versions."""
        return LOCKS / f"{self.name}.txt"

    @property
    def wanted(self) -> Path:
        """File of what the lock is resolved from."""
        return LOCKS / f"{self.name}.in"

    @property
    def overlay_folder(self) -> Path | None:
        """The modules to put on its path."""
        return None if self.overlay is None else LOCKS / "overlays" / self.overlay

    def requirements(self) -> list[str]:
        """The lines of the lock, without comments; none where there is no lock yet."""
        if not self.lock.is_file():
            return []
        lines = (line.split("#")[0].strip() for line in self.lock.read_text().splitlines())
        return [line for line in lines if line]

    def key(self) -> str:
        """Hash of everything that makes the environment what it is."""
        digest = hashlib.sha256("\n".join(self.requirements()).encode())
        if self.overlay_folder is not None:
            for path in sorted(self.overlay_folder.rglob("*.py")):
                digest.update(str(path.relative_to(self.overlay_folder)).encode() + path.read_bytes())
        return digest.hexdigest()[:16]

    def folder(self) -> Path:
        """Where it is, or will be."""
        return environments_folder() / f"{self.name}-{self.key()}"

    def python(self) -> Path:
        """Its interpreter."""
        return self.folder() / "bin" / "python"

    @property
    def complete(self) -> Path:
        """The note that is written last: when it was made, and with what."""
        return self.folder() / _COMPLETE

    def installed(self) -> bool:
        """Whether it was made to the end and its interpreter is there."""
        return self.complete.is_file() and self.python().is_file()

    def leftovers(self) -> list[Path]:
        """Folders that an older lock made, which nothing uses any more."""
        return sorted(
            path
            for path in environments_folder().glob(f"{self.name}-*")
            if path.is_dir() and len(path.name) == len(self.folder().name) and path != self.folder()
        )


def environments_folder() -> Path:
    """Where environments are kept."""
    return cache_root() / "environments"
