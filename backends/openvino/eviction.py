"""OpenVINO GenAI's own eviction of KV cache entries, as options: the harness's side, which imports nothing of it.

With it a request keeps its first tokens, its last tokens and, of those between, the blocks that got most attention.
"""

from dataclasses import dataclass
from typing import Any

from omegaconf import MISSING

from backends.base import EngineOptions
from backends.openvino.blocks import block_tokens
from harness.core.errors import UsageError

# The third mode (adaptive_rkv) and the rotation of keys that stay fail inside the library in the middle of a request
# where prompts are computed in chunks (2026.4.1), so they are not offered.
SCORES = ("norm_sum", "sum")


@dataclass
class OpenVinoOptions(EngineOptions):
    """What is particular to OpenVINO: its cache eviction, all sizes in tokens of one request.

    eviction_keep: most tokens whose keys and values a request keeps once it generates; null keeps all.
    eviction_start: of these, tokens of its beginning; eviction_recent: and the latest ones. Neither are evicted.
    eviction_scores: how the attention that a token got is added up: norm_sum divides by how often it could get some.
    All three are null where nothing is evicted.
    """

    eviction_keep: int | None = MISSING
    eviction_start: int | None = MISSING
    eviction_recent: int | None = MISSING
    eviction_scores: str | None = MISSING


def check_eviction(options: OpenVinoOptions) -> None:
    """Raise UsageError for sizes that are no whole blocks or leave nothing to choose from, and for a prefix cache.

    Also for what says how to evict where nothing is evicted.
    """
    if options.eviction_keep is None:
        for key in ("eviction_start", "eviction_recent", "eviction_scores"):
            if getattr(options, key) is not None:
                raise UsageError(
                    f"backend.{key}={getattr(options, key)} does nothing without backend.eviction_keep. Say how many "
                    "tokens a request keeps, or leave it out."
                )
        return
    block = block_tokens(options.device or "")
    sizes = {
        "eviction_keep": options.eviction_keep,
        "eviction_start": options.eviction_start or 0,
        "eviction_recent": options.eviction_recent or 0,
    }
    fixed = sizes["eviction_start"] + sizes["eviction_recent"]
    for key, value in sizes.items():
        if value < 1 or value % block:
            least = fixed // block * block + block if key == "eviction_keep" else block
            fitting = max(least, round(value / block) * block)
            raise UsageError(
                f"backend.{key}={value}: on {options.device} OpenVINO evicts whole blocks of {block} tokens. "
                f"Choose a multiple of {block}, such as {fitting}."
            )
    if options.eviction_keep <= fixed:
        raise UsageError(
            f"backend.eviction_keep={options.eviction_keep} leaves nothing to choose from: eviction_start and "
            f"eviction_recent take {fixed} already. Choose at least {fixed + block}."
        )
    if options.eviction_scores not in SCORES:
        raise UsageError(
            f"backend.eviction_scores={options.eviction_scores} is unknown. Choose {' or '.join(SCORES)}."
        )
    if options.prefix_cache:
        raise UsageError(
            "backend.eviction_keep does not go with backend.prefix_cache=true: OpenVINO then answers from entries "
            "of the wrong tokens. Use one of them."
        )


def eviction_settings(options: OpenVinoOptions) -> dict[str, Any]:
    """The engine's own part of its configuration, as `backends.openvino.engine` reads it; {} without eviction."""
    if options.eviction_keep is None:
        return {}
    return {
        "eviction": {
            "keep": options.eviction_keep,
            "start": options.eviction_start,
            "recent": options.eviction_recent,
            "scores": options.eviction_scores,
        }
    }
