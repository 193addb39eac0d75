"""A few blocking control calls outside the measurement: readiness, model names, a server's own words."""

import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

import orjson

from harness.core.secrets import secrets_of
from harness.core.tls import Trust

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_WORDS_LIMIT = 300


class Unreachable(Exception):
    """No answer at all: refused, unknown host, reset, timed out."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer, whatever its status."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body as JSON, or None where it is none."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None


_SYSTEM = Trust()


def get(url: str, headers: Mapping[str, str], timeout_s: float, trust: Trust = _SYSTEM) -> Reply:
    """GET; raises Unreachable."""
    return _call(urllib.request.Request(url, headers=dict(headers)), headers, timeout_s, trust)


def post_json(
    url: str, body: Any, headers: Mapping[str, str], timeout_s: float, trust: Trust = _SYSTEM
) -> Reply:
    """POST `body` as JSON; raises Unreachable."""
    request = urllib.request.Request(
        url, data=orjson.dumps(body), headers={"Content-Type": "application/json", **headers}
    )
    return _call(request, headers, timeout_s, trust)


def _call(
    request: urllib.request.Request, headers: Mapping[str, str], timeout_s: float, trust: Trust
) -> Reply:
    # A proxy from the environment must not be asked for this machine's own servers. Redirects are not
    # followed: they would carry the key to another host.
    proxies = urllib.request.ProxyHandler({}) if urlsplit(request.full_url).hostname in _LOOPBACK else None
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect(), *([proxies] if proxies else [])]
    if request.type == "https":
        handlers.append(urllib.request.HTTPSHandler(context=trust.context()))
    opener = urllib.request.build_opener(*handlers)
    try:
        with opener.open(request, timeout=timeout_s) as response:
            return Reply(response.status, _hidden(response.read(), headers))
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, _hidden(error.read(), headers))
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise Unreachable(str(getattr(reason, "strerror", None) or reason or type(error).__name__)) from error


def _hidden(body: bytes, headers: Mapping[str, str]) -> bytes:
    """The body without the key that was sent: a server's words end up on the screen and in records."""
    for secret in secrets_of(headers):
        body = body.replace(secret.encode(), b"(key)")
    return body


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def server_words(reply: Reply) -> str:
    """What a server says about an error, in OpenAI's shape or any other, on one line."""
    content = reply.json()
    if isinstance(content, dict):
        error = content.get("error", content)
        message = error.get("message") if isinstance(error, dict) else error
        message = message or content.get("message") or content.get("detail")
        if isinstance(message, str):
            return " ".join(message.split())[:_WORDS_LIMIT]
    return " ".join(reply.body.decode(errors="replace").split())[:_WORDS_LIMIT] or "(no message)"
