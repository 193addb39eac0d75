import pytest

from harness.core.errors import UsageError
from harness.core.key_values import key_values

_CHOICES = {"action": ("list", "remove")}


def test_values_by_key_and_the_last_of_each():
    given = key_values(["out=a=b", "action=list", "action=remove"], ("out",), _CHOICES)
    assert given == {"out": "a=b", "action": "remove"}
    assert key_values([], ("out",), _CHOICES) == {}


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("list", "'list' is not understood: write key=value"),
        ("out=", "'out=' is not understood"),
        ("ot=1", r"'ot' is no key of this command\. Keys: action, out\."),
        ("action=lst", r"action=lst is unknown: choose one of list, remove\."),
    ],
)
def test_anything_else_is_refused_in_words(argument: str, words: str):
    with pytest.raises(UsageError, match=words):
        key_values([argument], ("out",), _CHOICES)
