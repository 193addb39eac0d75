"""The slots of all requests on a CPU, in pages of one pool, with compiled kernels.

paged      what the engine calls (`PagedStore`)
layout     where everything lies in a page
pages      the free list, and the lists of pages of each head
decode     attention of one token: scores, softmax, weighted sum
slots, packing   appended, dropped, read back; quantised; encode: one vector of them
codecs, products, simd, turning, memory, static   what those are written in
compiled   compiled once for each layout, and cached
"""

from backends.kvcompress.store.paged import PagedStore

__all__ = ["PagedStore"]
