"""What is planned for: a model, its precisions, a KV policy and the hardware; and the memory that this takes."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from harness.core.errors import UsageError
from harness.plan.geometry import Geometry
from harness.plan.policy import Policy
from harness.plan.precision import Precision


@dataclass(frozen=True)
class Hardware:
    """One device. memory_bytes: all of it; usable: the share an engine may fill with weights and KV, the rest is
    for activations and the driver. bytes_per_s, flops...: peaks, dense; None where no source is known.
    """

    name: str
    title: str
    memory_bytes: float
    usable: float
    bytes_per_s: float | None
    flops: float | None
    flops_f32: float | None
    flops_fp8: float | None
    flops_int8: float | None
    price_per_hour: float | None
    currency: str
    source: str
    price_source: str | None

    def flops_for(self, dtype: str) -> float | None:
        """Operations per second at which weights of this dtype are multiplied.

        8-bit weights at the 8-bit rate where there is one; 4-bit weights are unpacked and multiplied in 16 bit.
        """
        if dtype == "f32":
            return self.flops_f32
        eight_bit = {"fp8": self.flops_fp8, "int8": self.flops_int8}.get(dtype)
        return eight_bit or self.flops


@dataclass(frozen=True)
class Setting:
    """A model on `devices` devices that split its heads and matrices evenly (tensor parallelism)."""

    geometry: Geometry
    weights: Precision
    kv: Precision
    policy: Policy
    hardware: Hardware
    devices: int = 1

    def __post_init__(self) -> None:
        if self.devices < 1 or self.geometry.heads % self.devices:
            raise UsageError(
                f"devices={self.devices}: the {self.geometry.heads} attention heads of {self.geometry.name} "
                "must divide evenly among the devices."
            )

    @property
    def embedding_bytes(self) -> float:
        """Bytes of one value of the embedding and the output head: 2 where the other weights are quantised, since
        quantised checkpoints leave those in 16 bit.
        """
        return 2.0 if self.weights.quantised else self.weights.bytes_per_value

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights, on all devices together."""
        g = self.geometry
        return g.matrices() * self.weights.bytes_per_value + (g.embeddings + g.vectors) * self.embedding_bytes

    @property
    def kv_copies(self) -> float:
        """How often each KV head is stored: more than once where there are fewer of them than devices."""
        heads = 1 if self.geometry.latent else self.geometry.kv_heads
        return max(1.0, self.devices / heads)

    def kv_bytes(self, tokens: int) -> float:
        """Bytes of KV of one request that has read and written so many tokens."""
        g, kept = self.geometry, self.policy.kept(tokens)
        in_window = min(kept, g.window) if g.window is not None else 0
        token_layers = g.full_layers * kept + g.window_layers * in_window
        return token_layers * g.kv_values * self.kv.bytes_per_value * self.kv_copies

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes that one token adds while no window and no budget is full."""
        return self.geometry.layers * self.geometry.kv_values * self.kv.bytes_per_value * self.kv_copies

    @property
    def memory_bytes(self) -> float:
        """Of all devices."""
        return self.hardware.memory_bytes * self.devices

    @property
    def usable_bytes(self) -> float:
        """What weights and KV may fill."""
        return self.memory_bytes * self.hardware.usable

    @property
    def kv_room(self) -> float:
        """What the weights leave for KV; negative where they do not fit themselves."""
        return self.usable_bytes - self.weight_bytes

    def needed_bytes(self, users: int, context: int) -> float:
        """Weights and the KV of so many requests of that length."""
        return self.weight_bytes + users * self.kv_bytes(context)

    def fits(self, users: int, context: int) -> bool:
        """Whether that many requests of that length find room at once."""
        return self.needed_bytes(users, context) <= self.usable_bytes

    def most_users(self, context: int) -> int:
        """Most requests of that length at once."""
        return max(0, math.floor(self.kv_room / self.kv_bytes(context)))

    def longest_context(self, users: int) -> int:
        """Most tokens that each of so many requests can hold, at most what the model was trained for; 0: none."""
        return largest(lambda tokens: self.fits(users, tokens), self.geometry.context_length)

    @property
    def bytes_per_s(self) -> float | None:
        """Memory bandwidth of all devices."""
        return None if self.hardware.bytes_per_s is None else self.hardware.bytes_per_s * self.devices

    @property
    def flops(self) -> float | None:
        """Operations per second of all devices at the precision of the weights."""
        rate = self.hardware.flops_for(self.weights.dtype)
        return None if rate is None else rate * self.devices

    @property
    def price_per_hour(self) -> float | None:
        """Of all devices."""
        return None if self.hardware.price_per_hour is None else self.hardware.price_per_hour * self.devices


def largest(holds: Callable[[int], bool], most: int) -> int:
    """The largest number from 1 to `most` for which a condition holds that only ever turns false; 0 for none."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
