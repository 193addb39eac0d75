"""The forward pass of a Llama-like decoder over flat tokens: any tokens of any requests, the weights read once.

It knows no batch and no cache: whose tokens they are, and what they attend to, is the attention's own business.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.functional import silu

from backends.kvcompress.contracts import Attention
from backends.kvcompress.model.config import DecoderConfig, read_config
from backends.kvcompress.model.norms import normed
from backends.kvcompress.model.rope import RotaryPositions, turned
from backends.kvcompress.model.weights import DecoderWeights, LayerWeights, load_weights


@dataclass(frozen=True, slots=True)
class Decoder:
    """A model on its device. The forward pass keeps nothing between calls."""

    config: DecoderConfig
    weights: DecoderWeights
    rope: RotaryPositions
    device: torch.device

    @torch.inference_mode()
    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        attention: Attention,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """ids [T] and positions [T] (integers) -> the last layer's output [T, hidden], before the final norm.

        wanted [N]: indices of the tokens whose output is needed; the others end where the last layer has attended,
        and the result is [N, hidden]. What `attention` is given are views that need not be contiguous.
        """
        cosines, sines = (
            (self.rope.scale * table).unsqueeze(1).to(self.weights.norm.dtype)
            for table in self.rope.tables(positions)
        )
        hidden = self.weights.embedding[ids].to(self.weights.norm.dtype)
        last = len(self.weights.layers) - 1
        for number, layer in enumerate(self.weights.layers):
            queries, keys, values = self._heads(layer, hidden, cosines, sines)
            attended = attention(number, queries, keys, values).flatten(1)
            if number == last and wanted is not None:
                hidden, attended = hidden[wanted], attended[wanted]
            hidden = hidden + layer.output(attended)
            hidden += self._mlp(layer, hidden)
        return hidden

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Of what `forward` returns: [N, hidden] -> float32 [N, vocabulary]."""
        return self.weights.head(self._normed(hidden, self.weights.norm)).float()

    def _heads(
        self, layer: LayerWeights, hidden: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        heads, kv_heads = self.config.heads, self.config.kv_heads
        normed = self._normed(hidden, layer.attention_norm)
        together = layer.qkv(normed).view(hidden.shape[0], heads + 2 * kv_heads, self.config.head_dim)
        rotated = together[:, : heads + kv_heads]
        if layer.query_norm is not None and layer.key_norm is not None:
            rotated = torch.cat(
                (
                    self._normed(together[:, :heads], layer.query_norm),
                    self._normed(together[:, heads : heads + kv_heads], layer.key_norm),
                ),
                1,
            )
        rotated = turned(rotated, cosines, sines)
        return rotated[:, :heads], rotated[:, heads:], together[:, heads + kv_heads :]

    def _mlp(self, layer: LayerWeights, hidden: torch.Tensor) -> torch.Tensor:
        normed = self._normed(hidden, layer.mlp_norm)
        gate, up = layer.gate_up(normed).chunk(2, 1)
        return layer.down(silu(gate).mul_(up))

    def _normed(self, values: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return normed(values, weight, self.config.norm_eps)


def load_decoder(folder: Path, device: str, weight_dtype: str | None = None) -> Decoder:
    """The model in `folder` (Hugging Face layout, safetensors) on `device`; raises ModelError for what is unknown.

    weight_dtype: "int8" rounds the matrices, on a CPU; anything else computes with the values as they are stored.
    """
    where = torch.device(device)
    config = read_config(folder)
    weights = load_weights(folder, config, where, weight_dtype == "int8")
    return Decoder(config, weights, RotaryPositions(config.rope, config.head_dim, where), where)
