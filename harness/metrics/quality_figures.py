"""The figures of quality that a run's summary may hold: their keys, for whoever shows or compares them.

Every task that is scored by item keeps, beside its figure `T`, `T_interval` (95 %), `T_chance`, `T_items` (count),
`T_right` (by item, in drawn order: two runs with the same options pair item by item), `T_log_probs` where options are
scored and `T_cells` where items have a length, depth or grade.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QualityFigure:
    """One figure. task: what to ask for in `quality=TASK`. path: its key in a run's summary.

    items: key of the values by item, by which two runs are compared pairwise (of perplexity: Σ −log p of each window,
    whose tokens are under `quality.window_tokens`). chance: key of the share that guessing gives, None where there is
    no such level.
    """

    task: str
    path: str
    label: str
    higher_is_better: bool
    items: str
    chance: str | None

    @property
    def interval(self) -> str:
        """Key of the 95 % interval, a pair [low, high]."""
        return f"{self.path}_interval"


def _share(task: str, figure: str, label: str) -> QualityFigure:
    path = f"quality.{figure}"
    return QualityFigure(task, path, label, True, f"{path}_right", f"{path}_chance")


QUALITY_FIGURES = (
    QualityFigure("perplexity", "quality.perplexity", "perplexity", False, "quality.window_nll", None),
    _share("recall", "recall", "recall"),
    _share("rag", "rag", "RAG answers"),
    _share("rag", "rag_options", "RAG options"),
    _share("summary", "summary", "summary facts"),
    _share("summary", "summary_options", "summary options"),
    _share("reasoning", "reasoning", "reasoning"),
)
