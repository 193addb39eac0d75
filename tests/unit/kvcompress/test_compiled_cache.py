"""Compiled functions come back from the cache folder in the next process."""

import json
import os
import subprocess
import sys
from pathlib import Path

_USES_ALL = """
import json, torch
from backends.kvcompress import given, selection, selection_compiled
from backends.kvcompress.model import norms, panels

positions = torch.arange(6).expand(2, -1)
selection.select(torch.rand(2, 6), positions, [3, 3], 1, 1, 6, True)
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


def test_the_next_process_compiles_nothing_again(tmp_path: Path) -> None:
    def run() -> dict[str, list[int]]:
        env = {**os.environ, "INFERENCE_HARNESS_CACHE": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", _USES_ALL], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found: dict[str, list[int]] = json.loads(done.stdout)
        return found

    first = run()
    assert all(counts == [0, 1] for counts in first.values())
    kept = sorted(tmp_path.rglob("*.nbc"))
    assert kept
    second = run()
    assert second == {name: [1, 0] for name in first}
    assert sorted(tmp_path.rglob("*.nbc")) == kept
