"""Retrieval heads of a model whose heads were made to be one."""

from collections.abc import Callable

import torch

from backends.kvcompress.contracts import Attention
from backends.kvcompress.model.retrieval import copying, retrieval_heads

VOCABULARY, SIZE = 4096, 64
Keys = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # (codes of ids, ids) -> [T, SIZE]


def echo(codes: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """A query finds its own token."""
    return codes[ids]


def induction(codes: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """A query finds what came after its own token."""
    return codes[ids.roll(1)]


def even(codes: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """A query finds everything alike."""
    return torch.zeros(len(ids), SIZE)


class Made:
    """A `Model` whose layers are lists of heads, each with two query heads of which the first asks for its token."""

    def __init__(self, *layers: list[Keys]) -> None:
        self._layers = layers
        self._codes = torch.randn(VOCABULARY, SIZE, generator=torch.Generator().manual_seed(0))

    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        attention: Attention,
        wanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        asked = torch.stack((2 * self._codes[ids], torch.zeros(len(ids), SIZE)), 1)
        for layer, heads in enumerate(self._layers):
            keys = torch.stack([head(self._codes, ids) for head in heads], 1)
            queries = asked.repeat(1, len(heads), 1)
            assert attention(layer, queries, keys, keys).shape == queries.shape
        return asked[:, 0]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


def test_heads_that_copy_are_told_from_those_that_look_at_everything() -> None:
    model = Made([even, induction, even, even], [echo, even, even, even])
    strength = copying(model, 2, 4, VOCABULARY, torch.device("cpu"))
    assert strength[0, 1] > 0.95
    assert 0.45 < strength[1, 0] < 0.55  # half of its attention is on the token itself
    assert strength.flatten().sort().values[:6].max() < 1 / 256
    found = retrieval_heads(model, 2, 4, VOCABULARY, torch.device("cpu"))
    assert found.nonzero().tolist() == [[0, 1], [1, 0]]


def test_no_more_than_a_quarter_of_the_heads_are_named_and_the_strongest_at_that() -> None:
    model = Made([echo, echo, echo, induction])
    found = retrieval_heads(model, 1, 4, VOCABULARY, torch.device("cpu"))
    assert found.tolist() == [[False, False, False, True]]


def test_the_attended_is_causal_attention() -> None:
    results = []

    class Kept(Made):
        def forward(
            self,
            ids: torch.Tensor,
            positions: torch.Tensor,
            attention: Attention,
            wanted: torch.Tensor | None = None,
        ) -> torch.Tensor:
            queries, keys, values = torch.randn(
                3, len(ids), 2, SIZE, generator=torch.Generator().manual_seed(1)
            )
            expected = torch.nn.functional.scaled_dot_product_attention(
                *(part.transpose(0, 1) for part in (queries, keys, values)), is_causal=True
            )
            results.append((attention(0, queries, keys, values), expected.transpose(0, 1)))
            return queries[:, 0]

    copying(Kept(), 1, 2, VOCABULARY, torch.device("cpu"))
    torch.testing.assert_close(*results[0])
