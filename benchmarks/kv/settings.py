"""Which settings of which implementation are measured, by name.

Ours are written as in `backend.kv`: "quant=int4 budget.fraction=0.5", with kv_dtype= and kernel= of the engine; what
is not named is as in conf/backend/kvcompress.yaml.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

import conf
from benchmarks.kv.driver import Setting

# Chosen on the half "tune" (docs/kv-auto.md), judged on the other. The composition, and half of the slots unpacked.
AUTO = (
    "evict=auto spread=retrieval budget.fraction=0.44 quant=int8 value_quant=int4 codebook=true rotate=true recent=8 "
    "kv_dtype=bf16"
)
AUTO_HALF = "evict=auto spread=retrieval budget.fraction=0.5"

OURS: Mapping[str, str] = {
    "full": "",
    "full16": "kv_dtype=bf16",
    "int8": "quant=int8",
    "int4": "quant=int4",
    "int4 codebook": "quant=int4 codebook=true rotate=true",
    "int3 codebook": "quant=int3 codebook=true rotate=true",
    "auto": AUTO,
    "auto at 50 %": AUTO_HALF,
}

PEERS: Mapping[str, Setting] = {
    "DynamicCache": {},
    "quanto-4": {"quantized": {"backend": "quanto", "nbits": 4}},
    "quanto-2": {"quantized": {"backend": "quanto", "nbits": 2}},
    "hqq-8": {"quantized": {"backend": "hqq", "nbits": 8, "axis_key": 1, "axis_value": 1}},
    "hqq-4": {"quantized": {"backend": "hqq", "nbits": 4, "axis_key": 1, "axis_value": 1}},
    **{
        f"{name} at 50 %": {"press": f"{name}Press", "ratio": 0.5}
        for name in ("ExpectedAttention", "KeyDiff", "Knorm", "LagKV", "SnapKV", "StreamingLLM", "TOVA")
    },
}


@dataclass(frozen=True, slots=True)
class Named:
    """A setting of one implementation: "ours" or "transformers"."""

    who: str
    name: str
    setting: Setting

    @property
    def key(self) -> str:
        """Equal for equal settings, whatever their name."""
        return f"{self.who} {json.dumps(self.setting, sort_keys=True)}"


def ours(name: str, words: str) -> Named:
    """Of `words` as above."""
    whole = engine_options()
    given: Any = OmegaConf.to_container(OmegaConf.from_dotlist(words.split()))
    engine = {key: given.pop(key, whole[key]) for key in ("kv_dtype", "kernel")}
    kv = OmegaConf.to_container(OmegaConf.merge(whole.kv, given))
    return Named("ours", name, {**engine, "kv": kv})


def engine_options() -> Any:
    """conf/backend/kvcompress.yaml."""
    return OmegaConf.load(Path(conf.__path__[0]) / "backend" / "kvcompress.yaml")


def scheduling() -> dict[str, Any]:
    """What its schedulers are told."""
    found: dict[str, Any] = OmegaConf.to_container(engine_options().scheduling)  # type: ignore[assignment]
    return found


def peer(name: str) -> Named:
    """One of PEERS."""
    return Named("transformers", name, PEERS[name])
