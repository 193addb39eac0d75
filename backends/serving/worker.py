"""The engine process: one thread that takes commands between two steps and reports after each.

It is a process of its own because a library may hold the interpreter's lock through a whole step (OpenVINO's
does, for seconds during a prefill), and other people's streams must not wait for that.
"""

import argparse
import logging
import os
import socket
import sys
import time
from pathlib import Path

import orjson

from backends.serving.engine import Engine, EngineConfig, RequestOutput, load_engine
from backends.serving.messages import Add, Command, CommandSocket, Outputs, Ready
from harness.core.errors import HarnessError

log = logging.getLogger("engine")
# Nobody can join a step. So an engine that was idle begins when no further request has come for the first of these
# times, and at the latest after the second: requests sent together are computed together.
_SILENCE_S = 0.001
_LONGEST_GATHERING_S = 0.005


def serve(engine: Engine, commands: CommandSocket) -> None:
    """Work until the HTTP process closes its end."""
    commands.send(Ready(engine.capacity_tokens, engine.gauges()))
    while True:
        outputs: list[RequestOutput] = []
        try:
            arrived = commands.receive(0) if engine.has_work() else _burst(commands)
        except EOFError:
            return
        for command in arrived:
            if isinstance(command, Add):
                try:
                    engine.add(command.request_id, command.ids, command.sampling)
                except ValueError as error:
                    outputs.append(RequestOutput(command.request_id, error=str(error)))
                except Exception as error:  # a fault of ours, met by one request, is nobody else's end
                    log.exception("request %d cannot be taken", command.request_id)
                    outputs.append(
                        RequestOutput(command.request_id, error=f"{type(error).__name__}: {error}")
                    )
            else:
                engine.cancel(command.request_id)
        if engine.has_work():
            outputs += engine.step()
        commands.send(Outputs(outputs, engine.gauges()))
        # On a core of its own this does nothing. On one that it shares, Linux would let the next step compute for
        # milliseconds before the HTTP process, which has just been woken, sends the tokens on.
        os.sched_yield()


def _burst(commands: CommandSocket) -> list[Command]:
    arrived = commands.receive(None)
    latest = time.monotonic() + _LONGEST_GATHERING_S
    while time.monotonic() < latest and (more := commands.receive(_SILENCE_S)):
        arrived += more
    return arrived


def main() -> int:
    """Load the engine named on the command line and serve it."""
    parser = argparse.ArgumentParser(prog="python -m backends.serving.worker")
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--eos-ids", type=orjson.loads, required=True)
    parser.add_argument("--options", type=orjson.loads, required=True)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    try:
        config = EngineConfig.from_options(arguments.model, tuple(arguments.eos_ids), arguments.options)
        engine = load_engine(arguments.engine, config)
    except HarnessError as error:
        log.error("%s", error)
        return error.exit_code
    try:
        serve(engine, CommandSocket(socket.socket(fileno=arguments.socket)))
    except (BrokenPipeError, ConnectionResetError):
        log.info("the HTTP process is gone")
    finally:
        engine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
