"""The memory of the KV cache: one flat buffer for each key and value tensor, cut into rows of equal length.

A row is one request. ONNX Runtime reads and writes the buffers in place: rows 0 to n-1 are one tensor
[n, heads, stride, width], so any run of neighbouring rows can be computed as one batch without copying a byte.
`stride` is how many tokens a row can hold. The price of equal rows: a short request beside a long one takes as much.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


class KvPool:
    """`tensors` buffers (keys and values of every layer) that together take at most `size` bytes.

    heads: KV heads. width: elements of one head's entry as stored. capacity: tokens all rows can hold together.
    """

    def __init__(self, tensors: int, heads: int, width: int, dtype: npt.DTypeLike, size: int) -> None:
        self.dtype = np.dtype(dtype)
        self.heads = heads
        self.width = width
        self._token_bytes = heads * width * self.dtype.itemsize  # of one buffer
        self.bytes_per_token = tensors * self._token_bytes
        self.capacity = size // self.bytes_per_token
        self.stride = 0
        self._buffers = [np.empty(self.capacity * heads * width, self.dtype) for _ in range(tensors)]
        for buffer in self._buffers:
            buffer.fill(0)  # touched now: what is set aside is really there before the first request
        self._bases = [buffer.ctypes.data for buffer in self._buffers]

    @property
    def reserved_bytes(self) -> int:
        """What all buffers take."""
        return self.capacity * self.bytes_per_token

    def shape(self, rows: int) -> tuple[int, int, int, int]:
        """Of `rows` neighbouring rows of one buffer."""
        return rows, self.heads, self.stride, self.width

    def addresses(self, row: int) -> list[int]:
        """Where `row` begins in each buffer."""
        offset = row * self.stride * self._token_bytes
        return [base + offset for base in self._bases]

    def fits(self, rows: int, stride: int) -> bool:
        """Whether so many rows of that length have room."""
        return rows * stride <= self.capacity

    def lay_out(self, stride: int, lengths: Sequence[int]) -> None:
        """Change the length of a row, keeping the first `lengths[i]` entries of each row i."""
        rows, used = len(lengths), max(lengths, default=0)
        if used and stride != self.stride:
            for buffer in self._buffers:
                kept = self._rows(buffer, rows, self.stride)[:, :, :used].copy()
                self._rows(buffer, rows, stride)[:, :, :used] = kept
        self.stride = stride

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` entries of one row over another."""
        for rows in self._all(max(source, target) + 1):
            rows[target, :, :length] = rows[source, :, :length]

    def exchange(self, one: int, other: int, used: int) -> None:
        """Swap the first `used` entries of two rows."""
        for rows in self._all(max(one, other) + 1):
            kept = rows[one, :, :used].copy()
            rows[one, :, :used] = rows[other, :, :used]
            rows[other, :, :used] = kept

    def entries(self, tensor: int, row: int, length: int) -> npt.NDArray[np.generic]:
        """The first `length` entries of a row in one buffer: [heads, length, width], a view."""
        return self._rows(self._buffers[tensor], row + 1, self.stride)[row, :, :length]

    def _all(self, rows: int) -> list[npt.NDArray[np.generic]]:
        return [self._rows(buffer, rows, self.stride) for buffer in self._buffers]

    def _rows(self, buffer: npt.NDArray[np.generic], rows: int, stride: int) -> npt.NDArray[np.generic]:
        size = rows * self.heads * stride * self.width
        return buffer[:size].reshape(rows, self.heads, stride, self.width)
