"""The highest load that the client measures exactly: raised until it does not, then halved in between."""

from collections.abc import Callable
from dataclasses import dataclass

from harness.calibrate.loads import Load, Reading

MEAN_LIMIT_MS = 1.0


@dataclass(frozen=True, slots=True)
class Limit:
    """The highest value that held, who ended the search ("client", "server" or "search"), and all readings.

    value 0: not even the lowest held.
    """

    value: float
    limited_by: str
    readings: list[Reading]


def holds(reading: Reading) -> bool:
    """Whether the mean error of TTFT is within its limit and nothing was lost."""
    return reading.errors.lost == 0 and abs(reading.errors.ttft.mean) <= MEAN_LIMIT_MS


def highest(
    probe: Callable[[float], Reading], start: float, ceiling: float, halvings: int, achieved: str
) -> Limit:
    """Double from `start` until a probe does not hold, then halve the space in between `halvings` times.

    One that does not hold is tried once more before it is believed.
    achieved: the field of a reading that says what the probe really came to, which is what counts: a server that
    falls behind offers less than it was asked for, and ends the search.
    """
    readings: list[Reading] = []
    held, failed, value = 0.0, None, start
    reached, limited_by = 0.0, "search"
    while value <= ceiling:
        reading = probe(value)
        readings.append(reading)
        if not holds(reading) and not reading.server_saturated:  # a moment's disturbance is no limit
            reading = probe(value)
            readings.append(reading)
        if reading.server_saturated:  # the client may hold more; this server cannot show it
            failed, limited_by = value, "server"
            if holds(reading):
                reached = max(reached, getattr(reading, achieved))
        elif holds(reading):
            held = value
            reached = max(reached, getattr(reading, achieved))
        else:
            failed, limited_by = value, "client"
        if failed is None:
            value *= 2
        elif halvings:
            halvings -= 1
            value = (held + failed) / 2
        else:
            break
    return Limit(reached, limited_by, readings)


def rate_load(tokens_per_s: float, seconds: float, streams: int = 64) -> Load:
    """So many tokens a second for about so many seconds."""
    itl_us = max(1, round(streams * 1e6 / tokens_per_s))
    tokens = max(2, round(0.25e6 / itl_us))  # a quarter of a second each, so that there are many first tokens
    return Load(
        title=f"{streams * 1e6 / itl_us:,.0f} tokens/s on {streams} streams",
        requests=max(streams, round(streams * seconds / 0.25)),
        tokens=tokens,
        itl_us=itl_us,
        ttft_us=itl_us,
        options={"concurrency": streams},
    )


def streams_load(streams: int, ramp_s: float, tokens: int = 20, itl_us: int = 100_000) -> Load:
    """So many streams at once, opened over `ramp_s` seconds, each long enough to see all the others begin."""
    least = round(ramp_s * 1e6 / itl_us) + tokens
    return Load(
        title=f"{streams:,} streams × {1e6 / itl_us:.0f} tokens/s",
        requests=streams,
        tokens=least,
        itl_us=itl_us,
        ttft_us=50_000,
        options={"concurrency": streams, "ramp_s": ramp_s},
    )
