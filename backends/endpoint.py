"""Any server with the OpenAI API that somebody else runs, as a backend."""

import os
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from omegaconf import MISSING

from backends.base import Capabilities, Endpoint, EngineOptions, LaunchSpec
from backends.exposition import own_metrics
from backends.foreign_metrics import sglang_metrics, vllm_metrics
from backends.http_calls import Unreachable, get, server_words
from harness.core.errors import EndpointError, UsageError
from harness.core.model_store import ModelFiles
from harness.core.tls import Trust

_TIMEOUT_S = 30.0
# Settings of a server that somebody else started: they cannot be honoured from here.
_THEIRS = (
    "python",
    "dtype",
    "kv_dtype",
    "max_running",
    "kv_bytes",
    "prefix_cache",
    "prefill_chunk",
    "tensor_parallel",
    "threads",
    "port",
)


@dataclass
class EndpointOptions(EngineOptions):
    """What the harness must be told about a server it did not start.

    api_key_env: name of the environment variable that may hold the key; the key itself is never an option.
    ignore_eos: it understands ignore_eos and min_tokens, so answers can have an exact length.
    return_token_ids: it returns ids with every event. prompt_logprobs: it answers echo with logprobs.
    logprobs_see_kv: those pass through the KV cache in chunks.
    ca_file: PEM file of the certificates to trust for https; null trusts the system's. verify_tls: false trusts
        any server, which the record then says.
    """

    api_key_env: str = MISSING
    ignore_eos: bool = MISSING
    return_token_ids: bool = MISSING
    prompt_logprobs: bool = MISSING
    logprobs_see_kv: bool = MISSING
    ca_file: str | None = MISSING
    verify_tls: bool = MISSING


class EndpointBackend:
    """A server at `backend.base_url`; nothing is started and nothing is stopped."""

    options: EngineOptions

    def __init__(self, options: EndpointOptions) -> None:
        self.options = options
        self._own = options
        self._model_name: str | None = options.model_name

    def capabilities(self) -> Capabilities:
        """As the options say; metrics are mapped where the server shows some."""
        return Capabilities(
            ignore_eos=self._own.ignore_eos,
            return_token_ids=self._own.return_token_ids,
            prompt_logprobs=self._own.prompt_logprobs and self._own.api == "completions",
            logprobs_see_kv=self._own.logprobs_see_kv,
            prefix_cache=False,
            metrics=True,
            devices=(),
        )

    def check(self, model: ModelFiles) -> None:
        """Raise UsageError for a missing or odd URL and for settings only the server's owner can change."""
        if self._base_url().startswith("https"):
            self._trust().context()
        if self._own.api not in ("completions", "chat"):
            raise UsageError(f"backend.api={self._own.api} is unknown. Choose completions or chat.")
        for key in _THEIRS:
            if getattr(self._own, key) is not None:
                raise UsageError(
                    f"backend.{key} cannot be set from here: the server at backend.base_url already runs. "
                    "Leave it null, and start the server as you want it."
                )
        if self._own.extra_args:
            raise UsageError(
                "backend.extra_args cannot be given to a server that is already running. Leave it empty."
            )

    def launch(self, model: ModelFiles, port: int, threads: int) -> LaunchSpec | None:
        """Nothing to start."""
        return None

    def endpoint(self, model: ModelFiles, port: int) -> Endpoint:
        """The server, its model's name (asked for where backend.model_name is null) and the key's header.

        Raises EndpointError where it cannot be asked.
        """
        base_url, headers = self._base_url(), self._headers()
        if self._model_name is None:
            self._model_name = self._ask_model(base_url, headers)
        return Endpoint(base_url, self._model_name, headers, self._trust())

    def common_metrics(self, exposition: str) -> dict[str, float]:
        """Names of our own servers, of vLLM and of SGLang; {} for anything else."""
        return own_metrics(exposition) or vllm_metrics(exposition) or sglang_metrics(exposition)

    def versions(self) -> dict[str, str]:
        """Not known from outside."""
        return {}

    def request_extras(self) -> dict[str, Any]:
        """Ids, where the server can return them."""
        return {"return_token_ids": True} if self._own.return_token_ids else {}

    def _base_url(self) -> str:
        url = self._own.base_url
        if not url:
            raise UsageError("backend=endpoint needs backend.base_url, for example http://127.0.0.1:8000")
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"backend.base_url={url} must start with http:// or https://")
        if "@" in urlsplit(url).netloc:
            raise UsageError(
                "backend.base_url holds a user or a password, which would be written into records. Put a key "
                f"into the environment variable {self._own.api_key_env}."
            )
        return url.rstrip("/").removesuffix("/v1").rstrip("/")

    def _trust(self) -> Trust:
        return Trust(self._own.verify_tls, self._own.ca_file)

    def _headers(self) -> dict[str, str]:
        key = os.environ.get(self._own.api_key_env)
        return {"Authorization": f"Bearer {key}"} if key else {}

    def _ask_model(self, base_url: str, headers: dict[str, str]) -> str:
        url = f"{base_url}/v1/models"
        try:
            reply = get(url, headers, _TIMEOUT_S, self._trust())
        except Unreachable as error:
            raise EndpointError(
                f"No server answers at {base_url} ({error}). Start it, or correct backend.base_url."
            ) from error
        if reply.status in (401, 403):
            said = "refuses the key in" if headers else "wants a key: put it into"
            raise EndpointError(
                f"{base_url} answers {reply.status} and {said} the environment variable "
                f"{self._own.api_key_env}."
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
