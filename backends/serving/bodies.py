"""Request bodies of the OpenAI API, checked: every field known, every type right, else a clear refusal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from backends.serving.engine import Sampling
from harness.core.tokenizer import Message

_GENERATION = {"max_tokens", "min_tokens", "ignore_eos", "stop", "seed", "temperature", "top_p", "n"}
_SHARED = frozenset({"model", "stream", "stream_options", "return_token_ids", "user", "kv"} | _GENERATION)
_COMPLETION = _SHARED | {"prompt", "echo", "logprobs", "return_tokens_as_token_ids"}
_CHAT = _SHARED | {"messages", "max_completion_tokens"}
_COMPLETION_TOKENS = 16  # what the API gives where a completion names no length
_SEED_LIMIT = 1 << 63
_MOST_ALTERNATIVES = 20  # a position


class Refusal(Exception):
    """A request that is answered with an error in OpenAI's shape.

    status: HTTP status. param: the field it is about. code: OpenAI's word for well-known kinds.
    """

    def __init__(
        self, message: str, param: str | None = None, code: str | None = None, status: int = 400
    ) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.status = status

    def body(self) -> dict[str, Any]:
        """The JSON object a client gets."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


@dataclass(frozen=True, slots=True)
class Call:
    """A checked request. prompt: text or ids (completions); messages: a conversation (chat); one of them is None.

    max_tokens: None means as many as fit. logprobs: of each token; alternatives: of so many most probable ones beside
    it; tokens_as_ids: there, tokens are named token_id:N, since several ids may have one text. echo: the prompt is
    part of the answer. kv: how its KV cache is held, as the engine understands it; None where the request does not
    say.
    """

    model: str | None
    prompt: str | list[int] | None
    messages: list[Message] | None
    stream: bool
    include_usage: bool
    max_tokens: int | None
    min_tokens: int
    ignore_eos: bool
    stops: tuple[str, ...]
    seed: int | None
    temperature: float
    top_p: float
    return_token_ids: bool
    echo: bool
    logprobs: bool
    alternatives: int
    tokens_as_ids: bool
    kv: Mapping[str, Any] | None

    @property
    def chat(self) -> bool:
        """Whether the answer takes the chat shape."""
        return self.messages is not None

    def sampling(
        self, prompt_ids: Sequence[int], context: int, vocabulary: int, default_seed: int
    ) -> Sampling:
        """How to generate for these prompt ids; raises Refusal where they do not fit."""
        field = "messages" if self.chat else "prompt"
        if not prompt_ids:
            raise Refusal("The prompt is empty; give at least one token.", field)
        wrong = next((token for token in prompt_ids if not 0 <= token < vocabulary), None)
        if wrong is not None:
            raise Refusal(f"Token id {wrong} is outside the vocabulary (0 to {vocabulary - 1}).", field)
        room = context - len(prompt_ids)
        wanted = max(room, 1) if self.max_tokens is None else self.max_tokens
        if room < 0 or wanted > room:
            raise Refusal(
                f"The context holds {context} tokens; the prompt has {len(prompt_ids)} and max_tokens asks "
                f"for {wanted} more.",
                field,
                "context_length_exceeded",
            )
        if self.min_tokens > wanted:
            raise Refusal(f"min_tokens={self.min_tokens} is more than max_tokens={wanted}.", "min_tokens")
        return Sampling(
            max_tokens=wanted,
            min_tokens=self.min_tokens,
            ignore_eos=self.ignore_eos,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=default_seed if self.seed is None else self.seed,
            logprobs=self.logprobs,
            prompt_logprobs=self.echo and self.logprobs,
            alternatives=self.alternatives,
            kv=self.kv,
        )


