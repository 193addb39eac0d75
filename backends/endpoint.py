"""Any server with the OpenAI API that somebody else runs, as a backend."""

from dataclasses import dataclass
from typing import Any

from omegaconf import MISSING

from backends.base import Capabilities, Endpoint, EngineOptions, LaunchSpec, Say
from backends.exposition import own_metrics
from backends.running_server import check_nothing_is_theirs, check_running, running_endpoint
from backends.sglang_metrics import sglang_metrics
from backends.vllm_metrics import vllm_metrics
from harness.core.model_store import ModelFiles
from harness.core.weight_files import WeightSize


@dataclass
class EndpointOptions(EngineOptions):
    """What the harness must be told about a server it did not start.

    ignore_eos: it understands ignore_eos and min_tokens, so answers can have an exact length.
    return_token_ids: it returns ids with every event. prompt_logprobs: it answers echo with logprobs.
    logprobs_see_kv: those pass through the KV cache in chunks.
    """

    ignore_eos: bool = MISSING
    return_token_ids: bool = MISSING
    prompt_logprobs: bool = MISSING
    logprobs_see_kv: bool = MISSING


class EndpointBackend:
    """A server at `backend.base_url`; nothing is started and nothing is stopped."""

    options: EngineOptions

    def __init__(self, options: EndpointOptions) -> None:
        self.options = options
        self._own = options
        self._endpoint: Endpoint | None = None

    def capabilities(self) -> Capabilities:
        """As the options say; metrics are mapped where the server shows some."""
        logprobs = self._own.prompt_logprobs and self._own.api == "completions"
        return Capabilities(
            ignore_eos=self._own.ignore_eos,
            return_token_ids=self._own.return_token_ids,
            prompt_logprobs=logprobs,
            logprobs_see_kv=self._own.logprobs_see_kv,
            prompt_alternatives=5 if logprobs else 0,  # what the API itself allows
            no_logprobs="" if logprobs else "the endpoint gives no prompt log-probabilities over HTTP",
            prefix_cache=False,
            metrics=True,
            devices=(),
        )

    def check(self, model: ModelFiles) -> None:
        """Raise UsageError for a missing or odd URL and for settings only the server's owner can change."""
        check_running(self.options)
        check_nothing_is_theirs(self.options)

    def install(self, say: Say) -> None:
        """Nothing to install."""

    def prepare(self, model: ModelFiles, say: Say) -> None:
        """Nothing to make."""

    def launch(self, model: ModelFiles, port: int, threads: int) -> LaunchSpec | None:
        """Nothing to start."""
        return None

    def endpoint(self, model: ModelFiles, port: int) -> Endpoint:
        """See `running_endpoint`; asked once."""
        if self._endpoint is None:
            self._endpoint = running_endpoint(self.options)
        return self._endpoint

    def common_metrics(self, exposition: str) -> dict[str, float]:
        """Names of our own servers, of vLLM and of SGLang; {} for anything else."""
        return own_metrics(exposition) or vllm_metrics(exposition) or sglang_metrics(exposition)

    def cache_reset(self) -> str | None:
        """Emptying somebody else's cache is not ours to do."""
        return None

    def weight_size(self, model: ModelFiles) -> WeightSize | None:
        """Not known from outside."""
        return None

    def versions(self) -> dict[str, str]:
        """Not known from outside."""
        return {}

    def request_extras(self) -> dict[str, Any]:
        """Ids, where the server can return them."""
        return {"return_token_ids": True} if self._own.return_token_ids else {}

    def workload_extras(self, workload: str) -> dict[str, Any]:
        """None: what other servers know of workloads is theirs."""
        return {}
