"""Expected attention: what queries yet to come will give, from the distribution of those that were."""

import torch

from backends.kvcompress.contracts import LayerView, Rope


class ExpectedAttention:
    """Expected attention (Devoto et al. 2025, arXiv 2510.00636).

    Granularity: slots of each KV head. Queries are taken as normal in each query head; mean and covariance come from
    the latest WINDOW ones before rotation, and are rotated by the average over the FUTURE positions that follow. The
    expectation of exp(q·k) is normalised over the slots but the sinks, averaged over the query heads of a KV head,
    and weighted by the value's norm. Departures: the paper takes all queries of the prompt. While decoding, for which
    nothing but the slots is held, the attention of the latest queries stands for what is expected, decayed by
    1/DECODED a query.
    """

    WINDOW = 512
    FUTURE = 512
    DECODED = 64

    name = "expected_attention"
    attention: float | None = 1 - 1 / DECODED
    window = WINDOW
    sample = 0
    vectors = True

    def __init__(self) -> None:
        self._average: torch.Tensor | None = None

    def score(self, view: LayerView) -> torch.Tensor:
        """[H, n]."""
        slots = view.slots
        strength = torch.linalg.vector_norm(slots.values, dim=-1, dtype=torch.float32)
        if view.queries is None or view.query_positions is None:
            return slots.attention * strength
        plain = view.rope.rotate(view.queries.float(), -view.query_positions)
        later = plain[:, view.query_positions >= view.sinks]
        if not later.shape[1]:
            later = plain
        average = view.rope.rotate(
            self._future(view.rope, plain), torch.tensor(view.seen, device=plain.device)
        )
        return self._expected(view, later, average) * strength

    def _expected(self, view: LayerView, queries: torch.Tensor, average: torch.Tensor) -> torch.Tensor:
        """queries [Q, w, D] before rotation, average [D, D], of row vectors: [H, n]."""
        slots = view.slots
        heads, size = len(slots.keys), queries.shape[-1]
        mean = queries.mean(1, keepdim=True)
        apart = queries - mean
        mean = (mean @ average).unflatten(0, (heads, -1))
        spread = (average.T @ (apart.mT @ apart / apart.shape[1]) @ average).unflatten(0, (heads, -1))
        keys = slots.keys.float()[:, None]
        exponents = (keys @ mean.mT)[..., 0] / size**0.5
        exponents += ((keys @ spread) * keys).sum(-1) / (2 * size)
        # Sinks stay whatever they get, and would hide what is left to the others in heads that attend to little else.
        unasked = (slots.positions < view.sinks) | (slots.positions < 0)
        exponents.masked_fill_(unasked[:, None], -torch.inf)
        return torch.softmax(exponents, -1).mean(1)

    def _future(self, rope: Rope, like: torch.Tensor) -> torch.Tensor:
        """The rotations by 0 … FUTURE - 1 positions, averaged: [D, D], of row vectors. One request has one `rope`."""
        if self._average is None:
            unit = torch.eye(like.shape[-1], device=like.device)
            self._average = rope.rotate(unit, torch.arange(self.FUTURE, device=like.device)[:, None]).mean(0)
        return self._average
