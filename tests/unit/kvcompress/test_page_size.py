"""The size of a page against its neighbours: what pages take beyond their slots, over usual formats and lengths, for
heads of 64, 96 and 128 values (of 48 and 256 another size may lose less)."""

from dataclasses import replace
from statistics import mean

import pytest

from backends.kvcompress.store.groups import most_pages
from backends.kvcompress.store.layout import Layout
from backends.kvcompress.store.rows import page_bytes, row_layout
from tests.support.kv import spec

LENGTHS = (200, 300, 512, 777, 1024, 1500, 2048, 3000, 4096, 8192)
FORMATS = [
    spec(),
    spec(evict="auto", spread="retrieval", budget={"fraction": 0.5}),
    spec(quant="int8"),
    spec(quant="int4"),
    spec(quant="int8", value_quant="int4", codebook=True, rotate=True),
]
_ON_LISTS = 8  # bytes that each page takes beside itself


def beyond(layout: Layout) -> float:
    """Bytes of pages over bytes of slots, less 1, mean over lengths."""
    slot = (layout.chunk_bytes - layout.by_tokens) / 8 + layout.block_bytes / layout.share
    taken = [most_pages(layout, count, evicts=False) * (layout.page_bytes + _ON_LISTS) for count in LENGTHS]
    return mean(bytes_ / (count * slot) - 1 for bytes_, count in zip(taken, LENGTHS, strict=True))


@pytest.mark.parametrize(("dim", "position_bytes"), [(64, 2), (96, 2), (128, 2), (64, 4), (128, 4)])
def test_no_size_nearby_loses_less(dim: int, position_bytes: int) -> None:
    layouts = []
    for exact in ("f32", "bf16"):
        for one in FORMATS:
            row = row_layout(one, 3, 3, dim, exact, one.evict == "auto", position_bytes)
            layouts.append(row.packed if row.has_packed else row.exact)
    chosen = page_bytes(dim, position_bytes)
    assert chosen % 64 == 0  # whole cache lines
    loses = {
        size: mean(beyond(replace(layout, page_bytes=size)) for layout in layouts)
        for size in range(chosen - 128, chosen + 1025, 64)  # below that eight exact slots find no place
    }
    assert min(loses, key=loses.__getitem__) == chosen
