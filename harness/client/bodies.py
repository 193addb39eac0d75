"""Requests as bytes: the JSON body of a planned request, and the HTTP head before it.

Everything here runs before the clock starts, or in the helper process that builds later turns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from harness.client.address import Address
from harness.core.errors import UsageError
from harness.core.requests import PlannedRequest


@dataclass(frozen=True, slots=True)
class BodyStyle:
    """What is equal in every body of a job; see `ClientJob`."""

    api: str
    model: str
    extras: Mapping[str, Any]
    enforce_length: bool
    return_token_ids: bool
    temperature: float

    def body(
        self,
        request: PlannedRequest,
        prompt_ids: Sequence[int] | None = None,
        messages: Sequence[Mapping[str, str]] | None = None,
    ) -> bytes:
        """JSON of `request`, with `prompt_ids` or `messages` in place of the planned ones where given."""
        fields: dict[str, Any] = {"model": self.model}
        if self.api == "chat":
            fields["messages"] = list(messages if messages is not None else request.messages)
        else:
            fields["prompt"] = prompt_ids if prompt_ids is not None else request.prompt_ids
        fields["max_tokens"] = request.max_output_tokens
        if self.enforce_length and request.output_tokens is not None:
            fields["max_tokens"] = fields["min_tokens"] = request.output_tokens
            fields["ignore_eos"] = True
        fields["stream"] = True
        fields["stream_options"] = {"include_usage": True}
        fields["temperature"] = self.temperature
        if self.return_token_ids:
            fields["return_token_ids"] = True
        fields.update(self.extras)
        return orjson.dumps(fields)

    @property
    def path(self) -> str:
        """Where such bodies are posted, after the server's own prefix."""
        return "/v1/chat/completions" if self.api == "chat" else "/v1/completions"


def request_head(address: Address, path: str, headers: Mapping[str, str]) -> bytes:
    """The HTTP/1.1 head of a POST up to the value of Content-Length, which comes last.

    Raises UsageError for a header that would break out of its line.
    """
    fields = {
        "Host": address.authority,
        "Accept": "text/event-stream",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        "User-Agent": "inference-harness",
    }
    own = {name.lower() for name in headers}
    lines = [f"POST {address.prefix}{path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in fields.items() if name.lower() not in own]
    for name, value in headers.items():
        if any(mark in name + value for mark in "\r\n\0"):
            raise UsageError(
                f"The header {name!r} holds a line break. Check the key in its environment variable."
            )
        lines.append(f"{name}: {value}")
    return ("\r\n".join(lines) + "\r\nContent-Length: ").encode("latin-1", "replace")


def request_bytes(head: bytes, body: bytes, name: str = "") -> bytes:
    """The whole request as it goes over the wire; `name` goes with it as X-Request-Id, if it is not empty."""
    named = b"\r\nX-Request-Id: " + name.encode("latin-1") if name else b""
    return b"%b%d%b\r\n\r\n%b" % (head, len(body), named, body)
