"""The doctor's verdict on one environment in every state it can be in."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.base import Capabilities
from backends.environment_making import ensure
from harness.core.cache import locked
from harness.core.errors import UsageError
from harness.engines.catalogue import Offer
from harness.engines.doctor import State, environment
from harness.engines.removing import refuse_in_use
from tests.support.tiny_environment import TINY, lay_out

_ABLE = Capabilities(True, True, True, True, True, True)
_OFFER = Offer("tiny", "Tiny", "cpu", True, TINY, {}, _ABLE)
_CURE = "python -m harness.engines action=install engine=tiny device=cpu"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        lay_out(tmp_path, monkeypatch)
        yield tmp_path


def test_every_state_has_its_words_and_its_cure(place: Path) -> None:
    found = environment(_OFFER, TINY, None)
    assert (found.state, found.cure) == (State.ABSENT, _CURE)
    assert "not installed" in found.words

    TINY.folder().mkdir(parents=True)
    found = environment(_OFFER, TINY, None)
    assert (found.state, found.cure) == (State.BROKEN, _CURE)
    assert "interrupted" in found.words

    with locked(TINY.folder()):
        found = environment(_OFFER, TINY, None)
    assert (found.state, found.cure) == (State.ABSENT, "")
    assert "another process is making it" in found.words

    ensure(TINY)
    found = environment(_OFFER, TINY, None)
    assert (found.state, found.cure, found.engine) == (State.SOUND, "", True)
    assert "1.2" in found.words
    assert not environment(_OFFER, TINY, "export").engine

    (module,) = TINY.folder().glob("lib/python*/site-packages/tiny_engine.py")
    module.unlink()
    found = environment(_OFFER, TINY, None)
    assert (found.state, found.cure) == (State.BROKEN, _CURE)
    assert "tiny_engine does not import" in found.words

    TINY.lock.unlink()
    found = environment(_OFFER, TINY, None)
    assert found.state is State.ABSENT
    assert "no versions are locked yet" in found.words
    assert "action=lock engine=tiny" in found.cure


def test_an_environment_in_use_is_not_removed(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    refuse_in_use(tmp_path)
    with subprocess.Popen([python, "-c", "input()"], stdin=subprocess.PIPE) as process:
        with pytest.raises(UsageError, match=f"in use by process {process.pid}"):
            refuse_in_use(tmp_path)
        process.communicate(b"\n")
    refuse_in_use(tmp_path)
