"""Two neighbouring layers keep one copy, as in MiniCache (Liu et al., arXiv:2405.14366).

From the middle of the model on, layers are taken in pairs. Of a token's two vectors (all KV heads together) one
direction is kept, by spherical interpolation of the two, and each layer keeps its own magnitude. Tokens whose
directions differ most stay apart: those whose cosine is within the lowest GAMMA of the range that was found.

Departures from the paper: the range of cosines is that of the first tokens that are merged, since tokens come a few
at a time while decoding; a token stays apart in keys and values alike where either differs; what is shared is written
into the lower layer, scaled by its magnitude, and the upper one keeps the ratio of the magnitudes.
"""

from dataclasses import dataclass

import torch

TOWARDS_UPPER = 0.6  # where on the arc from the lower to the upper direction, as in the paper
GAMMA = 0.05  # of the range of cosines, as in the paper
_SHORTEST = 1e-30


def lower_of(layer: int, layers: int) -> int | None:
    """The layer whose vectors this one shares, if it is the upper one of a pair."""
    middle = layers // 2
    return layer - 1 if layer > middle and (layer - middle) % 2 == 1 else None


@dataclass(frozen=True, slots=True)
class Merged:
    """shared [n, H, D]: what the lower layer holds from now on. ratio [n]: what the upper one multiplies it by.
    cosine [n]: of the two directions."""

    shared: torch.Tensor
    ratio: torch.Tensor
    cosine: torch.Tensor


def merge(lower: torch.Tensor, upper: torch.Tensor) -> Merged:
    """Of the vectors [n, H, D] of the same tokens.

    One of zeros has no direction: such a pair's cosine is -1, so that it stays apart.
    """
    below, above = lower.flatten(1), upper.flatten(1)
    lengths = torch.stack([below.norm(dim=1), above.norm(dim=1)])
    no_direction = lengths.amin(dim=0) < _SHORTEST
    from_, to = (
        below / lengths[0].clamp(min=_SHORTEST)[:, None],
        above / lengths[1].clamp(min=_SHORTEST)[:, None],
    )
    cosine = torch.where(no_direction, -1, (from_ * to).sum(dim=1).clamp(-1, 1))
    angle = torch.arccos(cosine)[:, None]
    sine = torch.sin(angle)
    # Where the two are (nearly) one direction, or opposite, the arc is no guide and the chord is.
    straight = sine < 1e-4
    first = torch.where(straight, 1 - TOWARDS_UPPER, torch.sin((1 - TOWARDS_UPPER) * angle) / sine)
    second = torch.where(straight, TOWARDS_UPPER, torch.sin(TOWARDS_UPPER * angle) / sine)
    direction = torch.nn.functional.normalize(first * from_ + second * to, dim=1)
    shared = (direction * lengths[0][:, None]).reshape(lower.shape)
    return Merged(shared, torch.where(no_direction, 0, lengths[1] / lengths[0].clamp(min=_SHORTEST)), cosine)
