"""A server that somebody else runs: what can be checked, where it answers, what it calls its model."""

import os
from urllib.parse import urlsplit

from backends.base import Endpoint, EngineOptions
from backends.http_calls import Unreachable, get, server_words
from harness.core.errors import EndpointError, UsageError
from harness.core.tls import Trust

_TIMEOUT_S = 30.0
# Settings of a server that somebody else started: nothing here puts them in force.
_THEIRS = (
    "python",
    "device",
    "dtype",
    "weight_dtype",
    "kv_dtype",
    "max_running",
    "kv_bytes",
    "prefix_cache",
    "prefill_chunk",
    "tensor_parallel",
    "threads",
    "port",
)


def check_running(options: EngineOptions) -> None:
    """Raise UsageError for an odd URL, for an API nobody speaks and for a certificate file that is none."""
    if base_url(options).startswith("https"):
        trust(options).context()
    if options.api not in ("completions", "chat"):
        raise UsageError(f"backend.api={options.api} is unknown. Choose completions or chat.")


def check_nothing_is_theirs(options: EngineOptions) -> None:
    """Raise UsageError for settings that only the server's owner can change."""
    for key in _THEIRS:
        if getattr(options, key) is not None:
            raise UsageError(
                f"backend.{key} cannot be set from here: the server at backend.base_url already runs. "
                "Leave it null, and start the server as you want it."
            )
    if options.extra_args:
        raise UsageError(
            "backend.extra_args cannot be given to a server that is already running. Leave it empty."
        )


def idle_settings(options: EngineOptions) -> tuple[str, ...]:
    """Keys that are set although the server runs already, and its owner's values count; () where none is.

    `backend=endpoint` refuses them; an engine by its name has values for all, and some decide what is asked of it.
    """
    if options.base_url is None:
        return ()
    return tuple(key for key in _THEIRS if getattr(options, key) is not None)


def base_url(options: EngineOptions) -> str:
    """backend.base_url without a trailing slash and /v1. Raises UsageError where it is none."""
    url = options.base_url
    if not url:
        raise UsageError(f"backend={options.name} needs backend.base_url, for example http://127.0.0.1:8000")
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"backend.base_url={url} must start with http:// or https://")
    if "@" in urlsplit(url).netloc:
        raise UsageError(
            "backend.base_url holds a user or a password, which would be written into records. Put a key "
            f"into the environment variable {options.api_key_env}."
        )
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def trust(options: EngineOptions) -> Trust:
    """Whom an https server must convince."""
    return Trust(options.verify_tls, options.ca_file)


def running_endpoint(options: EngineOptions) -> Endpoint:
    """The server, its model's name (asked for where backend.model_name is null) and the key's header.

    Raises UsageError for an odd URL, EndpointError where the server cannot be asked.
    """
    url = base_url(options)
    key = os.environ.get(options.api_key_env)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    name = options.model_name or _ask_model(url, headers, options)
    return Endpoint(url, name, headers, trust(options))


def _ask_model(base_url: str, headers: dict[str, str], options: EngineOptions) -> str:
    url = f"{base_url}/v1/models"
    try:
        reply = get(url, headers, _TIMEOUT_S, trust(options))
    except Unreachable as error:
        raise EndpointError(
            f"No server answers at {base_url} ({error}). Start it, or correct backend.base_url."
        ) from error
    if reply.status in (401, 403):
        said = "refuses the key in" if headers else "wants a key: put it into"
        raise EndpointError(
            f"{base_url} answers {reply.status} and {said} the environment variable {options.api_key_env}."
        )
    if reply.status != 200:
        raise EndpointError(
            f"{url} answers {reply.status} ({server_words(reply)}). Correct backend.base_url, or give "
            "backend.model_name."
        )
    content = reply.json()
    try:
        names = [str(model["id"]) for model in content["data"]]
    except (TypeError, KeyError):
        names = []
    if len(names) != 1:
        known = f"serves {', '.join(names[:10])}" if names else "does not list its models"
        raise EndpointError(f"{base_url} {known}. Name the model with backend.model_name.")
    return names[0]
