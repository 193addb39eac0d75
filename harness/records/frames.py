"""Tables with the columns that schema.py names."""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd


def typed(rows: Iterable[Mapping[str, Any]] | pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """A frame with exactly these columns first, each of its dtype, further ones after them.

    rows: dictionaries or a frame; a column that is not in them is all missing. Raises ValueError or TypeError
    where values do not fit, also where a column that may not be missing (e.g. int64) is.
    """
    frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
    if _has(frame, columns):
        return frame.copy(deep=False)
    further = [name for name in frame.columns if name not in columns]
    shaped = {
        name: (
            frame[name] if name in frame else pd.Series([None] * len(frame), index=frame.index, dtype=object)
        )
        for name in columns
    }
    result = pd.DataFrame(
        {name: values.astype(pd.api.types.pandas_dtype(columns[name])) for name, values in shaped.items()},
        index=frame.index,
    )
    return pd.concat([result, frame[further]], axis=1) if further else result


def _has(frame: pd.DataFrame, columns: Mapping[str, str]) -> bool:
    """Whether nothing is to be done, as with tables that this version wrote."""
    if list(frame.columns[: len(columns)]) != list(columns):
        return False
    return all(
        dtype == pd.api.types.pandas_dtype(wanted)
        for dtype, wanted in zip(frame.dtypes, columns.values(), strict=False)
    )


def empty(columns: Mapping[str, str]) -> pd.DataFrame:
    """No rows, these columns."""
    return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in columns.items()})
