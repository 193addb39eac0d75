"""A model's shape, as far as the KV cache depends on it."""

from dataclasses import dataclass

BYTES_PER_VALUE = {"f32": 4.0, "bf16": 2.0, "f16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}


@dataclass(frozen=True, slots=True)
class ModelGeometry:
    """Sizes of a decoder-only transformer; context_length is the most positions it was trained for."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context_length: int

    def kv_bytes_per_token(self, kv_dtype: str) -> float:
        """Bytes of keys and values one token adds over all layers, without scales of quantised caches.

        Closed form 2 · layers · kv_heads · head_dim · bytes per value; raises KeyError for an unknown dtype.
        """
        return 2 * self.layers * self.kv_heads * self.head_dim * BYTES_PER_VALUE[kv_dtype]
