"""Turns what Hydra and OmegaConf say about a wrong command line into one sentence and a way out."""

import difflib
import re
from collections.abc import Callable, Iterator

from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.config import SCHEMAS, TAKEN_TOGETHER
from harness.core.errors import HarnessError, RecordError, UsageError
from harness.help import GROUPS, choices_of

# What OmegaConf calls a type it wanted, and what a person calls it.
_TYPES = (
    (r"converted to Integer|valid int", "a whole number"),
    (r"converted to Float|valid float", "a number"),
    (r"valid bool", "true or false"),
    (r"is not a ListConfig", "a list in brackets, such as [1,2]"),
)


def explain(error: Exception, showing: bool = False) -> HarnessError:
    """The error a person can act on; `error` is what Hydra or OmegaConf raised while composing.

    showing: a configuration was to be shown, not run. Anything else is raised again.
    """
    if isinstance(error, OSError) and error.filename is not None:  # Hydra could not make the sweep's folder
        return RecordError(
            f"{error.strerror}: {error.filename}. Choose another place with results_dir=FOLDER."
        )
    if isinstance(error, AssertionError) and "Unexpected type for root: NoneType" in str(error):
        # OmegaConf's word for a key below something that is null.
        return UsageError(
            "A key below a quality task is set, but that task is not asked for. "
            "Add it: quality=perplexity, quality=recall or 'quality=[perplexity,recall]'."
        )
    if not isinstance(error, HydraException | OmegaConfBaseException):
        raise error
    if isinstance(error, OverrideParseException):
        return UsageError(_malformed(error.override))
    text = str(error)
    for pattern, explanation in (
        (r"Could not override '([^']+)'", _unknown_key),
        (r"Could not (?:find|load) '([^']+)'", _unknown_choice),
        (r"Key '([^']+)' (?:is )?not in", _unknown_key),
        (r"Error merging override (\S+)", _wrong_type(error)),
        (r"Ambiguous value for argument '([^']+)'", _several_shown if showing else _several_values),
        (r"^schema/(\w+)@\S+ appears more than once", _named_twice),
    ):
        if match := re.search(pattern, text):
            return UsageError(explanation(match.group(1)))
    first = text.strip().splitlines()[0]
    return UsageError(f"{first}. See python -m harness --help")


def _unknown_key(key: str) -> str:
    parent, _, name = key.rpartition(".")
    group, _, path = key.partition(".")
    siblings = sorted(_known_keys(parent))
    if path and group in SCHEMAS and group not in TAKEN_TOGETHER and name in siblings:
        # A key of the group, but not of the choice that was made: whose it is helps, not a similar name.
        owners = [choice for choice, schema in SCHEMAS[group].items() if _has(schema, path)]
        return f"The chosen {group} has no {key}. It belongs to {group}={' or '.join(owners)}; leave it out."
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


def _has(schema: type, path: str) -> bool:
    """Whether a key may be set at `path` below this choice; values are missing in a schema."""
    parent, _, name = path.rpartition(".")
    node = OmegaConf.structured(schema)
    below = OmegaConf.select(node, parent) if parent else node
    return isinstance(below, DictConfig) and name in set(below)


def _known_keys(parent: str) -> Iterator[str]:
    """Keys below `parent` over all choices of its group."""
    names: set[str] = set()
    group, _, path = parent.partition(".")
    for node in _schemas(group):
        below = OmegaConf.select(node, path) if path else node
        if isinstance(below, DictConfig):
            names.update(str(key) for key in below)
    yield from names


def _schemas(group: str) -> Iterator[DictConfig]:
    """What may stand at `group`, by each of its choices; at "" the root."""
    from hydra.core.config_store import ConfigStore

    repository = ConfigStore.instance().repo["schema"]
    root = repository["root.yaml"].node
    if not group:
        yield root
        return
    if isinstance(root.get(group), DictConfig):
        yield root[group]
    for file, entry in repository.get(group, {}).items():
        # Choices that may be taken together each have a place of their own below the group.
        choice = file.removesuffix(".yaml")
        yield OmegaConf.create({choice: entry.node}) if group in TAKEN_TOGETHER else entry.node


def _several_values(argument: str) -> str:
    return f"{argument}: these are several values. To run one for each, put -m first: python -m harness -m {argument}"


def _several_shown(argument: str) -> str:
    return f"{argument}: these are several values, and only one configuration can be shown. Name one of them."


def _named_twice(group: str) -> str:
    return f"{group}= names a choice twice. Name each once: {', '.join(choices_of(group))}."


def _unknown_choice(place: str) -> str:
    group, _, name = place.rpartition("/")
    if group not in (*GROUPS, "setting"):
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
    if "=[" in argument:
        hint = "Quote words of a list twice, since the shell takes one: \"KEY=['--a=b']\""
        return f"{argument!r} cannot be read. {hint}"
    return f"{argument!r} cannot be read. Quote a value with special characters: \"KEY='some, value'\""


def _wrong_type(error: Exception) -> Callable[[str], str]:
    def explanation(override: str) -> str:
        cause = str(error.__cause__ or error)
        kind = next((words for pattern, words in _TYPES if re.search(pattern, cause)), None)
        return f"{override}: the value must be {kind}." if kind else f"{override}: {cause.splitlines()[0]}."

    return explanation
