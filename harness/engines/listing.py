"""`action=list`: what engines there are, whether they are here, and what each can do, as text and as JSON."""

import shutil
import sys
import textwrap
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import orjson

from backends.gpu import nvidia_gpu_here
from backends.package_versions import versions_here
from harness.engines.catalogue import Offer, offers

_WIDEST = 110


def show(engine: str | None, as_json: bool) -> None:
    """Print the list."""
    found = offers(engine)
    if as_json:
        sys.stdout.buffer.write(
            orjson.dumps([entry(offer) for offer in found], option=orjson.OPT_INDENT_2) + b"\n"
        )
        return
    width = max(40, min(shutil.get_terminal_size((80, 24)).columns, _WIDEST))
    for line in lines(found, width):
        print(line)


def entry(offer: Offer) -> dict[str, Any]:
    """An offer for programs."""
    able = offer.abilities
    return {
        "engine": offer.engine,
        "name": offer.shown,
        "device": offer.device,
        "installed": offer.place() is not None,
        "where": offer.place(),
        "versions": versions(offer),
        "locked": bool(offer.recipe.requirements()),
        "dtypes": able.dtypes,
        "weight_dtypes": able.weight_dtypes,
        "kv_dtypes": able.kv_dtypes,
        "prompt_logprobs": able.prompt_logprobs,
        "logprobs_see_kv": able.logprobs_see_kv,
        "prefix_cache": able.prefix_cache,
        "request_kv": able.request_kv,
        "caveats": able.caveats,
        "notes": able.notes,
        "converters": {name: recipe.installed() for name, recipe in offer.converters.items()},
    }


def versions(offer: Offer) -> dict[str, str]:
    """Those noted when its environment was made, or those of the harness's own; {} where it is not here."""
    if offer.recipe.installed():
        noted: dict[str, str] = orjson.loads(offer.recipe.complete.read_bytes())["versions"]
        return noted
    return versions_here(offer.recipe.packages) if offer.embedded() else {}


def lines(found: list[Offer], width: int) -> Iterator[str]:
    """The list as text of `width` columns; paths and commands are never broken."""
    for engine, group in groupby(found, key=lambda offer: offer.engine):
        devices = list(group)
        yield f"{devices[0].shown} (backend={engine})"
        for offer in devices:
            yield from _device(offer, width)
        for name, recipe in devices[0].converters.items():
            state = "installed" if recipe.installed() else "not installed"
            yield from _folded(
                f"{name}: {state}; converts models{_on_request(name, recipe.on_request)}", width, "  "
            )
        yield ""
    yield from _folded(
        "A server that runs already needs nothing here: backend=endpoint backend.base_url=…", width
    )


def _on_request(name: str, on_request: bool) -> str:
    return f", made only on request (with={name})" if on_request else ""


def _device(offer: Offer, width: int) -> Iterator[str]:
    place = offer.place()
    if place is not None:
        version = versions(offer).get(offer.recipe.packages[0], "of unknown version")
        if offer.recipe.installed():
            yield f"  {offer.device}: installed, {version}, in"
            yield f"    {place}"
        else:
            yield from _folded(f"{offer.device}: installed, {version}, in {place}", width, "  ")
    elif offer.recipe.gpu and not nvidia_gpu_here():
        yield from _folded(
            f"{offer.device}: not installed, and this machine shows no NVIDIA GPU", width, "  "
        )
    elif offer.recipe.requirements():
        yield f"  {offer.device}: not installed. Type:"
        yield f"    {offer.install_command()}"
    else:
        yield f"  {offer.device}: not installed, and its versions are not locked yet. Type:"
        yield f"    python -m harness.engines action=doctor engine={offer.engine}"
    for words in (*_abilities(offer), *offer.abilities.caveats, *offer.abilities.notes):
        yield from _folded(words, width, "    ")


def _abilities(offer: Offer) -> Iterator[str]:
    able = offer.abilities
    yield f"computes in {_listed(able.dtypes)}; weights {_listed(('as they are', *able.weight_dtypes))}"
    see = "" if able.logprobs_see_kv else ", which do not see the KV cache's precision"
    logprobs = f"prompt log-probabilities{see}" if able.prompt_logprobs else "no prompt log-probabilities"
    cache = "prefix cache on or off" if able.prefix_cache else "no switch for a prefix cache"
    yield f"KV cache in {_listed(able.kv_dtypes)}; {cache}; {logprobs}"
    if able.request_kv:
        yield "a request may say how its own KV cache is held (kv in its body)"


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(words) if words else "what it likes"


def _folded(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