class _Body:
    """A JSON object whose fields are taken by name and kind; null counts as absent."""

    def __init__(self, raw: bytes, known: frozenset[str]) -> None:
        try:
            content = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise Refusal(f"The body is no JSON: {error}.") from error
        if not isinstance(content, dict):
            raise Refusal("The body must be a JSON object.")
        for name in content:
            if name not in known:
                raise Refusal(f"Unknown field {name!r}. Known are {', '.join(sorted(known))}.", name)
        self._fields = {name: value for name, value in content.items() if value is not None}

    def any(self, name: str) -> Any:
        return self._fields.get(name)

    def text(self, name: str) -> str | None:
        return self._typed(name, str, "a string")

    def flag(self, name: str) -> bool:
        return bool(self._typed(name, bool, "true or false"))

    def object(self, name: str) -> dict[str, Any] | None:
        return self._typed(name, dict, "an object")

    def whole(self, name: str, low: int, high: int = _SEED_LIMIT) -> int | None:
        value: int | None = self._typed(name, int, "a whole number")
        if value is not None and not low <= value < high:
            raise Refusal(
                f"{name} must be at least {low}{f' and below {high}' if high != _SEED_LIMIT else ''}.", name
            )
        return value

    def number(self, name: str, low: float, high: float, default: float) -> float:
        value = self._typed(name, (int, float), "a number")
        if value is None:
            return default
        if not low <= value <= high:
            raise Refusal(f"{name} must lie between {low:g} and {high:g}.", name)
        return float(value)

    def _typed(self, name: str, kind: type | tuple[type, ...], words: str) -> Any:
        value = self._fields.get(name)
        # In Python a bool is an int; in JSON it is not.
        if value is not None and (
            not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
        ):
            raise Refusal(f"{name} must be {words}.", name)
        return value


def parse_completion(raw: bytes) -> Call:
    """The body of /v1/completions; raises Refusal."""
    body = _Body(raw, _COMPLETION)
    echo = body.flag("echo")
    logprobs = body.whole("logprobs", 0, _MOST_ALTERNATIVES + 1)
    max_tokens = body.whole("max_tokens", 0)
    if max_tokens == 0 and not echo:
        raise Refusal("max_tokens may be 0 only with echo, where the prompt is the answer.", "max_tokens")
    return _call(
        body,
        prompt=_prompt(body.any("prompt")),
        messages=None,
        max_tokens=_COMPLETION_TOKENS if max_tokens is None else max_tokens,
        echo=echo,
        logprobs=logprobs,
    )


def parse_chat(raw: bytes) -> Call:
    """The body of /v1/chat/completions; raises Refusal."""
    body = _Body(raw, _CHAT)
    max_tokens = body.whole("max_completion_tokens", 1) or body.whole("max_tokens", 1)
    messages = _messages(body.any("messages"))
    return _call(body, prompt=None, messages=messages, max_tokens=max_tokens, echo=False, logprobs=None)


def _call(
    body: _Body,
    prompt: str | list[int] | None,
    messages: list[Message] | None,
    max_tokens: int | None,
    echo: bool,
    logprobs: int | None,
) -> Call:
    if body.whole("n", 1) not in (None, 1):
        raise Refusal("n must be 1: one answer for each request.", "n")
    stream = body.flag("stream")
    return Call(
        model=body.text("model"),
        prompt=prompt,
        messages=messages,
        stream=stream,
        include_usage=_include_usage(body.any("stream_options"), stream),
        max_tokens=max_tokens,
        min_tokens=body.whole("min_tokens", 0) or 0,
        ignore_eos=body.flag("ignore_eos"),
        stops=_stops(body.any("stop")),
        seed=body.whole("seed", 0),
        temperature=body.number("temperature", 0, 100, 1.0),
        top_p=body.number("top_p", 1e-6, 1, 1.0),
        return_token_ids=body.flag("return_token_ids"),
        echo=echo,
        logprobs=logprobs is not None,
        # Whoever asks for one wants to know the token's own; not every engine knows more.
        alternatives=logprobs if logprobs is not None and logprobs > 1 else 0,
        tokens_as_ids=body.flag("return_tokens_as_token_ids"),
        kv=body.object("kv"),
    )


def _prompt(value: Any) -> str | list[int]:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(type(token) is int for token in value):
        return value
    raise Refusal("prompt must be one text or one list of token ids.", "prompt")


def _messages(value: Any) -> list[Message]:
    if not isinstance(value, list) or not value:
        raise Refusal("messages must be a list of at least one {role, content}.", "messages")
    for message in value:
        if (
            not isinstance(message, dict)
            or not isinstance(message.get("role"), str)
            or not isinstance(message.get("content"), str)
        ):
            raise Refusal("Each of messages must have a role and a content, both strings.", "messages")
    return value


def _stops(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if stops is None:
        return ()
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
        raise Refusal("stop must be a string or a list of strings, none of them empty.", "stop")
    return tuple(stops)


def _include_usage(value: Any, stream: bool) -> bool:
    if value is None:
        return False
    if not stream:
        raise Refusal("stream_options is allowed only with stream=true.", "stream_options")
    if not isinstance(value, dict) or value.keys() - {"include_usage"}:
        raise Refusal("stream_options may hold include_usage only.", "stream_options")
    if not isinstance(value.get("include_usage", False), bool):
        raise Refusal("stream_options.include_usage must be true or false.", "stream_options")
    return bool(value.get("include_usage", False))
