"""Which KV heads fetch from far back: measured once for a model, on random tokens that repeat.

Few heads of a decoder copy: at a token that stood in the context before they attend to that place ("echo") or to what
came after it ("induction"). What such a head has lost cannot be said again, while the others live on what is near and
on little else. Random tokens tell the two apart, since nothing but the repetition can be attended to. The measure is
RazorAttention's (Tang et al. 2024, arXiv 2407.15891); retrieval heads as such: Wu et al. 2024, arXiv 2404.15574.
"""

import torch

from backends.kvcompress.contracts import Model

_REPEATED = 128  # tokens
_BETWEEN = 128  # tokens, more than what heads that look at their neighbours reach
_SEED = 5
_LEAST = 0.02  # mean attention to the earlier place; what is spread evenly over the context has 0.0026
_MOST = 0.25  # of all heads


@torch.inference_mode()
def retrieval_heads(
    model: Model, layers: int, heads: int, vocabulary: int, device: torch.device
) -> torch.Tensor:
    """[layers, heads] bool: at most a quarter of the KV heads, the ones that attend most to a token's earlier place.

    One forward pass over 384 tokens.
    """
    strength = copying(model, layers, heads, vocabulary, device)
    most = max(1, int(_MOST * strength.numel()))
    weakest = strength.flatten().sort(descending=True).values[most - 1]
    return (strength >= _LEAST) & (strength >= weakest)


@torch.inference_mode()
def copying(model: Model, layers: int, heads: int, vocabulary: int, device: torch.device) -> torch.Tensor:
    """[layers, heads], 0 to 1: the mean attention of a repeated token to its earlier place, or to what came after it,
    whichever is more, of the KV head's query head that has most."""
    generator = torch.Generator().manual_seed(_SEED)
    # The ends of a vocabulary hold special tokens and single bytes.
    repeated, between = (
        torch.randint(vocabulary // 16, vocabulary - vocabulary // 16, (n,), generator=generator)
        for n in (_REPEATED, _BETWEEN)
    )
    ids = torch.cat((repeated, between, repeated)).to(device)
    observed = _Observed(layers, heads, len(repeated), len(repeated) + len(between))
    model.forward(ids, torch.arange(len(ids), device=device), observed)
    return observed.strength


class _Observed:
    """Fulfils `contracts.Attention` for one sequence; the last `repeated` tokens stood `distance` earlier, too."""

    def __init__(self, layers: int, heads: int, repeated: int, distance: int) -> None:
        self.strength = torch.zeros(layers, heads)
        self._repeated = repeated
        self._distance = distance

    def __call__(
        self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        tokens, heads, size = keys.shape
        folded = queries.view(tokens, heads, -1, size).permute(1, 2, 0, 3).float()  # [H, Q/H, T, D]
        scores = folded @ keys.permute(1, 2, 0)[:, None].float() * size**-0.5
        later = torch.ones(tokens, tokens, dtype=torch.bool, device=keys.device).triu(1)
        given = torch.softmax(scores.masked_fill(later, -torch.inf), -1)
        echo, induction = (
            given.diagonal(shift - self._distance, -2, -1)[..., shift : shift + self._repeated - 1].mean(-1)
            for shift in (0, 1)
        )
        self.strength[layer] = torch.maximum(echo, induction).amax(1)
        result = given @ values.transpose(0, 1)[:, None].float()
        return result.permute(2, 0, 1, 3).reshape(queries.shape).to(queries.dtype)
