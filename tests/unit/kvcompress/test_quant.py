"""The reference quantisers, held against numpy, torch's own fp8, scipy's Hadamard matrix and published figures."""

from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from backends.kvcompress.combinations import Holder, check_layout
from backends.kvcompress.quant import bits, codebook, formats, fp8, rotation, sharing, slots
from backends.kvcompress.spec import GRANULARITIES
from harness.core.errors import UsageError
from tests.support.kv import spec

CPU = torch.device("cpu")
EVEN = ["int8", "int4", "int3", "int2"]
KINDS = [{"quant": q} for q in (*EVEN, "fp8")] + [{"quant": q, "codebook": True} for q in EVEN[1:]]
TINY = 448 * 2.0**-126  # values whose scale would not be a normal number may be read back as 0
VECTORS = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 5), st.just(16)), elements=st.floats(-1e4, 1e4, width=32)
)


def of_vectors(vectors: torch.Tensor, kind: dict[str, Any], **changes: Any) -> slots.Quantised:
    """Each slot of its own, at positions 0, 1, ..."""
    positions = torch.arange(len(vectors))
    wanted = spec(**kind, **changes)
    groups = sharing.group_numbers(torch.zeros_like(positions), positions, wanted.group)
    return slots.quantise(wanted, "keys", vectors, positions, groups)


def expected_step(vectors: np.ndarray, quant: str) -> np.ndarray:
    """Of each row: the gap of neighbouring codes, before its rounding to bfloat16 (at most 2**-8 of it)."""
    if quant == "int8":
        return np.abs(vectors).max(axis=1) / 127
    # The offset is rounded down by at most 2**-7 of its size, which widens the range.
    lowest, highest = vectors.min(axis=1), vectors.max(axis=1)
    return (highest - lowest + np.abs(lowest) * 2**-7) / (2 ** int(quant[3:]) - 1)


@given(VECTORS, st.sampled_from(EVEN))
def test_even_steps_are_off_by_half_a_step_at_most(vectors: np.ndarray, quant: str) -> None:
    back = slots.dequantise(of_vectors(torch.from_numpy(vectors), {"quant": quant})).numpy()
    slack = np.abs(vectors).max() * 1e-6 + TINY
    assert (np.abs(back - vectors) <= expected_step(vectors, quant)[:, None] / 2 * (1 + 2**-7) + slack).all()


@given(VECTORS, st.integers(2, 4))
def test_a_codebook_gives_the_level_that_is_nearest(vectors: np.ndarray, width: int) -> None:
    quantised = of_vectors(torch.from_numpy(vectors), {"quant": f"int{width}", "codebook": True})
    scales = quantised.fitted.scales.float().numpy()[:, None]
    rms = np.sqrt((vectors.astype(np.float64) ** 2).mean(axis=1, keepdims=True))
    assert scales == pytest.approx(rms, rel=2**-8, abs=2**-60)  # below, squares underflow
    levels = scales[..., None] * np.array(codebook.gaussian_levels(width))
    distances = np.abs(levels - vectors[..., None]).min(axis=-1)
    off = np.abs(slots.dequantise(quantised).numpy() - vectors)
    np.testing.assert_allclose(off, distances, rtol=1e-4, atol=float(rms.max()) * 1e-5)


@given(VECTORS)
def test_fp8_is_off_by_half_a_unit_in_the_last_place(vectors: np.ndarray) -> None:
    quantised = of_vectors(torch.from_numpy(vectors), {"quant": "fp8"})
    scales = quantised.fitted.scales.float().numpy()[:, None]
    off = np.abs(slots.dequantise(quantised).numpy() - vectors)
    # 3 bits of mantissa, and a smallest step of 2**-9; the largest may lie 2**-8 above 448 for its scale's rounding.
    assert (off <= np.maximum(np.abs(vectors) * 2**-4, scales * 2**-10) * (1 + 1e-5) + TINY).all()


@given(st.sampled_from(KINDS), hnp.arrays(np.float32, 16, elements=st.floats(-1e4, 1e4, width=32)))
def test_order_is_kept(kind: dict[str, Any], vector: np.ndarray) -> None:
    ordered = torch.from_numpy(np.sort(vector))[None]
    assert (slots.dequantise(of_vectors(ordered, kind)).diff() >= 0).all()


