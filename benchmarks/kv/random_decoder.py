"""A decoder with random weights in any shape, on any device, and the torch store to run it over."""

from collections.abc import Sequence

import torch

from backends.kvcompress.attention import PagedAttention
from backends.kvcompress.contracts import Pass
from backends.kvcompress.model.config import DecoderConfig
from backends.kvcompress.model.decoder import Decoder
from backends.kvcompress.model.linear import DenseLinear
from backends.kvcompress.model.rope import RopeConfig, RotaryPositions
from backends.kvcompress.model.weights import DecoderWeights, LayerWeights
from backends.kvcompress.spec import KvSpec, from_mapping
from backends.kvcompress.store_torch import TorchStore
from benchmarks.kv.settings import ours

TINY = DecoderConfig(
    family="llama",
    hidden=128,
    inner=256,
    layers=4,
    heads=8,
    kv_heads=2,
    head_dim=32,
    vocabulary=500,
    context_length=512,
    window=None,
    norm_eps=1e-5,
    qkv_bias=False,
    output_bias=False,
    mlp_bias=False,
    head_norms=False,
    tied=False,
    rope=RopeConfig(10_000.0, "default", {}),
)


def spec_of(words: str) -> KvSpec:
    """As `settings.ours` reads it."""
    return from_mapping(ours(words, words).setting["kv"])


def random_decoder(config: DecoderConfig, device: torch.device, dtype: torch.dtype) -> Decoder:
    """The same values for the same shape and kind of device; the tiny shape's are made on the CPU, so on all."""
    made_on = torch.device("cpu") if config.hidden < 1024 else device
    generator = torch.Generator(made_on).manual_seed(0)

    def matrix(rows: int, columns: int, gain: float = 1.5) -> torch.Tensor:
        made = torch.empty(
            rows, columns, device=made_on, dtype=torch.float32 if made_on.type == "cpu" else dtype
        )
        return made.normal_(std=gain * columns**-0.5, generator=generator).to(device, dtype)

    def norm() -> torch.Tensor:
        return torch.ones(config.hidden, device=device, dtype=dtype)

    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    layers = tuple(
        LayerWeights(
            attention_norm=norm(),
            qkv=DenseLinear(matrix(q + 2 * kv, config.hidden), None),
            output=DenseLinear(matrix(config.hidden, q), None),
            query_norm=None,
            key_norm=None,
            mlp_norm=norm(),
            gate_up=DenseLinear(matrix(2 * config.inner, config.hidden), None),
            down=DenseLinear(matrix(config.hidden, config.inner), None),
        )
        for _ in range(config.layers)
    )
    embedding = matrix(config.vocabulary, config.hidden, gain=30)
    head = DenseLinear(matrix(config.vocabulary, config.hidden), None)
    weights = DecoderWeights(embedding, layers, norm(), head)
    return Decoder(config, weights, RotaryPositions(config.rope, config.head_dim, device), device)


class Run:
    """Requests over one model and a torch store of its own."""

    def __init__(self, model: Decoder, dtype: torch.dtype, pool_bytes: int = 1 << 26) -> None:
        config = model.config
        self._model = model
        self._store = TorchStore(
            config.layers, config.kv_heads, config.head_dim, pool_bytes, dtype, model.device
        )
        self._attention = PagedAttention(self._store, config.layers, config.kv_heads, model.rope)
        self._rows: list[int] = []
        self._seen = 0
        self._ids = torch.empty(0)

    def logits(self, spec: KvSpec, ids: torch.Tensor, prompt: int, chunk: int) -> torch.Tensor:
        """float32 [n, vocabulary] on the CPU: after the prompt, read in chunks, and after each later one of ids."""
        row = self._attention.open(spec, prompt)
        found = []
        starts: Sequence[int] = [*range(0, prompt, chunk), *range(prompt, len(ids))]
        for first, end in zip(starts, [*starts[1:], len(ids)], strict=True):
            read = end - first if first < prompt else 0
            hidden = self._pass([row] * (end - first), ids[first:end], range(first, end), read, end == prompt)
            if end >= prompt:
                found.append(self._model.logits(hidden[-1:]).cpu())
        self._attention.close(row)
        return torch.cat(found)

    def fill(self, spec: KvSpec, batch: int, context: int) -> None:
        """Requests that hold random keys and values of `context` tokens, or of those that their budget leaves."""
        config, device = self._model.config, self._model.device
        self._rows = [self._attention.open(spec, context) for _ in range(batch)]
        self._seen = context
        self._ids = torch.zeros(batch, dtype=torch.int64)
        slots = context if spec.budget.fraction is None else int(context * spec.budget.fraction)
        positions = torch.linspace(0, context - 1, slots).round().long().to(device)
        for row in self._rows:
            rows = torch.full((slots,), row, dtype=torch.int32)
            for layer in range(config.layers):
                shape = (slots, config.kv_heads, config.head_dim)
                keys, values = torch.randn(2, *shape, device=device).to(self._model.weights.norm.dtype)
                self._store.append(layer, rows, positions, keys, values)
                self._attention._requests[row].next[layer] = context

    def step(self) -> None:
        """One token more for everybody."""
        places = range(self._seen, self._seen + 1)
        hidden = self._pass(self._rows, self._ids, places, 0, False)
        self._ids = self._model.logits(hidden).argmax(-1)
        self._seen += 1

    def held_bytes(self) -> int:
        """By the store's own count."""
        return self._store.used_bytes()

    def _pass(
        self, rows: list[int], ids: torch.Tensor, places: range, chunk: int, ends_prompt: bool
    ) -> torch.Tensor:
        """The last layer's output; one place stands for all rows."""
        device = self._model.device
        positions = torch.tensor(list(places), device=device).expand(len(rows))
        self._attention.begin(
            Pass(torch.tensor(rows, dtype=torch.int32, device=device), positions, chunk, ends_prompt)
        )
        return self._model.forward(ids.to(device), positions, self._attention)
