"""Turns what Hydra and OmegaConf say about a wrong command line into one sentence and a way out."""

import difflib
import re
from collections.abc import Callable, Iterator

from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from harness.core.errors import HarnessError, RecordError, UsageError
from harness.help import GROUPS, choices_of

# What OmegaConf calls a type it wanted, and what a person calls it.
_TYPES = (
    (r"converted to Integer|valid int", "a whole number"),
    (r"converted to Float|valid float", "a number"),
    (r"valid bool", "true or false"),
)


def explain(error: Exception) -> HarnessError:
    """The error a person can act on; `error` is what Hydra or OmegaConf raised while composing.

    Anything else is raised again.
    """
    if isinstance(error, OSError) and error.filename is not None:  # Hydra could not make the sweep's folder
        return RecordError(
            f"{error.strerror}: {error.filename}. Choose another place with results_dir=FOLDER."
        )
    if not isinstance(error, HydraException | OmegaConfBaseException):
        raise error
    if isinstance(error, OverrideParseException):
        return UsageError(_malformed(error.override))
    text = str(error)
    for pattern, explanation in (
        (r"Could not override '([^']+)'", _unknown_key),
        (r"Could not find '([^']+)'", _unknown_choice),
        (r"Key '([^']+)' (?:is )?not in", _unknown_key),
        (r"Error merging override (\S+)", _wrong_type(error)),
        (r"Ambiguous value for argument '([^']+)'", _several_values),
    ):
        if match := re.search(pattern, text):
            return UsageError(explanation(match.group(1)))
    first = text.strip().splitlines()[0]
    return UsageError(f"{first}. See python -m harness --help")


def _unknown_key(key: str) -> str:
    parent, _, name = key.rpartition(".")
    group = key.split(".")[0]
    siblings = sorted(_known_keys(parent))
    close = difflib.get_close_matches(name, siblings, n=1, cutoff=0.6)
    prefix = f"{parent}." if parent else ""
    hint = f" Did you mean {prefix}{close[0]}?" if close else ""
    listing = f" Keys{f' of {parent}' if parent else ''}: {', '.join(siblings)}." if siblings else ""
    if group not in GROUPS and not close:
        groups = difflib.get_close_matches(group, [*GROUPS, *_known_keys("")], n=1, cutoff=0.6)
        owners = [owner for owner in GROUPS if name in _known_keys(owner)]
        meant = groups or [f"{owner}.{name}" for owner in owners]
        hint = f" Did you mean {' or '.join(meant)}?" if meant else hint
    return f"There is no key {key}.{hint}{listing}"


def _known_keys(parent: str) -> Iterator[str]:
    """Keys below `parent` over all choices of its group."""
    from hydra.core.config_store import ConfigStore

    repository = ConfigStore.instance().repo["schema"]
    if not parent:
        yield from (str(key) for key in repository["root.yaml"].node)
        return
    group, *path = parent.split(".")
    names: set[str] = set()
    for entry in repository.get(group, {}).values():
        node = entry.node
        for step in path:
            node = node.get(step) if isinstance(node, DictConfig) and step in node else None
        if isinstance(node, DictConfig):
            names.update(str(key) for key in node)
    yield from names


def _several_values(argument: str) -> str:
    return f"{argument}: these are several values. To run one for each, put -m first: python -m harness -m {argument}"


def _unknown_choice(place: str) -> str:
    group, _, name = place.rpartition("/")
    if group not in GROUPS:
        return f"There is no {place}. See python -m harness --help"
    choices = choices_of(group)
    close = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    hint = f" Did you mean {group}={close[0]}?" if close else ""
    return f"{group}={name}: there is no such choice.{hint} Choices: {', '.join(choices)}."


def _malformed(argument: str) -> str:
    if "=" not in argument:
        return (
            f"{argument!r} is not of the form KEY=VALUE. For example: python -m harness workload=rag "
            "(or --help for everything)"
        )
    return f"{argument!r} cannot be read. Quote a value with special characters: \"KEY='some, value'\""


def _wrong_type(error: Exception) -> Callable[[str], str]:
    def explanation(override: str) -> str:
        cause = str(error.__cause__ or error)
        kind = next((words for pattern, words in _TYPES if re.search(pattern, cause)), None)
        return f"{override}: the value must be {kind}." if kind else f"{override}: {cause.splitlines()[0]}."

    return explanation
