"""Data files: what pandas would write, faster."""

from pathlib import Path

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from harness.report.data_file import write_csv

ODD = 'a "quoted", comma\nand line <i>'


@given(st.lists(st.one_of(st.floats(), st.integers(-(10**9), 10**9).map(float)), max_size=20))
def test_floats_are_those_of_pandas(tmp_path_factory, values: list[float]):
    path = tmp_path_factory.mktemp("data") / "x.csv"
    frame = pd.DataFrame({"x": np.array(values, dtype=float), "n": np.arange(len(values))})
    write_csv(frame, path)
    assert path.read_text() == frame.to_csv(index=False, float_format="%.6g")


def test_every_kind_of_column_is_as_pandas_writes_it(tmp_path: Path):
    frame = pd.DataFrame(
        {
            ODD: [ODD, None, ""],
            "words": pd.array(["ä", pd.NA, "b"], dtype="string"),
            "whole": pd.array([1, pd.NA, 3], dtype="Int64"),
            "ok": [True, False, True],
            "maybe": pd.array([True, pd.NA, False], dtype="boolean"),
            "mixed": [1, "x", None],
            "share": [0.1234567, float("nan"), 1e-9],
        },
        index=[7, 7, 8],
    )
    write_csv(frame, tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text() == frame.to_csv(index=False, float_format="%.6g")


def test_no_rows_are_a_heading(tmp_path: Path):
    write_csv(pd.DataFrame({"a": [], "b": []}), tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text() == "a,b\n"
