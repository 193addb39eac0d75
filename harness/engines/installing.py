"""`action=install`: makes an engine's environment and those of its converters, or mends them."""

from backends.environment_making import mend
from harness.core.errors import UsageError
from harness.engines.catalogue import default_offer
from harness.engines.listing import versions
from harness.screen import Screen


def install(engine: str, device: str | None, converters: list[str], python: str | None) -> None:
    """Make what is missing and make again what is broken. Raises UsageError or EngineError where it cannot be."""
    offer = default_offer(engine, device)
    for name in converters:
        if name not in offer.converters:
            known = ", ".join(offer.converters) or "none"
            raise UsageError(f"{offer.shown} has no converter {name}. It has: {known}.")
    wanted = [
        recipe for name, recipe in offer.converters.items() if name in converters or not recipe.on_request
    ]
    screen = Screen()
    for recipe in [offer.recipe, *wanted]:
        with screen.phase(f"Environment {recipe.name}") as detail:
            mend(recipe, detail, python)
    known = ", ".join(f"{package} {version}" for package, version in versions(offer).items())
    screen.result(f"{offer.shown} is installed ({known}). Next: python -m harness backend={engine}")
    screen.result(str(offer.recipe.folder()))
