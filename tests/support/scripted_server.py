"""A server of the OpenAI API whose every answer is scripted, and which knows when it sent each token.

    python -m tests.support.scripted_server --port 0 --ttft-ms 20 --itl-ms 20

prints `listening on PORT`. It speaks HTTP by a few lines of its own and shares no parsing with the product: an
oracle. Beside the API it answers `POST /scripted/scripts` ({"default", "by_key", "in_order"}; a key is the first
prompt id, or the last message's text) and `GET /scripted/record` (what it saw and sent, by arrival).
"""

import argparse
import asyncio
import base64
import contextlib
import gc
import json
import resource
import signal
import socket
import ssl
import time
from typing import Any

from tests.support.scripts import Script

MODEL = "scripted"


class StampedProtocol(asyncio.StreamReaderProtocol):
    """Notes when bytes came in, before anything is done with them."""

    last_read_ns = 0

    def data_received(self, data: bytes) -> None:
        self.last_read_ns = time.monotonic_ns()
        super().data_received(data)


class Server:
    """State shared by the connections."""

    def __init__(self, default: Script, slots: int | None = None) -> None:
        self.default = default
        self.slots = asyncio.Semaphore(slots) if slots else contextlib.nullcontext()
        self.by_key: dict[str, Script] = {}
        self.in_order: list[Script] = []
        self.record: list[dict[str, Any]] = []
        self.connections = 0

    def script_for(self, key: str) -> Script:
        if key in self.by_key:
            return self.by_key[key]
        return self.in_order.pop(0) if self.in_order else self.default

    def set_scripts(self, message: dict[str, Any]) -> None:
        if "default" in message:
            self.default = Script.from_json(message["default"])
        self.by_key = {key: Script.from_json(value) for key, value in message.get("by_key", {}).items()}
        self.in_order = [Script.from_json(value) for value in message.get("in_order", [])]
        self.record = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                line, *rest = head.split("\r\n")
                method, path, _ = line.split(" ")
                headers = {
                    name.lower(): value
                    for name, _, value in (entry.partition(": ") for entry in rest if entry)
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                received_ns = writer.transport.get_protocol().last_read_ns
                if not await self._answer(writer, method, path, headers, body, received_ns):
                    break
        with contextlib.suppress(ConnectionError):
            writer.close()

    async def _answer(
        self,
        writer: asyncio.StreamWriter,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
        received_ns: int,
    ) -> bool:
        """Answer one request; False closes the connection."""
        if method == "GET":
            _plain(writer, *self._get(path))
            return True
        message = json.loads(body)
        if path == "/scripted/scripts":
            self.set_scripts(message)
            _plain(writer, {})
            return True
        if not path.endswith(("/v1/completions", "/v1/chat/completions")):
            _plain(writer, {"error": {"message": f"no {path} here"}}, status=404)
            return True
        if message.get("echo"):
            _plain(writer, _echo(message))
            return True
        chat = path.endswith("/chat/completions")
        key = str(message["messages"][-1]["content"] if chat else message["prompt"][0])
        script = self.script_for(key)
        entry = {"key": key, "received_ns": received_ns, "sends": [], "tokens": 0, "body": message}
        entry["authorization"] = headers.get("authorization")
        self.record.append(entry)
        if not message.get("stream"):
            script = Script(body=_whole(message, chat, script), content_type="application/json")
        try:
            async with self.slots:  # answered so many at a time, the others in order of arrival
                return await Answer(writer, script, message, chat, entry).run()
        except ConnectionError:
            entry["client_left"] = True
            raise

    def _get(self, path: str) -> tuple[Any, int]:
        if path == "/v1/models":
            model = {"id": MODEL, "object": "model", "owned_by": "tests", "max_model_len": 8192}
            return {"object": "list", "data": [model]}, 200
        if path == "/health":
            return {"status": "ok"}, 200
        if path == "/metrics":
            tokens = sum(entry["tokens"] for entry in self.record)
            return (
                "# TYPE harness_requests_running gauge\nharness_requests_running 0\n"
                "# TYPE harness_kv_used_bytes gauge\nharness_kv_used_bytes 0\n"
                f"# TYPE harness_generated_tokens_total counter\nharness_generated_tokens_total {tokens}\n"
            ), 200
        if path == "/scripted/record":
            return {"requests": self.record, "connections": self.connections}, 200
        return {"error": {"message": f"no {path} here"}}, 404


class Answer:
    """One scripted answer on its way."""

    def __init__(
        self,
        writer: asyncio.StreamWriter,
        script: Script,
        request: dict[str, Any],
        chat: bool,
        entry: dict[str, Any],
    ) -> None:
        self.writer = writer
        self.script = script
        self.request = request
        self.chat = chat
        self.entry = entry
        self.prompt_tokens = 8 if chat else len(request["prompt"])
        self.total = script.tokens if script.tokens is not None else request.get("max_tokens", 16)
        self.with_ids = (
            script.token_ids if script.token_ids is not None else bool(request.get("return_token_ids"))
        )

    async def run(self) -> bool:
        script = self.script
        if script.vanish == "unanswered":
            return False
        if script.headers_ms:
            await asyncio.sleep(script.headers_ms / 1e3)
        if script.pieces is not None:
            self._head()
            for wait_ms, encoded in script.pieces:
                await asyncio.sleep(wait_ms / 1e3)
                self._body(base64.b64decode(encoded))
            self._end()
        elif script.status != 200 or script.body is not None:
            data = (script.body or "").encode()
            self._head(len(data))
            self._body(data)
            self._end()
        elif not await self._stream():
            return False
        if script.vanish == "after":
            return False
        return script.framing != "close" and not script.announce_close

    def _head(self, length: int | None = None) -> None:
        script = self.script
        lines = [f"HTTP/1.1 {script.status} Scripted"]
        if script.content_type:
            lines.append(f"Content-Type: {script.content_type}")
        if script.location is not None:
            lines.append(f"Location: {script.location}")
        if script.announce_close:
            lines.append("Connection: close")
        self.chunked = script.framing == "chunked"
        if self.chunked:
            lines.append("Transfer-Encoding: chunked")
        elif script.framing == "length":
            lines.append(f"Content-Length: {length if length is not None else self._raw_length()}")
        self.entry["headers_ns"] = time.monotonic_ns()
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())

    def _raw_length(self) -> int:
        return sum(len(base64.b64decode(data)) for _, data in self.script.pieces or ())

    def _body(self, data: bytes) -> None:
        if self.writer.transport.is_closing():
            raise ConnectionResetError
        if data:
            self.writer.write(b"%x\r\n%b\r\n" % (len(data), data) if self.chunked else data)

    def _end(self) -> None:
        if self.chunked:
            self.writer.write(b"0\r\n\r\n")

    def _event(self, record: dict[str, Any], instants: list[int] | None = None) -> None:
        data = b"data: " + json.dumps(record).encode() + b"\n\n"
        if instants is not None:
            instants.append(time.monotonic_ns())
        self._body(data)

    async def _stream(self) -> bool:
        script = self.script
        start = time.monotonic()
        self._head()
        if script.role_first:
            self._event(self._chunk({"role": "assistant", "content": ""}, None, 0))
        sent, due = 0, start + script.ttft_ms / 1e3
        while True:
            if script.error_after is not None and sent >= script.error_after:
                self._event({"error": {"message": "scripted failure", "type": "server_error", "code": 500}})
                self._body(b"data: [DONE]\n\n")
                self._end()
                return True
            if script.cut_after is not None and sent >= script.cut_after:
                await asyncio.sleep(0.002)
                self.writer.transport.abort()
                return False
            if script.stall_after is not None and sent >= script.stall_after:
                while not self.writer.transport.is_closing():
                    await asyncio.sleep(0.01)
                return False
            if sent >= self.total:
                break
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            step = min(script.per_event, self.total - sent)
            self._tokens(sent, step)
            sent += step
            due += script.itl_ms / 1e3
        if script.finish == "separate":
            self._event(self._chunk({"content": ""}, "stop", sent))
        if script.usage == "last":
            self._event({"id": "s", "choices": [], "usage": self._usage(sent)})
        if script.done:
            self._body(b"data: [DONE]\n\n")
        self._end()
        return True

    def _tokens(self, sent: int, step: int) -> None:
        script = self.script
        text = "".join(script.texts[(sent + i) % len(script.texts)] for i in range(step))
        last = sent + step >= self.total and script.finish == "with_last"
        delta: dict[str, Any] = {script.field: text}
        if script.field == "tool":
            delta = {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}
        record = self._chunk(delta, "length" if last else None, sent + step)
        if self.with_ids:
            record["choices"][0]["token_ids"] = list(range(sent, sent + step))
        self._event(record, self.entry["sends"])
        self.entry["tokens"] += step

    def _chunk(self, delta: dict[str, Any], finish: str | None, sent: int) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        if self.chat:
            choice["delta"] = delta
        else:
            choice["text"] = delta.get("content", "")
        record: dict[str, Any] = {"id": "s", "model": MODEL, "choices": [choice]}
        if self.script.usage == "every":
            record["usage"] = self._usage(sent)
        return record

    def _usage(self, sent: int) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": sent,
            "total_tokens": self.prompt_tokens + sent,
            "prompt_tokens_details": {"cached_tokens": 3},
        }


