import pytest

from harness.session import time_left


@pytest.mark.parametrize(
    ("seconds", "done", "total", "words"),
    [
        (60, 1, 1, "less than a minute left"),
        (60, 2, 3, "less than a minute left"),
        (60, 1, 66, "about 65 min left"),
        (120, 1, 66, "about 2.2 h left"),
    ],
)
def test_what_is_left_follows_from_what_is_done(seconds: float, done: int, total: int, words: str):
    assert time_left(seconds, done, total) == words
