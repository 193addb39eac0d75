"""Random numbers that are the same in any process and on any machine.

Every purpose has a stream of its own, named by words and indices, so that one more request, chunk or turn
never shifts what the others draw. Only uniform doubles are taken from NumPy (its bit generators' streams are
fixed across versions, the algorithms of its distributions are not); all else is computed from them here.
"""

import hashlib

import numpy as np

from harness.core.errors import UsageError


class Stream:
    """Uniform draws for one purpose, e.g. `Stream(seed, "chat", "session", 3)`."""

    def __init__(self, seed: int, *names: str | int) -> None:
        if seed < 0:
            raise UsageError(f"seed={seed}: a seed is a whole number of at least 0.")
        digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
        words = [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4)]
        self._bits = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=words)))

    def uniform(self) -> float:
        """A number in [0, 1)."""
        return float(self._bits.random())

    def uniforms(self, count: int) -> np.ndarray:
        """`count` numbers in [0, 1), shape (count,)."""
        return self._bits.random(count)

    def below(self, bound: int) -> int:
        """A whole number in [0, bound)."""
        return int(self.uniform() * bound)

    def permutation(self, count: int) -> list[int]:
        """0 … count - 1 in random order."""
        return [int(i) for i in np.argsort(self.uniforms(count), kind="stable")]
