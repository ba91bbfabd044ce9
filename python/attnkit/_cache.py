# SPDX-License-Identifier: Apache-2.0
"""A KV cache: the keys and values of some sequences, in a type and layout that are chosen when the cache is made."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator, Optional

import numpy

from . import _core
from ._types import CACHED, number_of, row_bytes

TILE_KEYS = 16


class KVCache:
    """Keys and values of `batch` sequences, each of at most `capacity` keys.

    type    of the stored elements: float32, float16, bfloat16, int8 (a scale for each row), or blocks of
            ggml: q8_0, q5_0, q4_0 (head_dim and value_dim are multiples of 32)
    paged   number of keys in a page, or None. With pages, a sequence takes pages one by one as it grows
    pages   number of pages, if paged is given; by default enough for all sequences at their capacity
    tiled   store K in tiles of 16 keys: decoding reads tiles faster than rows. paged is then a multiple of 16

    The bits of a result do not depend on paged and tiled. Raises ValueError for a wrong value."""

    def __init__(self, batch: int, kv_heads: int, capacity: int, head_dim: int,
                 value_dim: Optional[int] = None, *, type: str = "float32", paged: Optional[int] = None,
                 pages: Optional[int] = None, tiled: bool = False) -> None:
        value_dim = head_dim if value_dim is None else value_dim
        for name, value in (("batch", batch), ("kv_heads", kv_heads), ("head_dim", head_dim),
                            ("value_dim", value_dim)):
            if value < 1:
                raise ValueError(f"{name} is {value}: must be at least 1")
        if capacity < 0:
            raise ValueError(f"capacity is {capacity}: must not be negative")
        if pages is not None and paged is None:
            raise ValueError("pages is given: paged must be given, too")
        if paged is not None and (paged < 1 or tiled and paged % TILE_KEYS):
            raise ValueError(f"paged is {paged}: must be at least 1, and if tiled a multiple of {TILE_KEYS}")
        self._type = number_of(type, CACHED)
        self._batch, self._capacity = batch, capacity
        self._kv = (kv_heads, head_dim, value_dim)
        self._page = paged or 0
        self._entries = -(-capacity // paged) if paged else 0
        self._pages = 0 if not paged else batch * self._entries if pages is None else pages
        self._lens = numpy.zeros(batch, numpy.int64)
        places = self._pages if paged else batch
        rows = paged or capacity
        k_rows = -(-rows // TILE_KEYS) * TILE_KEYS if tiled else rows
        has_scales = type == "int8"
        arrays = [self._rows(places, kv_heads, k_rows, row_bytes(type, head_dim)),
                  self._rows(places, kv_heads, rows, row_bytes(type, value_dim)),
                  numpy.zeros((places, kv_heads, k_rows), numpy.float32) if has_scales else None,
                  numpy.zeros((places, kv_heads, rows), numpy.float32) if has_scales else None,
                  numpy.zeros((batch, max(self._entries, 1)), numpy.int32) if paged else None]
        self._table = arrays[-1]
        self._free = list(range(self._pages - 1, -1, -1))
        self._taken = [0] * batch
        self._cache = (self._type, batch, kv_heads, capacity, head_dim, value_dim, int(tiled), self._page,
                       self._pages, 0, *arrays)

    @staticmethod
    def _rows(places: int, heads: int, rows: int, size: int) -> numpy.ndarray:
        return numpy.zeros(places * heads * rows * size, numpy.uint8)

    @property
    def lens(self) -> numpy.ndarray:
        """Returns a copy of the number of keys of each sequence: int64 [batch]."""
        return self._lens.copy()

    @property
    def nbytes(self) -> int:
        """Returns the number of bytes that keys, values and scales take."""
        return sum(array.nbytes for array in self._cache[-5:-1] if array is not None)

    def _make_room(self, more: numpy.ndarray) -> None:
        """Takes pages for more[b] new keys of each sequence b. After an exception nothing has changed."""
        wanted = self._lens + more
        for b in numpy.flatnonzero(wanted > self._capacity):
            raise ValueError(f"k has {more[b]} rows for sequence {b}, which has {self._lens[b]} keys: "
                             f"the capacity is {self._capacity}")
        if not self._page:
            return
        missing = [int(-(-n // self._page)) - taken for n, taken in zip(wanted.tolist(), self._taken)]
        if sum(n for n in missing if n > 0) > len(self._free):
            raise MemoryError(f"the cache has {len(self._free)} free pages of {self._page} keys, which are not "
                              f"enough for {int(more.sum())} more keys")
        for b, count in enumerate(missing):
            for _ in range(count):
                self._table[b, self._taken[b]] = self._free.pop()
                self._taken[b] += 1

    @contextmanager
    def _room(self, more: numpy.ndarray) -> Iterator[None]:
        """Takes pages for a call that adds more[b] keys to each sequence b. After the call `lens` counts these keys.
        If the call fails, the pages are free again."""
        self._make_room(more)
        try:
            yield
        except BaseException:
            self.truncate(self._lens)
            raise
        self._lens += more

    def append(self, k: Any, v: Any, lens: Any = None, *, threads: Optional[int] = None) -> None:
        """Adds rows after the keys in the cache, converted to the type of the cache.

        k [batch, kv_heads, rows, head_dim] and v [batch, kv_heads, rows, value_dim] are float32, float16 or
        bfloat16. lens, an int for each sequence, says how many of its rows are added: all by default. Raises
        ValueError if the capacity is not enough, MemoryError if too few pages are free, and TypeError for other types.
        After an exception no key has been added."""
        rows = k.shape[-2] if getattr(k, "ndim", 0) >= 2 else 0
        more = numpy.full(self._batch, rows, numpy.int64)
        if lens is not None:
            given = numpy.asarray(lens)
            if given.shape != (self._batch,) or given.dtype.kind not in "iu":
                raise ValueError(f"lens: must be {self._batch} integers, one for each sequence")
            more = given.astype(numpy.int64)
            if (more < 0).any() or (more > rows).any():
                raise ValueError(f"lens is {more.tolist()}: must be between 0 and the rows of k ({rows})")
        with self._room(more):
            _core.append(self._cache, k, v, starts=self._lens, lens=more, threads=threads)

    def truncate(self, lens: Any) -> None:
        """Keeps only the first keys of each sequence. lens says how many: an int for each sequence, or one int for all.
        Pages that hold no key any more are free again. Raises ValueError if lens is negative or more than the keys that
        a sequence has."""
        wanted = numpy.broadcast_to(numpy.asarray(lens, numpy.int64), (self._batch,))
        if (wanted < 0).any() or (wanted > self._lens).any():
            raise ValueError(f"lens is {wanted.tolist()}: must be between 0 and the keys there "
                             f"({self._lens.tolist()})")
        self._lens[:] = wanted
        for b, keys in enumerate(self._lens.tolist() if self._page else []):
            while self._taken[b] > -(-keys // self._page):
                self._taken[b] -= 1
                self._free.append(int(self._table[b, self._taken[b]]))

    def attend(self, q: Any, *, causal: Any = "bottom-right", integers: bool = False, **options: Any) -> Any:
        """Computes attention over all keys of each sequence.

        q is [batch, q_heads, q_len, head_dim], the last rows of each sequence. By default a row sees the keys up to its
        own key: causal is 'bottom-right'. With q_offsets, causal is True by default. Result and exceptions are as for
        attention(). These options of attention() are accepted: mask, bias, causal, q_offsets, window, softcap, sinks,
        alibi_slopes, scale, dropout, seeds, bf16_products and short_weights (in a cache of bfloat16 that is not tiled),
        return_lse, out and threads. A mask or bias may have fewer columns than the capacity: no row sees the keys after
        the last column. A mask or bias of one column is repeated for all keys.

        integers=True multiplies keys and values as integers. q and the weights are then rounded to integers of 16 bits,
        so the result has other bits. The cache must be of q8_0, or of int8 with head_dim and value_dim that are
        multiples of 32. Any other cache raises NotImplementedError."""
        if causal == "bottom-right" and options.get("q_offsets") is not None:
            causal = True
        return _core.attend_cache(q, self._cache, causal=causal, kv_lens=self._lens, integers=integers, **options)
