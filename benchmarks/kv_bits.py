"""How many bits keys and values need: what a format costs where the prompt and the answer's own tokens are packed.

    python benchmarks/kv_bits.py [--windows 4] [--settings 'quant=int4 rotate=true' …] [--model FOLDER]

Windows of the half "tune" (2048 tokens, and the next 512 predicted, as in benchmarks/kvcompress.py), one pass for
each and each setting: every token sees the 4 sinks and the latest 8 to 15 tokens as computed, all others as they are
read back. `fraction` evicts from the prompt as `auto` does. KL is the mean divergence of the next token's
distribution from the full cache's, in hundredths of a nat: about what perplexity is expected to lose in percent, with
far less noise.
"""

import argparse
import math
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from backends.kvcompress.model.decoder import Decoder, load_decoder
from backends.kvcompress.model.retrieval import retrieval_heads
from backends.kvcompress.quant.sharing import by_groups_of_tokens, group_numbers
from backends.kvcompress.quant.slots import dequantise, quantise
from backends.kvcompress.spec import KvSpec, from_mapping
from benchmarks.kv import lab_methods as tried
from benchmarks.kv.intervals import perplexity_ratio
from benchmarks.kv.lab import Prompt, read
from benchmarks.kv.settings import ours
from benchmarks.kv.text import half_of_corpus, windows
from benchmarks.kvcompress import model_folder
from harness.core.tokenizer import Tokenizer

PROMPT, PREDICTED = 2048, 512
SINKS, RECENT, TOGETHER = 4, 8, 8  # the engine packs what became older than RECENT every TOGETHER tokens
_BLOCK = 64
_CODES = "codebook=true rotate=true"
SETTINGS = (
    f"quant=int4 {_CODES}",
    f"quant=int8 value_quant=int4 {_CODES}",
    f"quant=int4 value_quant=int8 {_CODES}",
    f"quant=int8 value_quant=int3 {_CODES}",
    "quant=int8 rotate=true",
    "quant=int4 granularity=kivi rotate=true",
    "fraction=0.44",
    "fraction=0.57",
    f"fraction=0.57 quant=int4 {_CODES}",
    f"fraction=0.44 quant=int8 value_quant=int4 {_CODES}",
)


