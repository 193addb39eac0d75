"""What advice is asked for, as Hydra composes it from conf/advise/; every default lives there."""

from dataclasses import dataclass, field

from omegaconf import MISSING

from harness.composing import Command, Group
from harness.metrics.slo import SloOptions


@dataclass
class LossOptions:
    """The loss that is accepted by figure of quality, as a share of 1: of perplexity relative, of right answers in
    points. null: no limit.
    """

    name: str = MISSING
    perplexity: float | None = MISSING
    recall: float | None = MISSING
    rag: float | None = MISSING
    rag_options: float | None = MISSING
    summary: float | None = MISSING
    reasoning: float | None = MISSING


@dataclass
class PriceOptions:
    """What the machine costs, for all runs; null: as each was recorded."""

    price_per_hour: float | None = MISSING
    currency: str | None = MISSING


@dataclass
class AdviseOptions:
    """One question. runs: [] takes the latest sweep. attainment: share of requests that must keep the SLO's limits of
    single requests.
    """

    runs: list[str] = field(default_factory=list)
    workload: str | None = MISSING
    slo: SloOptions = MISSING
    loss: LossOptions = MISSING
    attainment: float = MISSING
    hardware: PriceOptions = field(default_factory=PriceOptions)
    results_dir: str = MISSING
    out: str | None = MISSING


ADVISE = Command(
    "advise",
    "a question",
    AdviseOptions,
    {
        "slo": Group("limits that a setting must keep", SloOptions, shared=True),
        "loss": Group("how much quality it may lose", LossOptions),
    },
)
