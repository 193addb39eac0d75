"""benchmarks/kv_bits: what a token after a prompt sees, against each token computed for itself."""

import pytest
import torch

from backends.kvcompress.quant.slots import dequantise, quantise
from backends.kvcompress.spec import KvSpec
from benchmarks.kv.lab import Prompt
from benchmarks.kv_bits import RECENT, SINKS, TOGETHER, Packing
from tests.support.kv import spec

LAYER, HEADS, GROUP, DIM, PROMPT, AFTER = 1, 2, 3, 16, 90, 70


@pytest.mark.parametrize("evicts", [False, True])
@pytest.mark.parametrize("packing", [spec(), spec(quant="int8", value_quant="int2", rotate=True)], ids=str)
def test_old_tokens_are_seen_as_they_are_read_back(packing: KvSpec, evicts: bool) -> None:
    torch.manual_seed(1)
    keys, values = torch.randn(2, 2, HEADS, PROMPT + AFTER, DIM)
    stays = torch.rand(2, HEADS, PROMPT) > 0.5 if evicts else None
    prompt = Prompt(keys[:, :, :PROMPT], values[:, :, :PROMPT], torch.zeros(0), torch.zeros(0))
    queries = torch.randn(AFTER + 1, HEADS * GROUP, DIM)
    new = [each[LAYER, :, PROMPT - 1 :].transpose(0, 1) for each in (keys, values)]
    found = Packing(prompt, packing, stays)(LAYER, queries, *new)
    packed = [
        torch.stack([_read_back(packing, kind, head) for head in each[LAYER]])
        for kind, each in (("keys", keys), ("values", values))
    ]
    for token in range(0, AFTER + 1, 7):
        position = PROMPT - 1 + token
        seen = torch.arange(position + 1)
        exact = (seen < SINKS) | (position - seen < RECENT + position % TOGETHER)
        for query in range(HEADS * GROUP):
            head = query // GROUP
            held = [
                torch.where(exact[:, None], plain[LAYER, head, : position + 1], coded[head, : position + 1])
                for plain, coded in zip((keys, values), packed, strict=True)
            ]
            scores = held[0] @ queries[token, query] / DIM**0.5
            if stays is not None:
                scores[: PROMPT - 1][~stays[LAYER, head, : PROMPT - 1]] = -torch.inf
            torch.testing.assert_close(found[token, query], scores.softmax(0) @ held[1], rtol=1e-4, atol=1e-5)


def _read_back(packing: KvSpec, kind: str, vectors: torch.Tensor) -> torch.Tensor:
    if packing.quant == "none":
        return vectors
    places = torch.arange(len(vectors))
    return dequantise(quantise(packing, kind, vectors, places, places))