class Packing:
    """Fulfils `contracts.Attention` for the tokens after a prompt, of which all but its last token is held."""

    def __init__(self, prompt: Prompt, spec: KvSpec, stays: torch.Tensor | None) -> None:
        self._prompt = prompt
        self._spec = spec
        self._stays = stays

    def __call__(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """queries [T, Q, D], keys and values [T, H, D]: of the prompt's last token and of those that follow."""
        before = self._prompt.tokens - 1
        exact = [
            torch.cat((held[layer][:, :before], new.transpose(0, 1)), 1)
            for held, new in ((self._prompt.keys, keys), (self._prompt.values, values))
        ]
        packed = [self._read_back(kind, each) for kind, each in zip(("keys", "values"), exact, strict=True)]
        gone = None if self._stays is None else ~self._stays[layer, :, :before]
        blocks = []
        for first in range(0, len(queries), _BLOCK):
            end = min(first + _BLOCK, len(queries))
            blocks.append(_attend(queries[first:end], before + first, exact, packed, gone))
        return torch.cat(blocks)

    def _read_back(self, kind: str, vectors: torch.Tensor) -> torch.Tensor:
        """vectors [H, n, D], the sinks as they are."""
        if self._spec.quant == "none":
            return vectors
        heads, tokens, size = vectors.shape
        positions = torch.arange(SINKS, tokens).repeat(heads)
        flat, groups = vectors[:, SINKS:].reshape(-1, size), torch.zeros_like(positions)
        result = vectors.clone()
        if by_groups_of_tokens(self._spec):
            groups = group_numbers(
                torch.arange(heads).repeat_interleave(tokens - SINKS), positions, self._spec.group
            )
            groups = groups.where(
                groups >= 0, groups.max()
            )  # the last few wait as they are; nobody sees them packed
        result[:, SINKS:] = dequantise(quantise(self._spec, kind, flat, positions, groups)).view(
            heads, -1, size
        )
        return result


def _attend(
    queries: torch.Tensor,
    first: int,
    exact: list[torch.Tensor],
    packed: list[torch.Tensor],
    gone: torch.Tensor | None,
) -> torch.Tensor:
    """Of queries [t, Q, D] at positions first, first + 1 …; exact and packed keys and values [H, n, D]; gone: [H, m]
    bool, of the first m slots."""
    (count, query_heads, size), heads = queries.shape, len(exact[0])
    end, near = first + count, max(0, first - RECENT - TOGETHER)
    rows = (queries * size**-0.5).view(count, heads, -1, size).permute(1, 2, 0, 3).reshape(heads, -1, size)
    scores = (rows @ packed[0][:, :end].transpose(1, 2)).view(heads, -1, count, end)
    latest = (rows @ exact[0][:, near:end].transpose(1, 2)).view(heads, -1, count, end - near)
    at = torch.arange(first, end)[:, None]
    age = at - torch.arange(near, end)
    as_computed = age < RECENT + at % TOGETHER
    scores[..., near:] = torch.where(as_computed, latest, scores[..., near:]).masked_fill(age < 0, -math.inf)
    if gone is not None:
        scores[..., : gone.shape[1]].masked_fill_(gone[:, None, None], -math.inf)
    weights = torch.softmax(scores, -1)
    result = weights.flatten(1, 2) @ packed[1][:, :end]
    corrected = torch.where(as_computed, weights[..., near:], 0.0).flatten(1, 2)
    result += corrected @ (exact[1] - packed[1])[:, near:end]
    return result.view(heads, -1, count, size).permute(2, 0, 1, 3).reshape(count, query_heads, size)


def _log_probs(model: Decoder, attention: Packing, ids: list[int]) -> torch.Tensor:
    """[len(ids), vocabulary]: of what follows each of the ids, which begin with the prompt's last."""
    positions = torch.arange(PROMPT - 1, PROMPT - 1 + len(ids))
    return model.logits(model.forward(torch.tensor(ids), positions, attention)).log_softmax(-1)


def _spec_and_fraction(words: str) -> tuple[KvSpec, float | None]:
    given = [word for word in words.split() if not word.startswith("fraction=")]
    fraction = [float(word.partition("=")[2]) for word in words.split() if word.startswith("fraction=")]
    return from_mapping(ours("", " ".join(given)).setting["kv"]), fraction[0] if fraction else None


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--settings", nargs="*", default=SETTINGS)
    parser.add_argument("--model", type=Path, help="in the Hugging Face layout instead of the default model")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    folder = asked.model or model_folder()
    model, tokenizer = load_decoder(folder, "cpu"), Tokenizer.from_folder(folder)
    config = model.config
    whole = retrieval_heads(model, config.layers, config.kv_heads, config.vocabulary, model.device)
    settings = {words: _spec_and_fraction(words) for words in asked.settings}
    found: dict[str, list[list[float]]] = {words: [] for words in ("", *settings)}
    divergence: dict[str, list[float]] = {words: [] for words in settings}
    for window in windows(tokenizer.encode(half_of_corpus("tune")), asked.windows, PROMPT, PREDICTED):
        prompt = read(model, window.prompt)
        ids = [window.prompt[-1], *window.continuation[:-1]]
        wanted = torch.tensor(window.continuation)[:, None]
        full = _log_probs(model, Packing(prompt, from_mapping(ours("", "").setting["kv"]), None), ids)
        found[""].append(full.gather(1, wanted)[:, 0].tolist())
        for words, (spec, fraction) in settings.items():
            stays = (
                None
                if fraction is None
                else tried.evicting(tried.sampled_mean, fraction, 128, whole)(prompt).stays
            )
            given = _log_probs(model, Packing(prompt, spec, stays), ids)
            found[words].append(given.gather(1, wanted)[:, 0].tolist())
            divergence[words].append(float((full.exp() * (full - given)).sum(-1).mean()))
    print("| setting | KL, 0.01 nats | PPL over full |\n| --- | --- | --- |")
    for words in settings:
        ratio = perplexity_ratio(found[words], found[""])
        shown = " ".join(f"{100 * (one - 1):+.2f} %" for one in (ratio.value, ratio.low, ratio.high))
        mean = 100 * sum(divergence[words]) / len(divergence[words])
        print(f"| {words} | {mean:.2f} | {shown} |")


if __name__ == "__main__":
    main()
