# SPDX-License-Identifier: Apache-2.0
"""Attention over part of the keys at a time, with the bits of one call."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import numpy

from . import _core

CHUNK_KEYS = 512


def _rows(q: Any) -> Tuple[int, ...]:
    return tuple(int(n) for n in q.shape[:-1])


class State:
    """The softmax state of the rows of q over the keys so far. Each update adds the next part of the keys.
    result() returns the bits of one attention call over all keys. Every part but the last has a multiple of 512 keys.
    `arrays` and `from_arrays` pass a state to another process or machine."""

    def __init__(self) -> None:
        self._arrays: Optional[Tuple[numpy.ndarray, ...]] = None
        self._keys = 0

    @property
    def keys(self) -> int:
        """The number of keys that the state has seen, which is the index of the first key of the next part."""
        return self._keys

    @property
    def arrays(self) -> Tuple[numpy.ndarray, ...]:
        """Returns max float32 [..., rows], sum float64 [..., rows], out float64 [..., rows, value_dim]: the
        softmax state as attnkit/options.h describes it. Raises ValueError before the first update."""
        if self._arrays is None:
            raise ValueError("the state has seen no part of the keys")
        return self._arrays

    @classmethod
    def from_arrays(cls, arrays: Any, keys: int) -> "State":
        """Makes a state from copies of the arrays of another state. keys is the number of keys that the other state has
        seen. Raises TypeError for other types, ValueError for shapes that do not match."""
        types = (numpy.float32, numpy.float64, numpy.float64)
        copies = tuple(numpy.array(array, order="C") for array in arrays)
        if len(copies) != 3 or any(array.dtype != type for array, type in zip(copies, types)):
            raise TypeError("arrays: must be max of float32, and sum and out of float64")
        if copies[0].shape != copies[1].shape or copies[2].shape[:-1] != copies[0].shape:
            raise ValueError("arrays: max and sum must have the shape of out without its last dimension")
        state = cls()
        state._arrays, state._keys = copies, int(keys)
        return state

    def update(self, q: Any, k: Any, v: Any, **options: Any) -> None:
        """Adds the next part of the keys. Every update gets the same q. Shapes and exceptions are as for attention(),
        and so are these options: mask, bias, causal, q_offsets, window, softcap, alibi_slopes, scale, kv_lens, dropout,
        seeds, bf16_products, short_weights and threads. mask and bias have a column for each key of this part.
        kv_lens counts the keys of this part. q_offsets are positions among the keys of all parts. With 'bottom-right'
        the last row is at the last key of this part. If more parts follow, give q_offsets instead.

        Raises ValueError if the number of keys so far is not a multiple of 512."""
        if self._keys % CHUNK_KEYS:
            raise ValueError(f"the state has seen {self._keys} keys: every part but the last must have a "
                             f"multiple of {CHUNK_KEYS} keys")
        rows = _rows(q)
        new = (numpy.empty(rows, numpy.float32), numpy.empty(rows, numpy.float64),
               numpy.empty((*rows, int(v.shape[-1])), numpy.float64))
        _core.attend_part(q, k, v, first_key=self._keys, state_in=self._arrays, state_out=new, **options)
        self._arrays = new
        self._keys += int(k.shape[-2])

    def result(self, dtype: Any = numpy.float32, *, sinks: Any = None, return_lse: bool = False,
               threads: Optional[int] = None) -> Any:
        """Returns the result of all parts: [..., rows, value_dim] in float32, float16 or bfloat16 (of
        ml_dtypes), or with return_lse a tuple of the result and lse. sinks has the meaning that it has in
        attention()."""
        out = self.arrays[2]
        rows, value_dim = out.shape[:-1], out.shape[-1]
        no_key = (*rows[:-1], 0)
        return _core.attend_part(numpy.zeros((*rows, 1), dtype), numpy.empty((*no_key, 1), numpy.float32),
                                 numpy.empty((*no_key, value_dim), numpy.float32), state_in=self._arrays,
                                 first_key=-(-self._keys // CHUNK_KEYS) * CHUNK_KEYS, sinks=sinks,
                                 return_lse=return_lse, threads=threads)
