"""The decoder's logits against transformers', family by family, and a flat batch against each request alone."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from backends.kvcompress.model.decoder import Decoder, load_decoder
from backends.kvcompress.model.dense import DenseAttention
from harness.core.errors import UsageError
from harness.core.hf_layout import hf_folder
from tests.support.model import embedded_model
from tests.support.tiny_models import reference_logits, tiny_model, written

RELATIVE = 1e-3  # of the largest logit
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama 2: a KV head per query head": ("llama", {"num_key_value_heads": 6}),
    "llama 3.1: grouped heads, scaled positions": ("llama", {"rope_parameters": LLAMA3}),
    "llama with biases and wide heads": ("llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 16}),
    "llama, linear positions": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.5}},
    ),
    "llama, dynamic positions within the trained length": (
        "llama",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
    ),
    "smollm2: tied": ("llama", {"tie_word_embeddings": True}),
    "mistral, within its window": ("mistral", {"sliding_window": 64}),
    "qwen2.5: biases": ("qwen2", {}),
    "qwen2.5, tied, yarn": ("qwen2", {"tie_word_embeddings": True, "rope_parameters": YARN}),
    "qwen3: norms of queries and keys": ("qwen3", {"head_dim": 16, "rope_parameters": YARN}),
}


def attention_of(decoder: Decoder, capacity: int, requests: int = 1) -> DenseAttention:
    config = decoder.config
    return DenseAttention(config.layers, config.kv_heads, config.head_dim, capacity, requests)


def in_chunks(decoder: Decoder, ids: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    """Logits [T, vocabulary] of one request, read `sizes` tokens at a time."""
    attention = attention_of(decoder, len(ids))
    parts, start = [], 0
    for size in sizes:
        attention.expect([(0, size)])
        positions = torch.arange(start, start + size)
        parts.append(decoder.logits(decoder.forward(ids[start : start + size], positions, attention)))
        start += size
    return torch.cat(parts)


def assert_close(ours: torch.Tensor, truth: torch.Tensor) -> None:
    assert ours.shape == truth.shape
    assert (ours - truth).abs().max() <= RELATIVE * truth.abs().max()


@pytest.mark.parametrize("name", MODELS)
def test_logits_of_each_family(name: str, tmp_path: Path) -> None:
    family, changes = MODELS[name]
    model = tiny_model(family, **changes)
    decoder = load_decoder(written(model, tmp_path), "cpu")
    ids = torch.randint(0, decoder.config.vocabulary, (40,), generator=torch.Generator().manual_seed(1))
    assert_close(in_chunks(decoder, ids, [40]), reference_logits(model, ids))


def test_logits_of_smollm2() -> None:
    folder = hf_folder(embedded_model())
    decoder = load_decoder(folder, "cpu")
    ids = torch.tensor(
        embedded_model().tokenizer().encode("The cache of keys and values grows by one token a step.")
    )
    truth = reference_logits(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), ids)
    assert_close(in_chunks(decoder, ids, [len(ids) - 1, 1]), truth)


def test_weights_in_int8_are_near(tmp_path: Path) -> None:
    """Near, and not the same: the rounding is there, and of the size that 254 steps a row have."""
    model = tiny_model("qwen2", tie_word_embeddings=True)
    decoder = load_decoder(written(model, tmp_path), "cpu", "int8")
    ids = torch.arange(40) % 97
    truth = reference_logits(model, ids)
    error = (in_chunks(decoder, ids, [39, 1]) - truth).norm() / truth.norm()
    assert 1e-3 < error < 0.05


def test_a_prompt_in_chunks_is_the_prompt_at_once(tmp_path: Path) -> None:
    decoder = load_decoder(written(tiny_model("qwen3"), tmp_path), "cpu")
    ids = torch.arange(40) % 97
    assert_close(in_chunks(decoder, ids, [7, 1, 1, 20, 11]), in_chunks(decoder, ids, [40]))


def test_a_flat_batch_is_each_request_alone(tmp_path: Path) -> None:
    """Three requests at different positions: one reads a chunk, two decode, in an order that is not theirs."""
    decoder = load_decoder(written(tiny_model("llama", rope_parameters=LLAMA3), tmp_path), "cpu")
    texts = [torch.arange(start, start + 30) % 97 for start in (3, 41, 60)]
    attention = attention_of(decoder, 30, requests=3)
    attention.expect([(0, 10), (1, 5), (2, 20)])
    first = torch.cat((texts[0][:10], texts[1][:5], texts[2][:20]))
    decoder.forward(first, torch.cat([torch.arange(size) for size in (10, 5, 20)]), attention)
    attention.expect([(2, 1), (1, 8), (0, 1)])
    ids = torch.cat((texts[2][20:21], texts[1][5:13], texts[0][10:11]))
    positions = torch.tensor([20, *range(5, 13), 10])
    wanted = torch.tensor([9, 0, 8])  # of each request the last token, the requests in order 0, 2, 1
    logits = decoder.logits(decoder.forward(ids, positions, attention, wanted))
    alone = [
        in_chunks(decoder, text[:length], [length])[-1]
        for text, length in zip(texts, (11, 13, 21), strict=True)
    ]
    assert_close(logits, torch.stack([alone[0], alone[2], alone[1]]))


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_another_device_computes_in_bfloat16_and_answers_in_float32(family: str, tmp_path: Path) -> None:
    """On PyTorch's device without storage: every operand is where the others are, and of their type."""
    decoder = load_decoder(written(tiny_model(family), tmp_path), "meta")
    seen: list[torch.dtype] = []

    def attention(
        layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        seen.extend((queries.dtype, keys.dtype, values.dtype))
        return queries

    ids = torch.zeros(5, dtype=torch.int64, device="meta")
    hidden = decoder.forward(ids, ids, attention, ids[:2])
    assert {*seen} == {torch.bfloat16} and len(seen) == 3 * decoder.config.layers
    logits = decoder.logits(hidden)
    assert (logits.dtype, logits.shape, logits.device.type) == (torch.float32, (2, 97), "meta")


def test_int8_is_refused_where_it_is_not_computed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="weight_dtype=null"):
        load_decoder(written(tiny_model("llama"), tmp_path), "meta", "int8")
