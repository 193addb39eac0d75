"""Slots of an upper layer whose vectors lie in the layer below (`quant.minicache`), for `store_torch`.

They hold no vectors, but a pointer to the lower layer's slot and the ratio of the magnitudes. They lie beside the
pool and are smaller by far than the slots that they free.
"""

from dataclasses import dataclass, replace

import torch

from backends.kvcompress.contracts import Slots
from backends.kvcompress.quant.minicache import GAMMA, merge
from backends.kvcompress.store_torch_pool import Pool


@dataclass(frozen=True, slots=True)
class SharedSlots:
    """Of one layer of one request. owners int64 [H, m]: slots of the pool. ratios float32 [2, m], of keys and values;
    attention [H, m]. lowest: cosines of keys and values [2] below which tokens stay apart."""

    owners: torch.Tensor
    ratios: torch.Tensor
    attention: torch.Tensor
    lowest: torch.Tensor

    @property
    def nbytes(self) -> int:
        """Of everything."""
        return sum(t.nbytes for t in (self.owners, self.ratios, self.attention, self.lowest))

    def read(self, pool: Pool, vectors: bool) -> Slots:
        """As if they were held here."""
        owned = pool.read(self.owners, torch.ones_like(self.owners, dtype=torch.bool), vectors)
        factors = self.ratios[:, None, : owned.keys.shape[1], None]
        return replace(
            owned, keys=owned.keys * factors[0], values=owned.values * factors[1], attention=self.attention
        )


def joined(first: Slots, second: Slots) -> Slots:
    """The slots of both."""
    names = ("keys", "values", "positions", "packed", "attention")
    return Slots(*(torch.cat([getattr(first, name), getattr(second, name)], dim=1) for name in names))


def share(
    pool: Pool, held: SharedSlots | None, lower: torch.Tensor, upper: torch.Tensor
) -> tuple[SharedSlots, torch.Tensor]:
    """Merge the slots `upper` with `lower` [H, n], both of the same tokens: what the upper layer shares from now on,
    and which tokens [n] it shares of these. The vectors of `lower` change where they are shared."""
    vectors = (pool.keys, pool.values)
    merged = [merge(v[lower].float().transpose(0, 1), v[upper].float().transpose(0, 1)) for v in vectors]
    cosines = torch.stack([each.cosine for each in merged])
    if held is None:
        low, high = cosines.amin(dim=1), cosines.amax(dim=1)
        heads, device = len(lower), lower.device
        held = SharedSlots(
            lower[:, :0], torch.zeros(2, 0, device=device), torch.zeros(heads, 0, device=device),
            low + GAMMA * (high - low),
        )  # fmt: skip
    alike = (cosines >= held.lowest[:, None]).all(dim=0)
    for pooled, each in zip(vectors, merged, strict=True):
        pooled[lower[:, alike]] = each.shared[alike].transpose(0, 1).to(pooled.dtype)
    return SharedSlots(
        torch.cat([held.owners, lower[:, alike]], dim=1),
        torch.cat([held.ratios, torch.stack([each.ratio[alike] for each in merged])], dim=1),
        torch.cat([held.attention, pool.attention[upper[:, alike]]], dim=1),
        held.lowest,
    ), alike
