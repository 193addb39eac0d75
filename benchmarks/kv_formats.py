"""How far each format of the KV cache moves the output of attention, and what it takes.

    python benchmarks/kv_formats.py [--context 1024] [--texts 2]

The real keys, values and queries of SmolLM2-135M on real text (the half of the corpus that `auto` is chosen
on). The context is quantised but for 4 sinks, and the queries of the next 64 tokens ask the context alone, so
that nothing exact dilutes the figure: the relative L2 error of what attention gives them, over all query heads
(‖output - exact‖ / ‖exact‖, mean of layers and texts), beside the bytes of a token in all layers (codes, scales
and zeros; no positions, no slack). A second table parts the error of keys and values. Groups are of 32.

"Centred": the mean key of each head, over the first 512 tokens, is taken off before and added after. A softmax
does not see what is added to all keys, so that a store need not add it back; it is one vector a head.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import torch
from omegaconf import OmegaConf

sys.path.insert(0, str(Path(__file__).parents[1]))

import conf
from backends.kvcompress.model.config import DecoderConfig
from backends.kvcompress.model.decoder import Decoder, load_decoder
from backends.kvcompress.model.dense import DenseAttention
from backends.kvcompress.quant.bits import packed_bytes
from backends.kvcompress.quant.sharing import group_numbers
from backends.kvcompress.quant.slots import dequantise, quantise
from backends.kvcompress.spec import GRANULARITIES, QUANTS, Budget, KvSpec
from benchmarks.kv.text import half_of_corpus
from harness.core.hf_layout import hf_folder
from harness.core.model_store import ModelSource, resolve
from harness.core.tokenizer import Tokenizer

ASKING, SINKS, GROUP, CENTRED_BY = 64, 4, 32, 512
_EXACT = KvSpec(
    evict="none", budget=Budget(None, None, None), spread="uniform", sinks=SINKS, recent=ASKING, when="prompt",
    reindex=False, quant="none", granularity="token_head", group=GROUP, codebook=False, rotate=False, share="none",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Layer:
    """queries [64, Q, D]; keys and values [context, H, D]."""

    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor


class Recorder(DenseAttention):
    """Dense attention that remembers what it was given."""

    def __init__(self, decoder: Decoder, tokens: int) -> None:
        config = decoder.config
        super().__init__(config.layers, config.kv_heads, config.head_dim, tokens)
        self.layers: list[Layer] = []

    def __call__(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """See `contracts.Attention`."""
        self.layers.append(Layer(queries[-ASKING:].clone(), keys[:-ASKING].clone(), values[:-ASKING].clone()))
        return super().__call__(layer, queries, keys, values)


def record(decoder: Decoder, ids: Sequence[int]) -> list[Layer]:
    """What attention is given in each layer, all tokens in one pass."""
    attention = Recorder(decoder, len(ids))
    attention.expect([(0, len(ids))])
    decoder.forward(torch.tensor(ids), torch.arange(len(ids)), attention, torch.tensor([len(ids) - 1]))
    return attention.layers


def attend(layer: Layer) -> torch.Tensor:
    """[64, Q, D]; every query sees the whole context, so nothing is masked."""
    queries, keys, values = (part.transpose(0, 1) for part in (layer.queries, layer.keys, layer.values))
    return torch.nn.functional.scaled_dot_product_attention(
        queries[None], keys[None], values[None], enable_gqa=True
    )[0].transpose(0, 1)


@dataclass(frozen=True, slots=True)
class Variant:
    """A row of the table: what is changed in a spec, and whether keys are centred."""

    granularity: str
    rotate: bool = False
    codebook: bool = False
    centred: bool = False

    @property
    def name(self) -> str:
        """As the table calls it."""
        chosen = [each for each in ("rotate", "codebook", "centred") if getattr(self, each)]
        return ", ".join([self.granularity, *chosen])

    def spec(self, quant: str) -> KvSpec | None:
        """None where there is no such format."""
        if self.codebook and quant not in ("int4", "int3", "int2"):
            return None
        return replace(
            _EXACT, quant=quant, granularity=self.granularity, rotate=self.rotate, codebook=self.codebook
        )


VARIANTS = [
    *(Variant(granularity) for granularity in GRANULARITIES),
    *(Variant(granularity, rotate=True) for granularity in ("token_head", "group", "kivi")),
    Variant("token_head", codebook=True),
    *(Variant(granularity, rotate=True, codebook=True) for granularity in ("token_head", "group", "kivi")),
    Variant("token_head", centred=True),
    Variant("token_head", rotate=True, centred=True),
    Variant("token_head", rotate=True, codebook=True, centred=True),
]


def rounded(spec: KvSpec, kind: str, vectors: torch.Tensor, centred: bool) -> torch.Tensor:
    """[context, H, D] as it is read back, the sinks untouched."""
    late = vectors[SINKS:]
    middle = late[:CENTRED_BY].mean(dim=0) if centred else torch.zeros(late.shape[1:])
    tokens, heads, size = late.shape
    flat = (late - middle).transpose(0, 1).reshape(-1, size)
    positions = torch.arange(tokens).repeat(heads)
    groups = group_numbers(torch.arange(heads).repeat_interleave(tokens), positions, spec.group)
    back = dequantise(quantise(spec, kind, flat, positions, groups))
    return torch.cat([vectors[:SINKS], back.reshape(heads, tokens, size).transpose(0, 1) + middle])


def errors(spec: KvSpec, centred: bool, texts: Sequence[Sequence[Layer]]) -> tuple[float, float, float]:
    """Relative L2 error with keys, values and both in this format."""
    found = []
    for layer in (layer for text in texts for layer in text):
        exact = attend(layer)
        keys = replace(layer, keys=rounded(spec, "keys", layer.keys, centred))
        values = replace(layer, values=rounded(spec, "values", layer.values, False))
        changed = (keys, values, replace(keys, values=values.values))
        found.append([float((attend(each) - exact).norm() / exact.norm()) for each in changed])
    of_keys, of_values, of_both = torch.tensor(found).mean(dim=0).tolist()
    return of_keys, of_values, of_both


def table(rows: Mapping[str, Sequence[str]]) -> str:
    """Markdown."""
    head = ["what shares a scale", *QUANTS[1:]]
    lines = [head, ["---"] * len(head), *([name, *cells] for name, cells in rows.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def record_texts(count: int, context: int) -> tuple[list[list[Layer]], DecoderConfig]:
    """What SmolLM2's attention is given on so many texts, spread over the half of the corpus."""
    values = OmegaConf.load(Path(conf.__path__[0]) / "model" / "smollm2-135m.yaml")
    source = ModelSource(**{str(key): value for key, value in values.items() if key != "defaults"})
    folder = hf_folder(resolve(source, print), print)
    decoder = load_decoder(folder, "cpu")
    ids = Tokenizer.from_folder(folder).encode(half_of_corpus("tune"))
    length = SINKS + context + ASKING
    starts = [number * (len(ids) // count) for number in range(count)]
    return [record(decoder, ids[start : start + length]) for start in starts], decoder.config


def main() -> None:
    parser = argparse.ArgumentParser(
        description="How far each format of the KV cache moves attention's output."
    )
    parser.add_argument("--context", type=int, default=1024, help="tokens that are quantised (default 1024)")
    parser.add_argument("--texts", type=int, default=2, help="(default 2)")
    options = parser.parse_args()
    texts, config = record_texts(options.texts, options.context)
    both: dict[str, list[str]] = {variant.name: [] for variant in VARIANTS}
    parted: dict[str, list[str]] = {variant.name: [] for variant in VARIANTS}
    for variant, quant in product(VARIANTS, QUANTS[1:]):
        spec, cells = variant.spec(quant), ("", "")
        if spec is not None:
            of_keys, of_values, of_both = errors(spec, variant.centred, texts)
            size = packed_bytes(spec, options.context, config.kv_heads, config.head_dim) / options.context
            cells = f"{of_both:.1%} ({size * config.layers:,.0f} B)", f"{of_keys:.1%} / {of_values:.1%}"
        both[variant.name].append(cells[0])
        parted[variant.name].append(cells[1])
    print(f"Error of attention's output (bytes of a token), {config.layers} layers:\n\n{table(both)}\n")
    print(f"Keys alone / values alone:\n\n{table(parted)}")


if __name__ == "__main__":
    main()
