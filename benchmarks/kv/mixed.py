"""A mixed load on one engine: long RAG prompts, short chats and summaries, as the harness's workloads draw them."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from harness.config import register_schemas
from harness.core.tokenizer import Tokenizer
from workloads.registry import draw_plan

# workload: tokens of its prompts, requests of eight
_MIX = {"rag": (768, 2), "chat": (256, 4), "summarization": (512, 2)}

KINDS = tuple(_MIX)


@dataclass(frozen=True, slots=True)
class Asked:
    """kind: the workload. tokens: of its answer. arrival: in seconds of the clock that it is served by."""

    kind: str
    prompt: tuple[int, ...]
    tokens: int
    arrival: float


def mixed_load(tokenizer: Tokenizer, eights: int, tokens: int, every: float, seed: int) -> list[Asked]:
    """eights: how often eight requests of the mix. tokens: of each answer. every: seconds between two arrivals; their
    order is drawn anew in each eight."""
    drawn = {
        kind: iter(_prompts(kind, eights * of_eight, tokenizer, seed)) for kind, (_, of_eight) in _MIX.items()
    }
    order = Random(seed)
    kinds: list[str] = []
    for _ in range(eights):
        eight = [kind for kind, (_, of_eight) in _MIX.items() for _ in range(of_eight)]
        order.shuffle(eight)
        kinds += eight
    return [Asked(kind, next(drawn[kind]), tokens, place * every) for place, kind in enumerate(kinds)]


def _prompts(kind: str, count: int, tokenizer: Tokenizer, seed: int) -> Sequence[tuple[int, ...]]:
    register_schemas()
    overrides = [f"workload={kind}", f"workload.requests={count}", f"workload.prompt_tokens={_MIX[kind][0]}"]
    if kind == "chat":
        overrides[1] = (
            f"workload.requests={count * 3}"  # sessions of three turns, of which every turn is taken
        )
    with initialize_config_module("conf", version_base="1.3"):
        options: Any = OmegaConf.to_object(compose("config", overrides)["workload"])
    return [request.prompt_ids for request in draw_plan(options, tokenizer, seed, 0, 4096).requests][:count]
