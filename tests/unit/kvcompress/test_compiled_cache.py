"""Compiled functions come back from the cache folder in the next process, and in another checkout of the sources."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

import backends
from backends.kvcompress.compiled_cache import use_cache_folder

_USES_ALL = """
import json, torch
from backends.kvcompress import given, selection, selection_compiled
from backends.kvcompress.model import norms, panels

positions = torch.arange(6).expand(2, -1)
selection.select(torch.rand(2, 6), positions, [3, 3], 1, 1, 6, True)
panels._WORTH_SHARING = 0
held = panels.panels_of(torch.rand(32, 8))
for threads in (1, 2):
    panels.multiply(torch.rand(3, 8), held, threads)
given.add_given(torch.zeros(2, 6), torch.rand(2, 1, 4, 6), torch.ones(2))
norms.normed(torch.rand(3, 8), torch.ones(8), 1e-5)
functions = {
    "select": selection_compiled.select, "product": panels._product(1), "shared product": panels._product(2),
    "adder": given._adder(), "norm": norms._normed(),
}
counts = lambda found: [sum(found.stats.cache_hits.values()), sum(found.stats.cache_misses.values())]
print(json.dumps({name: counts(found) for name, found in functions.items()}))
"""


_CHECKOUT = Path(backends.__path__[0]).parent


def test_another_checkout_compiles_nothing_again(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = _run(_CHECKOUT, cache)
    assert all(counts == [0, 1] for counts in first.values())
    kept = sorted(cache.rglob("*.nbc"))
    assert kept
    other = tmp_path / "other"
    for package in ("backends", "harness"):
        shutil.copytree(_CHECKOUT / package, other / package, ignore=shutil.ignore_patterns("__pycache__"))
    assert _run(other, cache) == {name: [1, 0] for name in first}
    assert sorted(cache.rglob("*.nbc")) == kept


def test_other_sources_are_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setattr(numba.config, "CACHE_LOCATOR_CLASSES", "")
    folders = []
    for text in ("1", "2", "1"):
        copy = tmp_path / f"{len(folders)}.py"
        copy.write_text(text)
        use_cache_folder(copy)
        folders.append(numba.config.CACHE_DIR)
    assert folders[0] == folders[2] != folders[1]


def _run(checkout: Path, cache: Path) -> dict[str, list[int]]:
    """Hits and misses of each compiled function in a process of its own."""
    env = {**os.environ, "INFERENCE_HARNESS_CACHE": str(cache), "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-c", _USES_ALL]
    done = subprocess.run(command, env=env, cwd=checkout, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[int]] = json.loads(done.stdout)
    return found
