"""From logits to tokens and log-probabilities, for engines that leave this to their caller."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from backends.serving.engine import Alternatives, Sampling

Logits = npt.NDArray[np.float32]


class Sampler:
    """One request's choice of tokens; its random numbers are its own, so no other request changes its answer."""

    def __init__(self, sampling: Sampling, eos_ids: Sequence[int]) -> None:
        self._sampling = sampling
        self._eos_ids = list(eos_ids)
        self._random = np.random.default_rng(sampling.seed)

    def choose(self, logits: Logits, generated: int) -> int:
        """The next token, given the logits [vocabulary] and how many tokens there are already."""
        if generated < self._sampling.min_tokens and self._eos_ids:
            logits = logits.copy()
            logits[self._eos_ids] = -np.inf
        if self._sampling.temperature == 0:
            return int(logits.argmax())
        wide = logits.astype(np.float64)
        # Near temperature 0 what is below the best becomes -inf, and e to that 0.
        with np.errstate(over="ignore"):
            weights = np.exp((wide - wide.max()) / self._sampling.temperature)
        weights /= weights.sum()
        if self._sampling.top_p < 1:
            return self._from_nucleus(weights)
        return int(self._random.choice(len(weights), p=weights))

    def _from_nucleus(self, weights: npt.NDArray[np.float64]) -> int:
        """Of the fewest most probable tokens that together reach top_p."""
        order = np.argsort(-weights, kind="stable")
        reached = np.cumsum(weights[order])
        order = order[: int(np.searchsorted(reached, self._sampling.top_p)) + 1]
        return int(self._random.choice(order, p=weights[order] / weights[order].sum()))


def log_probabilities(logits: Logits, tokens: Sequence[int]) -> list[float]:
    """Natural logs of the model's own probabilities: logits [n, vocabulary], one token for each row."""
    chosen = logits[np.arange(len(tokens)), list(tokens)].astype(np.float64)
    found: list[float] = (chosen - _totals(logits)).tolist()
    return found


def most_probable(logits: Logits, count: int) -> list[Alternatives]:
    """The `count` most probable tokens of each row of logits [n, vocabulary]; equal ones by their ids."""
    count = min(count, logits.shape[-1])
    totals = _totals(logits)
    found = []
    for row, total in zip(logits, totals, strict=True):
        chosen = np.argpartition(-row, count - 1)[:count]
        chosen = chosen[np.lexsort((chosen, -row[chosen]))]
        found.append(
            tuple(zip(chosen.tolist(), (row[chosen].astype(np.float64) - total).tolist(), strict=True))
        )
    return found


def _totals(logits: Logits) -> npt.NDArray[np.float64]:
    """The log of each row's sum of exponentials, which turns logits into log-probabilities.

    Exponentials have the precision of the logits, which is all that these allow: in 64 bits they took as long as a
    fifth of the whole model. Their sum, of as many as the vocabulary has, is one of 64 bits.
    """
    most = logits.max(axis=-1)
    sums = np.exp(logits - most[:, None]).sum(axis=-1, dtype=np.float64)
    totals: npt.NDArray[np.float64] = np.log(sums) + most.astype(np.float64)
    return totals
