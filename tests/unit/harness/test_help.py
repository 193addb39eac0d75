from pathlib import Path

import pytest

from harness.help import GROUPS, choices_of, main_help
from tests.support.imports import help_of

CONF = Path(__file__).parents[3] / "conf"


def test_every_group_and_choice_is_explained():
    text = main_help()
    for group in GROUPS:
        assert f"  {group}: " in text
        names = {path.stem for path in (CONF / group).glob("*.yaml")}
        assert names == set(choices_of(group))
        for name, meaning in choices_of(group).items():
            assert len(meaning) > 10, f"conf/{group}/{name}.yaml does not begin with what it means"
            assert f"    {name}" in text
    assert "hydra/launcher" in text


def test_no_group_of_conf_is_left_out():
    folders = {path.name for path in CONF.iterdir() if any(path.glob("*.yaml"))}
    assert folders == {*GROUPS, "plan", "advise", "gate"}  # commands with a help of their own


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_help_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    too_wide = [line for line in main_help().splitlines() if len(line) > columns]
    # A word that is wider than the terminal by itself (an address) cannot be folded.
    assert all(len(line.split()[-1]) > columns - 12 for line in too_wide)


def test_help_imports_nothing_heavy():
    found = help_of("harness.__main__")
    heavy = {"hydra", "omegaconf", "pandas", "numpy", "matplotlib", "aiohttp", "rich"}
    assert not heavy & found.modules
    assert "usage: python -m harness" in found.said
