"""`python -m backends.serving`: one model of an engine of a library, served with the OpenAI API."""

import argparse
import asyncio
import logging
import signal
import socket
import sys
from pathlib import Path

import orjson
from aiohttp import web

from backends.serving.app import Server
from backends.serving.engine import EngineConfig, kv_check
from backends.serving.link import EngineLink
from harness.core.errors import EngineError, HarnessError, UsageError
from harness.core.tokenizer import Tokenizer

log = logging.getLogger("serving")
_BACKLOG = 1024
_FAREWELL_S = 2.0  # for streams to say why, when the engine has died


def parser() -> argparse.ArgumentParser:
    """What the command takes."""
    parser = argparse.ArgumentParser(prog="python -m backends.serving", description=__doc__)
    parser.add_argument("--engine", required=True, help="kvcompress, onnxruntime or openvino")
    parser.add_argument("--model", type=Path, required=True, help="what the engine loads: a file or a folder")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder with tokenizer.json")
    parser.add_argument("--model-name", required=True, help="the model's name in the API")
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--options", required=True, help="the engine's options, a JSON object")
    return parser


def main() -> int:
    """Serve until a signal comes or the engine dies; returns the exit status."""
    arguments = parser().parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    try:
        return asyncio.run(_serve(arguments))
    except HarnessError as error:
        log.error("%s", error)
        return error.exit_code


async def _serve(arguments: argparse.Namespace) -> int:
    try:
        options = orjson.loads(arguments.options)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"--options is no JSON: {error}.") from error
    tokenizer = Tokenizer.from_folder(arguments.tokenizer)
    config = EngineConfig.from_options(arguments.model, tokenizer.eos_ids, options)
    listening = _listen(
        arguments.host, arguments.port
    )  # before the model is loaded: a used port is told at once
    link = EngineLink()
    stop = asyncio.Event()  # somebody asked for the end, or the engine's has come
    asked: list[int] = []

    def end(number: int) -> None:
        asked.append(number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, end, number)
    check_kv = kv_check(arguments.engine, config)
    server = Server(link, tokenizer, arguments.model_name, config.context_length, config.seed, check_kv)
    # handler_cancellation: a request is given up when its client leaves, even while nothing is being written to it.
    runner = web.AppRunner(
        server.application(), access_log=None, handler_cancellation=True, shutdown_timeout=_FAREWELL_S
    )
    await runner.setup()
    await web.SockSite(runner, listening, backlog=_BACKLOG).start()
    try:
        await link.start(
            ["--engine", arguments.engine, "--model", str(arguments.model),
             "--eos-ids", orjson.dumps(tokenizer.eos_ids).decode(), "--options", arguments.options]
        )  # fmt: skip
        link.gone.add_done_callback(lambda _: stop.set())
        await stop.wait()
        if not asked:
            log.error("%s", link.gone.result())
            return 1
        return 0
    finally:
        await runner.cleanup()
        await link.close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=_BACKLOG)
    except OSError as error:
        raise EngineError(
            f"Port {port} of {host} cannot be used ({error.strerror}). Choose another, or end what "
            "listens there."
        ) from error


if __name__ == "__main__":
    sys.exit(main())
