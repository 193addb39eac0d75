"""The engine process: one thread that takes commands between two steps and reports after each.

It is a process of its own because a library may hold the interpreter's lock through a whole step (OpenVINO's
does, for seconds during a prefill), and other people's streams must not wait for that.
"""

import argparse
import logging
import socket
import sys
from pathlib import Path

import orjson

from backends.serving.engine import Engine, EngineConfig, RequestOutput, load_engine
from backends.serving.messages import Add, CommandSocket, Outputs, Ready
from harness.core.errors import HarnessError

log = logging.getLogger("engine")


def serve(engine: Engine, commands: CommandSocket) -> None:
    """Work until the HTTP process closes its end."""
    commands.send(Ready(engine.capacity_tokens, engine.gauges()))
    while True:
        outputs: list[RequestOutput] = []
        try:
            arrived = commands.receive(wait=not engine.has_work())
        except EOFError:
            return
        for command in arrived:
            if isinstance(command, Add):
                try:
                    engine.add(command.request_id, command.ids, command.sampling)
                except ValueError as error:
                    outputs.append(RequestOutput(command.request_id, error=str(error)))
            else:
                engine.cancel(command.request_id)
        if engine.has_work():
            outputs += engine.step()
        commands.send(Outputs(outputs, engine.gauges()))


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
