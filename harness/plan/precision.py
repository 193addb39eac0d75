"""How many bytes a stored value takes, the scales of a quantised tensor included."""

from dataclasses import dataclass

from harness.core.errors import UsageError
from harness.core.geometry import BYTES_PER_VALUE

_QUANTISED = ("fp8", "int8", "int4")


@dataclass(frozen=True, slots=True)
class Precision:
    """A dtype by its common name; group: values that share one scale of scale_bytes, None: scales take no room."""

    dtype: str
    group: int | None = None
    scale_bytes: float = 0.0

    @property
    def bytes_per_value(self) -> float:
        """bytes(dtype) + scale_bytes / group."""
        scales = self.scale_bytes / self.group if self.group else 0.0
        return BYTES_PER_VALUE[self.dtype] + scales

    @property
    def quantised(self) -> bool:
        """Whether the values need scales at all."""
        return self.dtype in _QUANTISED


def checked(key: str, dtype: str, group: int | None, scale_bytes: float) -> Precision:
    """The precision that `KEY_dtype`, `KEY_group` and `KEY_scale_bytes` ask for.

    Raises UsageError for an unknown dtype, a group below 1, or scales of values that are not quantised.
    """
    if dtype not in BYTES_PER_VALUE:
        raise UsageError(f"{key}_dtype={dtype} is unknown: choose one of {', '.join(BYTES_PER_VALUE)}.")
    if group is not None and group < 1:
        raise UsageError(f"{key}_group={group}: at least 1 value shares a scale; null means none is counted.")
    if group is not None and not 0 < scale_bytes < float("inf"):
        raise UsageError(
            f"{key}_scale_bytes={scale_bytes:g}: a scale takes some bytes, 2 for a 16-bit one; "
            f"without scales set {key}_group=null."
        )
    precision = Precision(dtype, group, scale_bytes)
    if group is not None and not precision.quantised:
        raise UsageError(f"{key}_group={group}: values in {dtype} have no scales. Set it to null.")
    return precision
