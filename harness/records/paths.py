"""Values of nested records by dotted paths."""

from collections.abc import Mapping
from typing import Any


def pick(record: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path, None where any step of it is missing."""
    value: Any = record
    for step in path.split("."):
        if not isinstance(value, Mapping) or step not in value:
            return None
        value = value[step]
    return value
