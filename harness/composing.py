"""From KEY=VALUE arguments to typed options, for the commands that only calculate: Hydra composes a folder of conf/,
and what is wrong becomes one sentence.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from importlib.resources import files
from typing import Any

from hydra import compose, initialize_config_module
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.core.errors import UsageError

_KINDS = {
    "nteger": "a whole number",
    "Float": "a number",
    "ListConfig": "a list in brackets, such as [A,B]",
}


@dataclass(frozen=True)
class Group:
    """A group of choices. meaning: for --help. options: their type. shared: a group of the harness itself, in
    conf/NAME, whose files are taken as they are; else it is in the command's own folder.
    """

    meaning: str
    options: type
    shared: bool = False


@dataclass(frozen=True)
class Command:
    """A command whose configuration is conf/`name`/config.yaml, of type `options`.

    thing: what it makes, with its article ("a plan"). no_such_key: what to say of an unknown key, by how it begins.
    """

    name: str
    thing: str
    options: type
    groups: Mapping[str, Group]
    no_such_key: Mapping[str, str] = field(default_factory=dict)

    def choices(self, group: str) -> dict[str, str]:
        """Names of a group's choices and their one-line meanings: the first line of each file."""
        folder = (group,) if self.groups[group].shared else (self.name, group)
        found = {}
        for entry in files("conf").joinpath(*folder).iterdir():
            if entry.name.endswith(".yaml"):
                with entry.open(encoding="utf-8") as file:
                    found[entry.name.removesuffix(".yaml")] = file.readline().lstrip("# ").strip()
        return dict(sorted(found.items()))

    def composed(self, arguments: Sequence[str]) -> Any:
        """The options that the command line asks for. Raises UsageError for what cannot be read."""
        for argument in arguments:
            self._check_form(argument)
        try:
            with self._hydra():
                found = compose(config_name="config", overrides=list(arguments))
            values: Any = OmegaConf.to_object(found)
        except (HydraException, OmegaConfBaseException) as error:
            raise UsageError(self._explained(error, arguments)) from error
        return self.options(**{one.name: getattr(values, one.name) for one in fields(self.options)})

    @contextmanager
    def _hydra(self) -> Iterator[None]:
        """Hydra over the command's folder. Shared groups are known only meanwhile: a run finds them in conf/."""
        store = ConfigStore.instance()
        store.store(group="schema", name=self.name, node=self.options)
        shared = [name for name, group in self.groups.items() if group.shared]
        for name in shared:
            for choice in self.choices(name):
                store.store(group=name, name=choice, node=_typed(name, choice, self.groups[name].options))
        for name in set(self.groups) - set(shared):
            store.store(group=f"schema/{self.name}_{name}", name="options", node=self.groups[name].options)
        GlobalHydra.instance().clear()
        try:
            with initialize_config_module(f"conf.{self.name}", version_base="1.3", job_name=self.name):
                yield
        finally:
            for name in shared:
                store.repo.pop(name, None)

    def _check_form(self, argument: str) -> None:
        key, equals, value = argument.partition("=")
        if not equals or not re.fullmatch(r"[\w.]+", key):
            raise UsageError(f"{argument!r} is not understood: write KEY=VALUE, see --help.")
        if key in self.groups and value not in (names := self.choices(key)):
            close = difflib.get_close_matches(value, names, n=1, cutoff=0.4)
            hint = f" Did you mean {key}={close[0]}?" if close else ""
            raise UsageError(f"{key}={value}: there is no such choice.{hint} Choices: {', '.join(names)}.")

    def _explained(self, error: Exception, arguments: Sequence[str]) -> str:
        text = str(error)
        if match := re.search(r"Could not override '([^']+)'", text):
            return self._unknown(match.group(1))
        if match := re.search(r"Error merging override (\S+)", text):
            cause = str(error.__cause__ or error)
            kind = next((words for mark, words in _KINDS.items() if mark in cause), "of another type")
            return f"{match.group(1)}: the value must be {kind}."
        if match := re.search(r"Ambiguous value for argument '([^']+)'", text):
            return f"{match.group(1)}: these are several values; {self.thing} has one."
        broken = next((a for a in arguments if a in text), arguments[0] if arguments else "")
        return f"{broken!r} cannot be read ({text.strip().splitlines()[0]}). Quote a value with special characters."

    def _unknown(self, key: str) -> str:
        for beginning, words in self.no_such_key.items():
            if key.startswith(beginning):
                return f"{key}: {words}"
        known = list(self._known_keys(OmegaConf.structured(self.options)))
        close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        hint = f" Did you mean {close[0]}?" if close else ""
        parent = key.partition(".")[0] + "."
        siblings = [name for name in known if name.startswith(parent)] or [n for n in known if "." not in n]
        return f"There is no key {key}.{hint} Keys: {', '.join(siblings)}."

    def _known_keys(self, node: DictConfig, prefix: str = "") -> Iterator[str]:
        for name in map(str, node):
            if not prefix and name in self.groups:
                yield from self._known_keys(OmegaConf.structured(self.groups[name].options), f"{name}.")
            else:
                yield prefix + name


def _typed(group: str, choice: str, options: type) -> Any:
    """A file of the harness's own, with its type; its list of defaults names schemas that only a run knows."""
    text = files("conf").joinpath(group, f"{choice}.yaml").read_text(encoding="utf-8")
    values: Any = OmegaConf.to_container(OmegaConf.create(text))
    values.pop("defaults", None)
    return OmegaConf.merge(OmegaConf.structured(options), values)
