"""`backend.install=true`: what is missing is made after every check, and only where the harness may make it."""

import sys
from pathlib import Path
from typing import ClassVar

import pytest

from backends.base import Capabilities
from backends.engine_adapter import EngineAdapter
from backends.environment import Recipe
from harness.core.errors import EngineError, UsageError
from harness.core.geometry import ModelGeometry
from harness.core.model_store import ModelFiles
from tests.support.backends import openvino
from tests.support.tiny_environment import TINY, lay_out

_MODEL = ModelFiles("m", Path("/m.gguf"), Path("/m"), ModelGeometry(1, 1, 1, 1, 10, 8192), "0")
_EXPORT = Recipe("never-locked", (), (), on_request=True)


class Tiny(EngineAdapter):
    """An engine of one module."""

    shown = "Tiny"
    recipes: ClassVar = {"cpu": TINY}
    converters: ClassVar = {"export": _EXPORT}
    required = ()

    def capabilities(self) -> Capabilities:
        return Capabilities(True, True, True, True, True, True, dtypes=("f32",), kv_dtypes=("f32",))


def tiny(**changes: object) -> Tiny:
    return Tiny(openvino(**changes).options)


def test_it_is_made_once_it_is_known_that_the_rest_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(tmp_path, monkeypatch)
    with pytest.raises(
        EngineError, match=r"Tiny is not installed\. Type: .*\(or add backend\.install=true\)"
    ):
        tiny().check(_MODEL)
    with pytest.raises(UsageError, match=r"backend\.kv_dtype=int8"):
        tiny(install=True, kv_dtype="int8").check(_MODEL)
    with pytest.raises(EngineError, match="lacks tiny-engine"):  # a user's own environment is never changed
        tiny(install=True, python=sys.executable).check(_MODEL)

    backend = tiny(install=True)
    backend.check(_MODEL)
    assert not TINY.installed()
    said: list[str] = []
    backend.install(said.append)
    assert "an empty environment" in said
    assert backend.versions() == {"tiny-engine": "1.2"}
    assert backend.python() == str(TINY.python())
    again: list[str] = []
    backend.install(again.append)
    assert again == []
    tiny().check(_MODEL)
