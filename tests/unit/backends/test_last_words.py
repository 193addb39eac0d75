"""Why an engine ended, found in what it wrote."""

import subprocess
import sys

from backends.last_words import last_words

# The shape of what an engine of two processes writes: the one that fails logs its traceback behind a prefix.
_TWO_PROCESSES = """
(Core pid=7) INFO 11-30 06:44:30 [core.py:133] loading
(Core pid=7) ERROR 11-30 06:44:31 [core.py:1510] The core failed to start.
(Core pid=7) ERROR 11-30 06:44:31 [core.py:1510] Traceback (most recent call last):
(Core pid=7) ERROR 11-30 06:44:31 [core.py:1510]   File "core.py", line 1, in start
(Core pid=7) ERROR 11-30 06:44:32 [core.py:1510]     raise ValueError(
(Core pid=7) ERROR 11-30 06:44:32 [core.py:1510] ValueError: the pool is too small
Process Core:
Traceback (most recent call last):
  File "core.py", line 1, in start
    raise ValueError(
ValueError: the pool is too small

Traceback (most recent call last):
{frames}
RuntimeError: the core failed, see above
"""


def test_the_cause_is_said_once_and_no_frame_is() -> None:
    frames = "\n".join(f'  File "server.py", line {n}, in call\n    call()' for n in range(200))
    assert last_words(_TWO_PROCESSES.format(frames=frames), 5).splitlines() == [
        "(Core pid=7) INFO 11-30 06:44:30 [core.py:133] loading",
        "(Core pid=7) ERROR 11-30 06:44:31 [core.py:1510] The core failed to start.",
        "Process Core:",
        "ValueError: the pool is too small",
        "RuntimeError: the core failed, see above",
    ]


def test_chained_exceptions_of_a_real_interpreter() -> None:
    code = """
def broken():
    raise KeyError("the cause")
try:
    broken()
except KeyError as error:
    raise RuntimeError("the consequence") from error
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert last_words(done.stderr, 10).splitlines() == [
        "KeyError: 'the cause'",
        "RuntimeError: the consequence",
    ]


def test_plain_output_keeps_its_last_lines() -> None:
    assert last_words("one\n\n  two\nthree\n", 2) == "  two\nthree"
    assert last_words("", 3) == ""


def test_a_traceback_that_was_cut_off_says_nothing_wrong() -> None:
    assert last_words("begins\nTraceback (most recent call last):\n  File x\n", 5) == "begins"
