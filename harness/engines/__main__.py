"""`python -m harness.engines`: which engines there are, and the environments they live in on this machine."""

import os
import signal
import sys
from dataclasses import dataclass, field
from types import FrameType

from harness.core.errors import HarnessError, UsageError
from harness.core.key_values import key_values

HELP = """The engines and the environments they live in, each made from exact versions.

  python -m harness.engines                            what there is and what each can do
  python -m harness.engines action=install engine=vllm make its environment (minutes, once)
  python -m harness.engines action=doctor              what is broken, and how to mend it
  python -m harness.engines action=remove engine=vllm  give its disk space back
  python -m harness.engines action=lock engine=vllm    renew its exact versions, in a checkout

  engine=NAME        which engine; list, doctor and lock take all unless one is named
  device=cpu|cuda    install, remove, lock: which of its environments; without it install takes the
                     device that its configuration names, the others all
  with=NAME,...      install: also converters that only some models need
  python=FILE        install: the interpreter to make it with (default: the one that runs this)
  format=json        list: for programs
  old=true           remove: only what older versions left

Environments are below INFERENCE_HARNESS_CACHE, else ~/.cache/inference-harness.
Exit codes: 0 done, 1 something failed or is broken, 2 wrong usage, 130 interrupted
"""
_CHOICES = {
    "action": ("list", "install", "doctor", "remove", "lock"),
    "format": ("text", "json"),
    "old": ("true", "false"),
}
_FREE = ("engine", "device", "with", "python")
_ONLY_FOR = {
    "device": ("install", "remove", "lock"),
    "with": ("install",),
    "python": ("install",),
    "format": ("list",),
    "old": ("remove",),
}


@dataclass
class Request:
    """What the command line asks for; `engine` None means all."""

    action: str = "list"
    engine: str | None = None
    device: str | None = None
    converters: list[str] = field(default_factory=list)
    python: str | None = None
    json: bool = False
    old: bool = False


def parse(arguments: list[str]) -> Request:
    """Read key=value arguments. Raises UsageError for anything else."""
    given = key_values(arguments, _FREE, _CHOICES)
    action = given.get("action", "list")
    for key, actions in _ONLY_FOR.items():
        if key in given and action not in actions:
            raise UsageError(f"{key}= belongs to action={' or '.join(actions)}, not to action={action}.")
    if action in ("install", "remove") and "engine" not in given:
        raise UsageError(f"action={action} needs engine=NAME; python -m harness.engines lists them.")
    return Request(
        action,
        given.get("engine"),
        given.get("device"),
        [name for name in given.get("with", "").split(",") if name],
        given.get("python"),
        given.get("format") == "json",
        given.get("old") == "true",
    )


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    if "--help" in arguments or "-h" in arguments:
        print(HELP, end="")
        return 0
    try:
        signal.signal(signal.SIGTERM, _interrupt)
        return execute(parse(arguments))
    except HarnessError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # its reader has gone, as in … | head; nor must Python's own last flush complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("Interrupted: nothing half-made is kept.", file=sys.stderr)
        return 130


def execute(request: Request) -> int:
    """Do what was asked; returns the exit code."""
    if request.action == "list":
        from harness.engines.listing import show

        show(request.engine, request.json)
        sys.stdout.flush()
        return 0
    if request.action == "install":
        from harness.engines.installing import install

        install(request.engine or "", request.device, request.converters, request.python)
        return 0
    if request.action == "doctor":
        from harness.engines.doctor import examine_all

        return examine_all(request.engine)
    if request.action == "remove":
        from harness.engines.removing import remove

        remove(request.engine or "", request.device, request.old)
        return 0
    from harness.engines.locking import lock

    lock(request.engine, request.device)
    return 0


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
