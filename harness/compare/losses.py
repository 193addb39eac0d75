"""What a setting loses in quality against the exact one, from all runs of both, whenever they were measured."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from harness.compare.baselines import baseline_of, full_weights, kv_bits, weights_baseline_of
from harness.compare.divergence import divergence_comparable, divergence_limit, divergence_loss
from harness.compare.quality import QualityLoss, comparable, loss
from harness.metrics.quality_figures import QUALITY_FIGURES
from harness.records.reader import Run

_Comparison = tuple[Callable[[Run, Run], bool], Callable[[Run, Run], QualityLoss | None]]
_SEVERITY = ("not seen", "uninformative", "safe", "inconclusive", "loses")


def losses_of(
    runs: Sequence[Run], everything: Sequence[Run], accepted: Mapping[str, float | None]
) -> tuple[tuple[QualityLoss, ...], tuple[Run, ...], bool]:
    """Losses against the exact setting, the runs of it that they are held against, and whether quality is known.

    runs: of the setting, all that are complete: what spoils a latency spoils no answer. everything: complete runs
    among which the exact ones are. accepted: by figure, the last part of its key; None: no limit.
    """
    limits = {name: limit for name, limit in accepted.items() if limit is not None}
    if not runs or not limits:
        return (), (), True
    reference = next((one for run in runs if (one := _exact(run, everything))), None)
    if reference is None:  # exact itself, or there is nothing to hold it against
        return (), (), bool(kv_bits(runs[0])) and full_weights(runs[0])
    worst = []
    for alike, compare in _comparisons(limits):
        found = []
        for run in runs:  # measured again for its quality, a setting is held against what was asked the same
            base = _exact(run, [other for other in everything if alike(other, run)])
            if base is not None and (lost := compare(base, run)) is not None:
                found.append((lost, base))
        if found:
            worst.append(worst_of(found))
    losses = tuple(one for one, _ in worst)
    references = tuple(base for _, base in worst) or (reference,)
    return losses, references, any(one.telling for one in losses)


def _comparisons(
    limits: Mapping[str, float],
) -> list[_Comparison]:
    """Of each figure with a limit: whether two runs can be compared in it, and the loss."""
    found: list[_Comparison] = [
        (partial(comparable, figure=figure), partial(loss, figure=figure, limit=limits[name]))
        for figure in QUALITY_FIGURES
        if (name := figure.path.rsplit(".", 1)[-1]) in limits
    ]
    if "perplexity" in limits:
        found.append((divergence_comparable, partial(divergence_loss, limit=divergence_limit(limits))))
    return found


def worst_of(found: Sequence[tuple[QualityLoss, Run]]) -> tuple[QualityLoss, Run]:
    """Of those that say anything the ones over the most items, of these (seeds, repeats) the worst.

    found: losses with the run each is held against; not empty.
    """
    telling = [pair for pair in found if pair[0].telling] or list(found)
    most = max(one.items for one, _ in telling)
    longest = [pair for pair in telling if pair[0].items == most]
    return max(longest, key=lambda pair: (_SEVERITY.index(pair[0].verdict), pair[0].lost))


def _exact(run: Run, everything: Sequence[Run]) -> Run | None:
    """The same engine with an exact KV cache and the model's own weights; None for itself, or if it was not run."""
    cache = baseline_of(run, everything)
    found = weights_baseline_of(cache or run, everything) or cache
    return found if found is not None and kv_bits(found) else None
