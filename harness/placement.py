"""How many measuring processes a load gets, and on which cores they, the engine and the harness run."""

import socket
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

import psutil

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
    if config.backend.base_url is None:
        cores = share_cores(available, pin, workers)
    else:
        cores = worker_cores(available, pin, workers, not on_this_machine(config.backend.base_url))
    return Placement(cores, workers)


def engine_cores(config: Config, cores: CoreShares) -> tuple[int, ...] | None:
    """Cores that the engine may use, all of them where nobody knows; None where it runs on another machine."""
    url = config.backend.base_url
    if url is not None and not on_this_machine(url):
        return None
    return cores.engine or tuple(available_cores())


def on_this_machine(url: str) -> bool:
    """Whether a server's address is one of this machine's; False where the name cannot be looked up."""
    own = {
        address.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
    }
    try:
        host = urlsplit(url).hostname or ""
        found = {str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(host, None)}
    except (OSError, ValueError):
        return False
    return any(ip_address(address).is_loopback or address in own for address in found)


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
