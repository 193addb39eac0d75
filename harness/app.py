"""The Hydra application: composes the configuration of every job, then runs them and reports once at the end.

No job raises: a failed run is recorded and the sweep goes on; the exit code is decided when all is done.
"""

import difflib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.resources import files
from types import FrameType
from typing import Any

# Hydra prints its own errors and exits unless told to raise them; ours are shorter and say what to do.
os.environ["HYDRA_FULL_ERROR"] = "1"

import hydra
from omegaconf import DictConfig, OmegaConf

from harness.config import register_schemas, typed
from harness.core.errors import UsageError
from harness.screen import Screen
from harness.session import Session
from harness.usage_errors import explain

DEFAULT_EXPERIMENT = "experiment=default"
_FLAGS = (
    *("--help", "-h", "--multirun", "-m", "--run", "-r", "--cfg", "-c", "--resolve", "--package", "-p"),
    *("--info", "-i", "--config-dir", "-cd", "--config-name", "-cn", "--config-path", "-cp"),
    *("--hydra-help", "--version", "--shell-completion", "-sc", "--experimental-rerun"),
)

_SWEEPING = ("--multirun", "-m")
_SILENT_S = 3  # before a user wonders whether anything happens
_SHOWING = ("--cfg", "-c", "--info", "-i")  # print something of one configuration and run nothing


def run_command(arguments: list[str]) -> int:
    """Run what the command line asks for; returns the exit code (0, 1, 2 or 130)."""
    screen = Screen()
    try:
        check_flags(arguments)
    except UsageError as error:
        screen.error(error)
        return error.exit_code
    arguments, resume = without_resume(arguments)
    arguments = flags_first(with_default_experiment(arguments))
    session = Session(screen, resume)
    if any(argument.startswith("setting=") for argument in arguments):
        register_schemas()  # nobody asks what else there is
    else:
        register_schemas(screen.warn)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with patience(screen.say) if sweeps(arguments) else nullcontext():
            _hydra_main(arguments, session)
        session.run_jobs()
    except KeyboardInterrupt:
        session.interrupted = True
    except Exception as error:
        try:
            explained = explain(error, showing=any(flag in arguments for flag in _SHOWING))
        except Exception:
            session.unexpected(error)
            return 1
        screen.error(explained)
        return explained.exit_code
    return session.finish()


def with_default_experiment(arguments: list[str]) -> list[str]:
    """A call that says nothing of what to measure (at most where to keep it) runs the default experiment."""
    asks_nothing = all(argument.startswith("results_dir=") for argument in arguments)
    return [DEFAULT_EXPERIMENT, *arguments] if asks_nothing else arguments


def without_resume(arguments: list[str]) -> tuple[list[str], str | None]:
    """The arguments without `resume=SWEEP`, which is about the command and no part of a run; and SWEEP."""
    rest = [argument for argument in arguments if not argument.startswith("resume=")]
    given = [argument.removeprefix("resume=") for argument in arguments if argument.startswith("resume=")]
    return rest, (given[-1] if given else None)


def check_flags(arguments: list[str]) -> None:
    """Raise UsageError for a flag that does not exist, where Hydra would print its own usage, or a mix it refuses."""
    for argument in arguments:
        flag = argument.split("=", 1)[0]
        if flag.startswith("-") and flag not in _FLAGS:
            close = difflib.get_close_matches(flag, _FLAGS, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise UsageError(f"There is no flag {flag}.{hint} See python -m harness --help")
    sweeping, showing = (next((a for a in arguments if a in some), None) for some in (_SWEEPING, _SHOWING))
    if sweeping and showing:
        raise UsageError(
            f"{showing} shows one configuration, {sweeping} makes several. Leave {sweeping} out and give each key "
            "one value."
        )


def flags_first(arguments: list[str]) -> list[str]:
    """The same arguments with KEY=VALUE last: Hydra refuses an override that stands before -m."""
    overrides = [a for a in arguments if "=" in a and not a.startswith("-")]
    return [a for a in arguments if a not in overrides] + overrides


def _hydra_main(arguments: list[str], session: Session) -> None:
    @hydra.main(version_base="1.3", config_path="pkg://conf", config_name="config")
    def task(composed: DictConfig) -> Any:
        session.add_job(lambda: typed(composed))

    original = sys.argv
    sys.argv = ["python -m harness", *arguments]
    try:
        task()
    finally:
        sys.argv = original


def sweeps(arguments: list[str]) -> bool:
    """Whether Hydra is asked to compose several runs: by a flag, or by the experiment that is chosen."""
    if any(flag in arguments for flag in _SWEEPING):
        return True
    chosen = [one.removeprefix("experiment=") for one in arguments if one.startswith("experiment=")]
    found = files("conf").joinpath("experiment", f"{chosen[-1]}.yaml") if chosen else None
    if found is None or not found.is_file():  # one of the user's own folder, or a name that Hydra will refuse
        return False
    described = OmegaConf.create(found.read_text(encoding="utf-8"))
    return OmegaConf.select(described, "hydra.mode") == "MULTIRUN"


@contextmanager
def patience(say: Callable[[str], None]) -> Iterator[None]:
    """Say what takes so long where Hydra composes a large sweep: about half a second a run, without a word.

    Nothing is said after the end.
    """
    done = threading.Event()

    def look() -> None:
        if not done.wait(_SILENT_S):
            say("Composing the configurations of all runs …")

    waiting = threading.Thread(target=look, daemon=True)
    waiting.start()
    try:
        yield
    finally:
        done.set()
        waiting.join()


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """A request to end is handled like Ctrl-C: what was measured is kept, the engine is ended."""
    raise KeyboardInterrupt
