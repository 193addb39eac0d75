"""pip as a process that is watched: how far it is, in words, and why it failed, in one sentence."""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TextIO

from backends.base import Say
from harness.core.errors import EngineError

_LOOK_EVERY_S = 0.5


def pip_install(
    python: Path, requirements: Sequence[str], log: Path, say: Say, held: TextIO, packages: Path
) -> None:
    """Install exactly `requirements`, without their own requirements, into the environment of `python`.

    log: gets pip's whole output. held: a file that pip inherits, so that a lock on it outlives this process if
    this process is killed and pip is not. packages: the environment's site-packages, where progress is counted.
    Raises EngineError with pip's own reason.
    """
    listed = log.with_suffix(".requirements")
    listed.write_text("\n".join(requirements) + "\n")
    # -I: modules of the caller's folder or PYTHONPATH must not stand in for pip's own.
    command = [str(python), "-I", "-m", "pip", "install", "--no-deps", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "--no-warn-script-location"]
    try:
        with log.open("w") as file:
            status = _watch(
                [*command, "--requirement", str(listed)],
                file,
                _Progress(len(requirements), say, packages),
                held,
            )
    finally:
        listed.unlink(missing_ok=True)
    if status:
        raise EngineError(f"pip could not install {log.stem}: {_reason(log)} Its whole output: {log}")


class _Progress:
    """Turns pip's lines into "12 of 147: NAME"; while it unpacks, which it does without a word, counts folders."""

    def __init__(self, total: int, say: Say, packages: Path) -> None:
        self._total, self._say, self._packages = total, say, packages
        self._found = 0
        self._before: int | None = None

    def line(self, line: str) -> None:
        """A line that pip wrote."""
        if match := re.match(r"(?:Collecting|Processing) (\S+)", line):
            self._found += 1
            self._say(f"{self._found} of {self._total}: {_short(match[1])}")
        elif match := re.match(r"\s+Downloading (\S+) \(([\d.]+ [kMG]B)\)", line):
            self._say(f"{self._found} of {self._total}: {_short(match[1])}, {match[2]}")
        elif line.startswith("Installing collected packages"):
            self._before = self._unpacked()
            self._say(f"unpacking, 0 of {self._total} packages")

    def silence(self) -> None:
        """A while without a line."""
        if self._before is not None:
            self._say(f"unpacking, {self._unpacked() - self._before} of {self._total} packages")

    def _unpacked(self) -> int:
        return sum(1 for _ in self._packages.glob("*.dist-info"))


def _short(file: str) -> str:
    """NAME-VERSION of a wheel's file name or address; a requirement stays as it is."""
    return "-".join(file.rsplit("/", 1)[-1].split("-")[:2]) if file.endswith(".whl") else file


def _watch(command: list[str], log: TextIO, progress: _Progress, held: TextIO) -> int:
    """Run to the end and return the exit status; ends the process and its children where this one is interrupted."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=(held.fileno(),),
        start_new_session=True,
    )
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    if process.stdout is None:
        raise RuntimeError("pip's output is not a pipe")
    reader = threading.Thread(target=_read, args=(process.stdout, lines), daemon=True)
    reader.start()
    try:
        while True:
            try:
                line = lines.get(timeout=_LOOK_EVERY_S)
            except queue.Empty:
                progress.silence()
                continue
            if line is None:
                return process.wait()
            log.write(line)
            progress.line(line)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        reader.join()
        process.stdout.close()


def _read(stream: IO[str], lines: "queue.SimpleQueue[str | None]") -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def _reason(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    reason = (errors or lines or ["it said nothing."])[-1]
    return f"{reason.rstrip('.')}.{_advice(reason)}"


def _advice(reason: str) -> str:
    if "+cpu" in reason:
        return (
            " The lock names the CPU build of PyTorch: let pip know PyTorch's own index of such wheels "
            "(PIP_EXTRA_INDEX_URL=…)."
        )
    if "No matching distribution" in reason:
        version = ".".join(map(str, sys.version_info[:2]))
        return (
            f" The registry cannot be reached, or has none for Python {version} on this machine "
            "(another interpreter: python=/usr/bin/python3.11)."
        )
    return ""