def _plain(writer: asyncio.StreamWriter, answer: Any, status: int = 200) -> None:
    data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
    kind = "text/plain" if isinstance(answer, str) else "application/json"
    head = f"HTTP/1.1 {status} Scripted\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)


def _whole(message: dict[str, Any], chat: bool, script: Script) -> str:
    """An answer to a request that asked for no stream."""
    count = script.tokens if script.tokens is not None else message.get("max_tokens", 16)
    text = "".join(script.texts[i % len(script.texts)] for i in range(count))
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
    if chat:
        choice["message"] = {"role": "assistant", "content": text}
    else:
        choice["text"] = text
    usage = {"prompt_tokens": 8, "completion_tokens": count, "total_tokens": 8 + count}
    return json.dumps({"id": "s", "model": MODEL, "choices": [choice], "usage": usage})


def _echo(message: dict[str, Any]) -> dict[str, Any]:
    """Prompt log-probabilities: -1 for every predicted token, so that the perplexity is e."""
    prompt = message["prompt"]
    generated = message.get("max_tokens", 1)
    log_probs = [None] + [-1.0] * (len(prompt) - 1 + generated)
    tokens = [f"token_id:{token}" for token in prompt] + ["word"] * generated
    choice = {
        "index": 0,
        "text": " word" * len(tokens),
        "finish_reason": "length",
        "logprobs": {"tokens": tokens, "token_logprobs": log_probs, "text_offset": list(range(len(tokens)))},
    }
    usage = {
        "prompt_tokens": len(prompt),
        "completion_tokens": generated,
        "total_tokens": len(prompt) + generated,
    }
    return {"id": "s", "object": "text_completion", "model": MODEL, "choices": [choice], "usage": usage}


async def _main(options: argparse.Namespace) -> None:
    server = Server(Script(ttft_ms=options.ttft_ms, itl_ms=options.itl_ms), options.slots)
    tls = None
    if options.certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(options.certificate)
    loop = asyncio.get_running_loop()

    def protocol() -> StampedProtocol:
        return StampedProtocol(asyncio.StreamReader(limit=1 << 26), server.serve)

    listening = await loop.create_server(protocol, "127.0.0.1", options.port, ssl=tls, backlog=4096)
    print(f"listening on {listening.sockets[0].getsockname()[1]}", flush=True)
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    if options.leash:
        loop.add_reader(0, stopped.set)
    gc.freeze()
    await stopped.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="A server of the OpenAI API whose answers are scripted.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ttft-ms", type=float, default=5.0)
    parser.add_argument("--itl-ms", type=float, default=1.0)
    parser.add_argument("--slots", type=int, help="how many requests are answered at a time (default: all)")
    parser.add_argument("--leash", action="store_true", help="end with standard input")
    parser.add_argument("--certificate", help="PEM file with key and certificate: serve https")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_main(options))


if __name__ == "__main__":
    main()
