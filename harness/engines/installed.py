"""Which engines are there to be run, for `experiment=engines`; cheap, and started by no import of an engine."""

from backends.engine_adapter import EngineAdapter
from backends.package_versions import all_here
from backends.registry import adapter_class, backend_names
from harness.core.errors import UsageError


def installed_engines() -> tuple[str, ...]:
    """Names of the engines that have an environment here, made or the harness's own, in alphabetical order.

    Raises UsageError where there is none.
    """
    names = tuple(name for name in backend_names() if _installed(adapter_class(name)))
    if not names:
        raise UsageError(
            "No engine is installed here. Type: python -m harness.engines action=install engine=openvino"
        )
    return names


def _installed(kind: type) -> bool:
    if not issubclass(kind, EngineAdapter):  # a server that runs already
        return False
    return any(recipe.installed() or all_here(recipe.packages) for recipe in kind.recipes.values())
