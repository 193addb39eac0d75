"""The two questions that quality tasks put to a running server: how probable is this, and how does it go on."""

from collections.abc import Sequence
from typing import Any

from backends.base import Endpoint
from backends.http_calls import Unreachable, post_json, server_words
from harness.core.errors import EndpointError
from harness.core.tokenizer import Tokenizer

_TIMEOUT_S = 300.0


def prompt_log_probs(endpoint: Endpoint, ids: Sequence[int]) -> list[float | None]:
    """log p of each prompt token by `echo` and `logprobs`; one token is generated, as not every server takes 0.

    Raises EndpointError where the server stops answering or refuses. A list of the wrong length is for the caller
    to tell, who knows how many were due.
    """
    choice = _complete(endpoint, ids, 1, {"echo": True, "logprobs": 1}, "prompt log-probabilities")
    try:
        values: list[float | None] = choice["logprobs"]["token_logprobs"]
    except (KeyError, TypeError):
        return []
    return values


def next_token_log_probs(
    endpoint: Endpoint, tokenizer: Tokenizer, ids: Sequence[int], alternatives: int, names_ids: bool
) -> list[dict[int, float]]:
    """For each prompt token what is known of its position's distribution: its own log p and the most probable ones'.

    alternatives: how many of those are asked for. names_ids: the server understands return_tokens_as_token_ids; else
    it names tokens by their texts, and one whose text several tokens share is left out. Empty where nothing was told.
    Raises EndpointError.
    """
    extras: dict[str, Any] = {"echo": True, "logprobs": max(1, alternatives)}
    if names_ids:
        extras["return_tokens_as_token_ids"] = True
    told = _complete(endpoint, ids, 1, extras, "prompt log-probabilities").get("logprobs") or {}
    own = (told.get("token_logprobs") or [])[: len(ids)]
    others = (told.get("top_logprobs") or [])[: len(ids)]
    found: list[dict[int, float]] = [{} for _ in ids]
    for known, by_name in zip(found, others, strict=False):
        for name, value in (by_name or {}).items():
            token = token_named(name, tokenizer)
            if token is not None:
                known[token] = float(value)
    for known, token, value in zip(found, ids, own, strict=False):
        if value is not None:
            known[token] = float(value)
    return found


def token_named(name: str, tokenizer: Tokenizer) -> int | None:
    """The id that a server means by token_id:N or by a token's text; None where no token alone has that text."""
    prefix, _, number = name.partition(":")
    if prefix == "token_id" and number.isdecimal():
        return int(number)
    return tokenizer.only_token(name)


def continuation(endpoint: Endpoint, ids: Sequence[int], tokens: int) -> str:
    """The text of the `tokens` most probable next tokens, one after another (greedy). Raises EndpointError."""
    choice = _complete(endpoint, ids, tokens, {}, "a completion of token ids")
    text = choice.get("text")
    if not isinstance(text, str):
        raise EndpointError("The server answered a completion without a text.")
    return text


def continuation_ids(endpoint: Endpoint, ids: Sequence[int], tokens: int, tells_ids: bool) -> list[int] | str:
    """The next `tokens` most probable tokens by their ids, or as text where the server does not tell ids.

    tells_ids: the server understands return_token_ids. Fewer where the model ends before. Raises EndpointError.
    """
    extras = {"return_token_ids": True} if tells_ids else {}
    choice = _complete(endpoint, ids, tokens, extras, "a completion of token ids")
    found = choice.get("token_ids")
    if isinstance(found, list):
        return [int(token) for token in found]
    return str(choice.get("text") or "")


def _complete(
    endpoint: Endpoint, ids: Sequence[int], tokens: int, extras: dict[str, Any], what: str
) -> dict[str, Any]:
    body = {
        "model": endpoint.model_name,
        "prompt": list(ids),
        "max_tokens": tokens,
        "temperature": 0,
        **extras,
    }
    try:
        reply = post_json(
            endpoint.base_url + "/v1/completions", body, endpoint.headers, _TIMEOUT_S, endpoint.trust
        )
    except Unreachable as error:
        raise EndpointError(f"The server stopped answering while quality was measured ({error}).") from error
    if reply.status != 200:
        raise EndpointError(f"The server refuses {what}: HTTP {reply.status}, {server_words(reply)}")
    try:
        choice: dict[str, Any] = reply.json()["choices"][0]
    except (KeyError, IndexError, TypeError) as error:
        raise EndpointError(f"The server answered {what} without a choice.") from error
    return choice
