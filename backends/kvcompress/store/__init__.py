"""The slots of all requests on a CPU, in pages of one pool, with compiled kernels.

paged      what the engine calls (`PagedStore`)
layout     where everything lies in a page
pages      the free list, and the lists of pages of each head
rows       how one request's slots are stored
groups     pages whose slots share scales
decode     attention of one token: scores (`scores`), softmax, weighted sum (`sums`)
slots, packing   appended, dropped, read back; quantised (`wanted`: which); encode: one vector of them
scales     where a slot's scales lie
codecs, products, simd, turning, memory, static, inner   what those are written in
compiled   compiled once for each layout, and cached
"""

from backends.kvcompress.store.paged import PagedStore

__all__ = ["PagedStore"]
