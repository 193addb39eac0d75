"""What neighbouring layers have in common, and what it costs to hold one copy for two of them.

    python benchmarks/kv_sharing.py [--context 1024] [--texts 2]

On the keys, values and queries of `kv_formats.py`. First MiniCache (`backends/kvcompress/quant/minicache.py`):
the cosine of a token's vectors in the two layers of a pair, and the relative L2 error of attention's output,
mean of both, once they are merged. Then a basis that layers share (xKV, arXiv:2503.18893): the relative L2
error of keys and values whose mean was taken off, at half of the numbers a token, with one basis for several
layers together and with one for each.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from backends.kvcompress.quant.minicache import lower_of, merge
from benchmarks.kv_formats import SINKS, Layer, attend, record_texts


def merged(lower: Layer, upper: Layer) -> tuple[dict[str, float], dict[str, float]]:
    """Cosines of keys and values, and errors of both layers, with keys, values and both merged."""
    of = {
        kind: merge(getattr(lower, kind)[SINKS:], getattr(upper, kind)[SINKS:]) for kind in ("keys", "values")
    }
    errors: dict[str, list[float]] = {"keys": [], "values": [], "both": []}
    for layer, scaled in ((lower, False), (upper, True)):
        new = {
            kind: torch.cat(
                [
                    getattr(layer, kind)[:SINKS],
                    one.shared * one.ratio[:, None, None] if scaled else one.shared,
                ]
            )
            for kind, one in of.items()
        }
        exact = attend(layer)
        for name, changed in (("keys", ["keys"]), ("values", ["values"]), ("both", ["keys", "values"])):
            given = attend(replace(layer, **{kind: new[kind] for kind in changed}))
            errors[name].append(float((given - exact).norm() / exact.norm()))
    cosines = {kind: float(one.cosine.mean()) for kind, one in of.items()}
    return cosines, {name: sum(each) / len(each) for name, each in errors.items()}


def left_over(matrices: Sequence[torch.Tensor], rank: int) -> float:
    """Relative L2 error of matrices [n, d], each in its best basis of this rank."""
    lost = total = 0.0
    for matrix in matrices:
        squares = torch.linalg.svdvals(matrix) ** 2
        lost, total = lost + float(squares[rank:].sum()), total + float(squares.sum())
    return (lost / total) ** 0.5


def in_bases(layers: Sequence[Layer], kind: str, together: int) -> tuple[float, float]:
    """Of groups of so many layers from the middle on: one basis for the group, one for each layer."""
    starts = range(len(layers) // 2, len(layers) - together + 1, together)
    flat = [getattr(layer, kind)[SINKS:].flatten(1) for layer in layers]
    flat = [matrix - matrix.mean(dim=0) for matrix in flat]
    width = flat[0].shape[1]
    joint = [torch.cat(flat[start : start + together], dim=1) for start in starts]
    own = [matrix for start in starts for matrix in flat[start : start + together]]
    return left_over(joint, together * width // 2), left_over(own, width // 2)


def mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def main() -> None:
    parser = argparse.ArgumentParser(description="What neighbouring layers of the KV cache have in common.")
    parser.add_argument("--context", type=int, default=1024, help="tokens (default 1024)")
    parser.add_argument("--texts", type=int, default=2, help="(default 2)")
    options = parser.parse_args()
    texts, config = record_texts(options.texts, options.context)
    print(
        "| layers | cosine of keys | of values | error, keys merged | values | both |\n" + "| --- " * 6 + "|"
    )
    for upper in range(config.layers):
        lower = lower_of(upper, config.layers)
        if lower is None:
            continue
        found = [merged(text[lower], text[upper]) for text in texts]
        cells = [f"{mean([cosines[kind] for cosines, _ in found]):.2f}" for kind in ("keys", "values")]
        cells += [f"{mean([errors[name] for _, errors in found]):.0%}" for name in ("keys", "values", "both")]
        print(f"| {lower}, {upper} | {' | '.join(cells)} |")
    print("\n| half the numbers | one basis for all | a basis for each |\n" + "| --- " * 3 + "|")
    for kind in ("keys", "values"):
        for together in (2, 4):
            joint, own = (
                mean(each) for each in zip(*(in_bases(text, kind, together) for text in texts), strict=True)
            )
            print(f"| {kind} of {together} layers | {joint:.1%} | {own:.1%} |")


if __name__ == "__main__":
    main()
