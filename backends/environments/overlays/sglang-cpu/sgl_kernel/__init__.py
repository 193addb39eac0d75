"""Stands in for SGLang's kernels, so that SGLang can be imported where there are none.

SGLang imports names of `sgl_kernel` on every device, and its build for CPUs is on no registry. With the attention
that PyTorch computes, none of these functions is called for a plain language model; one that is says which it was.
"""

from collections.abc import Callable
from typing import Any, NoReturn

__version__ = "0.0.0"


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("__"):
        raise AttributeError(name)

    def kernel(*arguments: Any, **options: Any) -> NoReturn:
        raise NotImplementedError(
            f"This environment has no SGLang kernels, and {name} was needed. It serves plain decoder-only models "
            "with --attention-backend torch_native; others need an environment with SGLang's own kernels."
        )

    kernel.__name__ = name
    return kernel
