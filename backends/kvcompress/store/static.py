"""Constants that numba sees as types: a kernel is compiled once for each layout, with its sizes folded in.

Any frozen dataclass registered by `static` may be captured by a compiled function. Its fields of whole numbers and
truths read as literals, its fields of dataclasses as further constants; intrinsics get at the Python value itself.
"""

from typing import Any, TypeVar

from numba import types
from numba.core.imputils import lower_constant
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
)

T = TypeVar("T")


class Static(types.Type):
    """The type of one constant; two are the same where their values are."""

    def __init__(self, value: Any) -> None:
        self.value = value
        super().__init__(name=f"Static({value!r})")


register_model(Static)(models.OpaqueModel)


def static(cls: type[T]) -> type[T]:
    """Let compiled functions capture instances of this frozen dataclass."""

    @typeof_impl.register(cls)
    def _typeof(value: T, context: Any) -> Static:
        return Static(value)

    return cls


@lower_constant(Static)
def _constant(context: Any, builder: Any, typ: Static, value: Any) -> Any:
    return context.get_dummy_value()


@infer_getattr
class _Fields(AttributeTemplate):
    key = Static

    def generic_resolve(self, typ: Static, name: str) -> Any:
        found = getattr(typ.value, name)
        return types.literal(int(found)) if isinstance(found, int) else Static(found)


@lower_getattr_generic(Static)
def _field(context: Any, builder: Any, typ: Static, value: Any, name: str) -> Any:
    found = getattr(typ.value, name)
    if isinstance(found, int):
        return context.get_constant(types.intp, int(found))
    return context.get_dummy_value()
