"""The data of a figure as a CSV file."""

import csv
from pathlib import Path

import numpy as np
import pandas as pd


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """What `DataFrame.to_csv(index=False, float_format="%.6g")` writes, in less than half of its time.

    There is a file a run, which a report over many of them notices. Raises OSError.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(frame.columns)
        writer.writerows(zip(*(_texts(column) for _, column in frame.items()), strict=True))


def _texts(column: pd.Series) -> list[object]:
    """Cells as a CSV writer takes them; "" for what is missing."""
    if pd.api.types.is_float_dtype(column):
        numbers = column.to_numpy(dtype=float, na_value=np.nan).tolist()
        return ["" if number != number else f"{number:.6g}" for number in numbers]
    if not column.hasnans:
        return column.tolist()
    return ["" if missing else value for value, missing in zip(column, column.isna(), strict=True)]
