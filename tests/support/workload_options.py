"""Workload options as conf/workload/*.yaml sets them, without composing a whole configuration."""

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from harness.core.requests import Plan
from workloads.options import (
    ChatOptions,
    FileOptions,
    RagOptions,
    SummarizationOptions,
    TraceWorkloadOptions,
    WorkloadOptions,
)

CONF = Path(__file__).parents[2] / "conf" / "workload"
SCHEMAS: dict[str, type[WorkloadOptions]] = {
    "chat": ChatOptions,
    "rag": RagOptions,
    "summarization": SummarizationOptions,
    "file": FileOptions,
    "trace": TraceWorkloadOptions,
}


def longest_context(plan: Plan) -> int:
    """Most tokens any request of a scripted plan can come to hold."""
    return max(r.prompt_tokens + r.max_output_tokens for r in (*plan.requests, *plan.warmup))


def workload_options(name: str, **overrides: Any) -> Any:
    """The defaults of a workload with some values changed; nested keys are written `corpus.name`."""
    values = OmegaConf.load(CONF / f"{name}.yaml")
    del values["defaults"]
    for key, value in overrides.items():
        OmegaConf.update(values, key.replace("__", "."), value)
    return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(SCHEMAS[name]), values))
