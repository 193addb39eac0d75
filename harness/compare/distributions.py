"""How far two runs' distributions of the next token lie apart, over the same real text.

Kullback-Leibler divergence D(p ‖ q) = Σ p log(p / q), p of the baseline, in nats a token. Engines tell the text's own
token and some of the most probable ones, so what is computed is a lower bound: tokens of which both runs know the
probability stand alone, all others are one bucket, and merging outcomes never raises a divergence (the log-sum
inequality; Cover and Thomas 2006, theorem 2.7.1). With 20 alternatives the bucket is small; where an engine tells the
text's own token only, the bound is weak, and a small one proves nothing.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.compare.resampling import interval_of_mean

if TYPE_CHECKING:
    import pandas as pd

_PLACE = ["prompt", "position"]
_SMALLEST = 1e-9  # a probability that was rounded away


@dataclass(frozen=True, slots=True)
class Distance:
    """How far apart two runs are.

    nats: mean lower bound of the divergence a token, over positions. interval: 95 %, by resampling prompts, None for
    fewer than two. told: share of the baseline's probability that does not lie in the bucket, mean over positions.
    same_best: share of positions with the same most probable token, None where only the text's own token is known.
    """

    nats: float
    interval: tuple[float, float] | None
    told: float
    same_best: float | None
    positions: int
    prompts: int


def distance(baseline: "pd.DataFrame", candidate: "pd.DataFrame") -> Distance | None:
    """Compare two tables of schema.NEXT_TOKEN_COLUMNS; None where they are not of the same positions, or empty."""
    places = [set(map(tuple, table[_PLACE].drop_duplicates().to_numpy())) for table in (baseline, candidate)]
    if not places[0] or places[0] != places[1]:
        return None
    known = baseline.merge(candidate, on=[*_PLACE, "token"], suffixes=("_p", "_q"))
    p, q = (np.exp(known[f"log_prob_{side}"].to_numpy(dtype=float)) for side in "pq")
    known = known[_PLACE].assign(p=p, q=q, each=p * (known["log_prob_p"] - known["log_prob_q"]))
    sums = known.groupby(_PLACE).sum()
    rest_p, rest_q = ((1 - sums[side]).clip(lower=_SMALLEST) for side in "pq")
    nats = (sums["each"] + rest_p * np.log(rest_p / rest_q)).clip(lower=0)
    by_prompt = nats.groupby("prompt").mean()
    return Distance(
        nats=float(nats.mean()),
        interval=interval_of_mean(by_prompt.to_numpy()),
        told=float(sums["p"].clip(upper=1).mean()),
        same_best=float((_best(baseline) == _best(candidate)).mean()) if len(known) > len(nats) else None,
        positions=len(nats),
        prompts=len(by_prompt),
    )


def _best(table: "pd.DataFrame") -> "pd.Series[int]":
    order = table.sort_values([*_PLACE, "log_prob", "token"], ascending=[True, True, False, True])
    return order.groupby(_PLACE)["token"].first()