@given(st.sampled_from([k for k in KINDS if "codebook" in k or k["quant"] in ("int8", "fp8")]), VECTORS)
def test_mirrored_values_give_mirrored_results(kind: dict[str, Any], vectors: np.ndarray) -> None:
    there, back = (slots.dequantise(of_vectors(sign * torch.from_numpy(vectors), kind)) for sign in (1, -1))
    no_tie = np.abs(vectors) > 1e-30  # 0 is half-way between the two middle levels of a codebook
    np.testing.assert_allclose(there.numpy()[no_tie], -back.numpy()[no_tie], rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_nothing_but_zeros_is_read_back_as_zeros(kind: dict[str, Any], granularity: str) -> None:
    zeros = torch.zeros(32, 16)
    assert (slots.dequantise(of_vectors(zeros, kind, granularity=granularity)) == 0).all()


@pytest.mark.parametrize("quant", EVEN)
@pytest.mark.parametrize("constant", [1.0, -1.0, 3.14159, -2.71828, 3e38, 1e-38])
def test_a_constant_is_read_back_as_closely_as_bfloat16_says_it(quant: str, constant: float) -> None:
    back = slots.dequantise(of_vectors(torch.full((1, 16), constant), {"quant": quant}))
    assert back.numpy() == pytest.approx(constant, rel=2**-8)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_has_no_scale(kind: dict[str, Any], bad: float) -> None:
    vectors = torch.ones(2, 16)
    vectors[1, 3] = bad
    with pytest.raises(ValueError, match="finite"):
        of_vectors(vectors, kind)


@given(hnp.arrays(np.float32, 8, elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_an_offset_is_rounded_down_to_the_next_bfloat16(values: np.ndarray) -> None:
    down = formats.down_to_bfloat16(torch.from_numpy(values))
    up = torch.nextafter(down, torch.tensor(torch.inf, dtype=torch.bfloat16))
    assert (down.float().numpy() <= values).all()
    assert (up.float().numpy() > values).all()


def test_fp8_agrees_with_torch_on_every_bfloat16() -> None:
    every = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).float()
    every = every[torch.isfinite(every)]
    wanted = every.clamp(-448, 448).to(torch.float8_e4m3fn)
    assert torch.equal(fp8.encode(every), wanted.view(torch.uint8))
    assert torch.equal(fp8.table(CPU)[fp8.encode(every).long()], wanted.float())


def test_fp8_agrees_with_torch_between_bfloat16s() -> None:
    values = torch.empty(20_000).uniform_(-500, 500, generator=torch.Generator().manual_seed(1))
    values = torch.cat([values, values * 1e-3, values * 1e-5])
    assert torch.equal(fp8.encode(values), values.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8))


@pytest.mark.parametrize(("width", "published"), [(2, 0.1175), (3, 0.03454), (4, 0.009497)])
def test_lloyd_max_levels_reach_the_published_distortion(width: int, published: float) -> None:
    assert codebook.distortion(width) == pytest.approx(published, rel=1e-3)
    levels = np.array(codebook.gaussian_levels(width))
    assert (np.diff(levels) > 0).all()
    assert (levels == -levels[::-1]).all()
    # The same by a sum over a fine grid.
    x = np.linspace(-8, 8, 40_001)
    density = np.exp(-x * x / 2) / np.sqrt(2 * np.pi)
    nearest = levels[np.abs(x[:, None] - levels).argmin(axis=1)]
    assert codebook.distortion(width) == pytest.approx(
        ((x - nearest) ** 2 * density).sum() * (x[1] - x[0]), rel=1e-6
    )


@pytest.mark.parametrize("size", [1, 2, 16, 64, 128])
def test_the_rotation_is_the_matrix_it_says_and_keeps_dot_products(size: int) -> None:
    random = torch.Generator().manual_seed(2)
    keys, queries = torch.randn(2, 7, size, generator=random)
    matrix = torch.from_numpy(scipy.linalg.hadamard(size).astype(np.float32)) * size**-0.5
    torch.testing.assert_close(rotation.rotate(keys), (keys * rotation.signs(size)) @ matrix)
    torch.testing.assert_close(rotation.rotate(queries) @ rotation.rotate(keys).T, queries @ keys.T)
    torch.testing.assert_close(rotation.rotate_back(rotation.rotate(keys)), keys)
    assert set(rotation.signs(size).tolist()) <= {1.0, -1.0}


def test_the_signs_never_change() -> None:
    drawn_first = [-1, -1, 1, -1, -1, 1, -1, -1, -1, -1, 1, -1, -1, 1, -1, -1]
    assert rotation.signs(16).int().tolist() == drawn_first


def test_a_rotation_spreads_an_outlier() -> None:
    vectors = torch.randn(64, 64, generator=torch.Generator().manual_seed(3))
    vectors[:, 5] = 50
    errors = [
        (slots.dequantise(of_vectors(vectors, {"quant": "int4"}, rotate=rotate)) - vectors).norm()
        for rotate in (False, True)
    ]
    assert errors[1] < errors[0] / 1.5


def test_heads_that_cannot_be_packed_so_are_refused() -> None:
    heads = {size: Holder(size, compiled=False) for size in (64, 80)}
    check_layout(spec(rotate=True), heads[80])  # not packed at all
    with pytest.raises(UsageError, match=r"rotate=true.*80 values"):
        check_layout(spec(quant="int4", rotate=True), heads[80])
    with pytest.raises(UsageError, match="group=48 does not divide"):
        check_layout(spec(quant="int4", granularity="group", group=48), heads[64])
    with pytest.raises(UsageError, match=r"kv.group is 1 to 1024"):
        check_layout(spec(quant="int4", granularity="kivi", group=0), heads[64])


@given(
    hnp.arrays(np.uint8, st.tuples(st.integers(1, 3), st.integers(1, 70))),
    st.sampled_from([2, 3, 4, 8]),
)
def test_packed_codes_take_no_bit_more_and_come_back(codes: np.ndarray, width: int) -> None:
    cut = torch.from_numpy(codes & (2**width - 1))
    packed = bits.pack_codes(torch.from_numpy(codes), width)
    assert packed.shape[-1] == bits.code_bytes(codes.shape[1], width) == -(-codes.shape[1] * width // 8)
    assert torch.equal(bits.unpack_codes(packed, width, codes.shape[1]), cut)
    stream = np.unpackbits(packed.numpy(), axis=-1, bitorder="little")
    wanted = (cut.numpy()[..., None] >> np.arange(width) & 1).reshape(len(codes), -1)
    assert np.array_equal(stream[:, : wanted.shape[1]], wanted)


@pytest.mark.parametrize("kind", [*KINDS, {"quant": "int8", "value_quant": "int4"}], ids=str)
@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_the_stated_size_is_that_of_codes_scales_and_zeros(kind: dict[str, Any], granularity: str) -> None:
    wanted = spec(**kind, granularity=granularity, group=16)
    tokens, heads, dim = 32, 3, 64
    vectors = torch.randn(heads * tokens, dim, generator=torch.Generator().manual_seed(4))
    positions = torch.arange(tokens).repeat(heads)
    groups = sharing.group_numbers(torch.arange(heads).repeat_interleave(tokens), positions, wanted.group)
    total = 0
    for which in ("keys", "values"):
        quantised = slots.quantise(wanted, which, vectors, positions, groups)
        held = [bits.pack_codes(quantised.codes, quantised.form.bits), quantised.fitted.scales]
        held += [] if quantised.fitted.zeros is None else [quantised.fitted.zeros]
        total += sum(tensor.nbytes for tensor in held)
    assert bits.packed_bytes(wanted, tokens, heads, dim) == total


def test_keys_and_values_may_be_packed_to_different_formats() -> None:
    wanted = spec(quant="int8", value_quant="int4", codebook=True, rotate=True)
    assert formats.format_of(wanted, "keys") == formats.Format("int8", codebook=False)
    assert formats.format_of(wanted, "values") == formats.Format("int4", codebook=True)
    with pytest.raises(UsageError, match=r"needs a kv\.quant"):
        spec(value_quant="int4")
    with pytest.raises(UsageError, match="is one of int8"):
        spec(quant="int8", value_quant="none")
    with pytest.raises(UsageError, match=r"kv\.value_quant=8 must be a word"):
        spec(quant="int8", value_quant=8)


def test_three_bit_codes_of_smollm2_take_what_arithmetic_says() -> None:
    """30 layers of 3 heads of 64 values, keys and values: 24 bytes of codes and 2 of scale for each vector."""
    wanted = spec(quant="int3", codebook=True, rotate=True)
    assert 30 * bits.packed_bytes(wanted, 1, 3, 64) == 30 * 3 * 2 * (24 + 2) == 4680


def shared_sets(
    granularity: str, group: int, heads: list[int], positions: list[int], dim: int
) -> list[set[Any]]:
    """Which (slot, channel) share a scale, by the definitions' words, one at a time."""
    everything = [(slot, channel) for slot in range(len(heads)) for channel in range(dim)]
    order = sorted(range(len(heads)), key=lambda slot: (heads[slot], positions[slot]))
    rank = {slot: sum(heads[o] == heads[slot] for o in order[: order.index(slot)]) for slot in order}
    names = {
        "tensor": lambda slot, channel: 0,
        "token": lambda slot, channel: positions[slot],
        "token_head": lambda slot, channel: slot,
        "group": lambda slot, channel: (slot, channel // group),
        "channel": lambda slot, channel: (heads[slot], rank[slot] // group, channel),
    }
    sets: dict[Any, set[Any]] = {}
    for cell in everything:
        sets.setdefault(names[granularity](*cell), set()).add(cell)
    return list(sets.values())


@given(st.data(), st.sampled_from([g for g in GRANULARITIES if g != "kivi"]))
def test_scales_are_shared_as_the_granularity_says(data: st.DataObject, granularity: str) -> None:
    group, dim = 2, 4
    held = [data.draw(st.sets(st.integers(0, 9), max_size=6)) for _ in range(2)]
    cells = [(head, position) for head, positions in enumerate(held) for position in positions]
    cells = data.draw(st.permutations(cells))
    heads, positions = [c[0] for c in cells], [c[1] for c in cells]
    numbers = sharing.group_numbers(
        torch.tensor(heads, dtype=torch.int64), torch.tensor(positions, dtype=torch.int64), group
    )
    for head in range(2):  # whole groups, the earliest positions first
        grouped = sorted(
            p for h, p, n in zip(heads, positions, numbers.tolist(), strict=True) if h == head and n >= 0
        )
        assert grouped == sorted(held[head])[: len(held[head]) // group * group]
    if granularity == "channel":
        cells = [cell for cell, number in zip(cells, numbers.tolist(), strict=True) if number >= 0]
        numbers = numbers[numbers >= 0]
        heads, positions = [c[0] for c in cells], [c[1] for c in cells]
    shares, count = sharing.shares(
        granularity, group, torch.tensor(positions, dtype=torch.int64), numbers, dim
    )
    sets: dict[int, set[Any]] = {}
    for slot in range(len(cells)):
        for channel in range(dim):
            sets.setdefault(int(shares[slot, channel]), set()).add((slot, channel))
    wanted = shared_sets(granularity, group, heads, positions, dim)
    assert sorted(map(sorted, sets.values())) == sorted(map(sorted, wanted))
    assert count == max(len(wanted), granularity == "tensor")


def test_kivi_shares_keys_by_channel_and_values_by_token() -> None:
    wanted = spec(quant="int2", granularity="kivi")
    assert sharing.granularity_of(wanted, "keys") == "channel"
    assert sharing.granularity_of(wanted, "values") == "token_head"


def test_a_fixed_scale_is_used_again_and_saturates() -> None:
    wanted = spec(quant="int8", granularity="tensor")
    where = torch.zeros(1, dtype=torch.int64)
    first = slots.quantise(wanted, "keys", torch.full((1, 4), 2.0), where, where)
    later = slots.quantise(wanted, "keys", torch.tensor([[1.0, 2.0, 5.0, -9.0]]), where, where, first.fitted)
    assert torch.equal(later.fitted.scales, first.fitted.scales)
    assert slots.dequantise(later)[0].tolist() == pytest.approx([1, 2, 2, -2], abs=2 / 127)
