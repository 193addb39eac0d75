"""Calls to a server that are not measured: one JSON body there, one back."""

import json
import urllib.error
import urllib.request
from typing import Any

from backends.base import Endpoint
from harness.core.errors import EndpointError


def post_json(endpoint: Endpoint, path: str, body: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """POST `body` to base_url + path and return the answer; raises EndpointError with the server's own words."""
    request = urllib.request.Request(
        endpoint.base_url + path,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", **endpoint.headers},
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            result: dict[str, Any] = json.load(answer)
            return result
    except urllib.error.HTTPError as error:
        words = error.read(2000).decode("utf-8", "replace").strip()
        raise EndpointError(f"{path} answered {error.code}: {words}") from error
    except (OSError, ValueError) as error:
        raise EndpointError(f"{path} did not answer: {error}") from error
