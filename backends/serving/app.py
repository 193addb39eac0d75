"""The HTTP process: routes of the OpenAI API over one engine process."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from itertools import count
from typing import Any

import orjson
from aiohttp import web

from backends.serving.answers import DONE, Answer, event
from backends.serving.bodies import Call, Refusal, parse_chat, parse_completion
from backends.serving.generation import generate
from backends.serving.link import EngineGone, EngineLink
from backends.serving.metrics import expose
from harness.core.errors import ModelError, UsageError
from harness.core.tokenizer import Tokenizer

log = logging.getLogger("serving")
_LARGEST_BODY = 64 << 20


class Server:
    """One model behind the API.

    context: most tokens of prompt and answer together. check_kv: raises UsageError for a `kv` object that cannot be;
    None where the engine takes none.
    """

    def __init__(
        self,
        link: EngineLink,
        tokenizer: Tokenizer,
        model_name: str,
        context: int,
        seed: int,
        check_kv: Callable[[Mapping[str, Any]], None] | None,
    ) -> None:
        self._link = link
        self._tokenizer = tokenizer
        self._model_name = model_name
        self._context = context
        self._seed = seed
        self._check_kv = check_kv
        self._numbers = count()
        self._created = int(time.time())

    def application(self) -> web.Application:
        """The routes, with every error in OpenAI's shape."""
        app = web.Application(client_max_size=_LARGEST_BODY, middlewares=[_errors_as_json])
        app.add_routes(
            [
                web.post("/v1/completions", self._completions),
                web.post("/v1/chat/completions", self._chat),
                web.get("/v1/models", self._models),
                web.get("/health", self._health),
                web.get("/metrics", self._metrics),
            ]
        )
        return app

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        call = parse_completion(await request.read())
        ids = self._tokenizer.encode(call.prompt) if isinstance(call.prompt, str) else call.prompt or []
        return await self._answer(request, call, ids)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        call = parse_chat(await request.read())
        try:
            text = self._tokenizer.render_chat(call.messages or [])
        except ModelError as error:
            raise Refusal(str(error), "messages") from error
        return await self._answer(request, call, self._tokenizer.encode(text))

    async def _answer(self, request: web.Request, call: Call, ids: list[int]) -> web.StreamResponse:
        if call.model not in (None, self._model_name):
            raise Refusal(
                f"The model {call.model!r} is not served here; {self._model_name!r} is.",
                "model",
                "model_not_found",
                404,
            )
        self._check_kv_of(call)
        self._require_ready()
        context = min(self._context, self._link.capacity_tokens or 0)
        sampling = call.sampling(ids, context, self._tokenizer.vocabulary, self._seed)
        answer = Answer(str(next(self._numbers)), self._model_name, call, ids, self._tokenizer.fast)
        async with aclosing(generate(self._link, self._tokenizer.fast, call, ids, sampling)) as pieces:
            if not call.stream:
                return _json(answer.whole([piece async for piece in pieces]))
            headers = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
            response = web.StreamResponse(headers=headers)
            await response.prepare(request)
            try:
                async for piece in pieces:
                    await response.write(answer.chunk(piece))
                if call.include_usage:
                    await response.write(answer.usage_chunk())
                await response.write(DONE)
            except EngineGone as error:
                await response.write(event(Refusal(str(error), status=500).body()))
            except Refusal as error:
                await response.write(event(error.body()))
            except ConnectionError:
                log.info("a client left before its answer was complete")
            return response

    def _check_kv_of(self, call: Call) -> None:
        if call.kv is None:
            return
        if self._check_kv is None:
            raise Refusal("kv cannot be chosen for each request here: this engine holds all alike.", "kv")
        try:
            self._check_kv(call.kv)
        except UsageError as error:
            raise Refusal(str(error), "kv") from error

    async def _models(self, request: web.Request) -> web.Response:
        model = {
            "id": self._model_name,
            "object": "model",
            "created": self._created,
            "owned_by": "backends.serving",
        }
        return _json({"object": "list", "data": [{**model, "max_model_len": self._context}]})

    async def _health(self, request: web.Request) -> web.Response:
        self._require_ready()
        return _json({"status": "ok"})

    async def _metrics(self, request: web.Request) -> web.Response:
        body, content_type = expose(self._link.metrics())
        return web.Response(body=body, headers={"Content-Type": content_type})

    def _require_ready(self) -> None:
        if self._link.gone.done():
            raise EngineGone(self._link.gone.result())
        if self._link.capacity_tokens is None:
            raise Refusal("The model is still being loaded.", status=503)


@web.middleware
async def _errors_as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refusal as error:
        return _json(error.body(), error.status)
    except EngineGone as error:
        return _json(Refusal(str(error), status=500).body(), 500)
    except web.HTTPException as error:
        return _json(
            Refusal(f"{error.reason}: {request.method} {request.path}", status=error.status).body(),
            error.status,
        )


def _json(content: object, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(content), status=status, content_type="application/json")
