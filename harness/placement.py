"""How many measuring processes a load gets, and on which cores they, the engine and the harness run."""

from dataclasses import dataclass

from harness.calibrate.kept import kept_capacity
from harness.config import Config
from harness.core.requests import Plan
from harness.cores import CoreShares, available_cores, share_cores, worker_cores
from harness.load.options import LoadOptions
from harness.worker_count import worker_count


@dataclass(frozen=True, slots=True)
class Placement:
    """Cores by duty, and how many processes share the client's."""

    cores: CoreShares
    workers: int


def place(config: Config, plan: Plan, busiest: LoadOptions | None = None) -> Placement:
    """Where a run goes. busiest: the load to prepare for where others than the run's own follow."""
    available, pin = available_cores(), config.hardware.pin
    workers = worker_count(busiest or config.load, plan, kept_capacity(), len(available))
    # Cores are shared out only where the engine runs here.
    ours = config.backend.base_url is None
    cores = share_cores(available, pin, workers) if ours else worker_cores(available, pin, workers)
    return Placement(cores, workers)


def place_again(config: Config, plan: Plan, placed: Placement) -> Placement:
    """Where the next load of a series goes, whose engine runs already: never on fewer processes than the last.

    An engine of ours keeps its cores, so that there are no more processes than cores were left to them.
    """
    needed = place(config, plan)
    workers = max(placed.workers, needed.workers)
    if config.backend.base_url is None:
        own = placed.cores.client
        return Placement(
            placed.cores, workers if own is None else max(placed.workers, min(workers, len(own)))
        )
    return needed if needed.workers == workers else placed
