"""The pool against a plain dictionary of rows."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.onnxruntime.kv_pool import KvPool

TENSORS, HEADS, WIDTH = 2, 3, 4
TOKEN = TENSORS * HEADS * WIDTH * 4


def test_it_takes_what_it_was_given_to_the_token():
    pool = KvPool(TENSORS, HEADS, WIDTH, np.float32, 10 * TOKEN + TOKEN - 1)
    assert (pool.bytes_per_token, pool.capacity, pool.reserved_bytes) == (TOKEN, 10, 10 * TOKEN)
    assert pool.fits(2, 5)
    assert not pool.fits(2, 6)


@settings(deadline=None)
@given(st.data())
def test_rows_keep_their_entries_through_every_change(data: st.DataObject):
    pool = KvPool(TENSORS, HEADS, WIDTH, np.float32, 60 * TOKEN)
    pool.lay_out(data.draw(st.integers(1, 12)), [])
    rows: list[list[np.ndarray]] = []
    for number in range(5):
        length = data.draw(st.integers(0, pool.stride))
        rows.append([])
        for tensor in range(TENSORS):
            entries = np.random.default_rng([number, tensor]).random((HEADS, length, WIDTH), dtype=np.float32)
            pool.entries(tensor, number, length)[:] = entries
            rows[-1].append(entries)
    for _ in range(data.draw(st.integers(1, 6))):
        lengths = [row[0].shape[1] for row in rows]
        what = data.draw(st.sampled_from(["lay out", "move", "exchange"]))
        if what == "lay out":
            pool.lay_out(data.draw(st.integers(max([1, *lengths]), 12)), lengths)
            continue
        one, other = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 4))
        if what == "move":
            pool.move(one, other, lengths[one])
            rows[other] = rows[one]
        else:
            pool.exchange(one, other, max(lengths[one], lengths[other]))
            rows[one], rows[other] = rows[other], rows[one]
    for number, row in enumerate(rows):
        for tensor in range(TENSORS):
            assert np.array_equal(pool.entries(tensor, number, row[tensor].shape[1]), row[tensor])
