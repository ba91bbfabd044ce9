# SPDX-License-Identifier: Apache-2.0
"""Linear maps: y = x w^T + bias, with w packed once or in the call."""

from __future__ import annotations

from typing import Any, Optional

from . import _core
from ._types import MATRICES, aligned_bytes, number_of


class Matrix:
    """A matrix [out_dim, in_dim] of float32, float16 or bfloat16, packed for linear() in the given type:
    float32, float16, bfloat16 or q8_0 (in_dim a multiple of 32). Packing takes about 1 ns for an element."""

    def __init__(self, w: Any, *, type: str = "float32") -> None:
        self._type = number_of(type, MATRICES)
        self._memory = aligned_bytes(_core.pack(w, self._type))
        _core.pack(w, self._type, self._memory)
        self.shape = (int(w.shape[0]), int(w.shape[1]))


def linear(x: Any, w: Any, bias: Any = None, *, integers: bool = False, out: Any = None,
           threads: Optional[int] = None) -> Any:
    """Returns x w^T + bias, as torch.nn.functional.linear does.

    x [..., in_dim] is float32, float16 or bfloat16. w is [out_dim, in_dim], an array that is packed in this
    call, or a Matrix, which is packed already. bias is float32 [out_dim], or None. Returns [..., out_dim] in
    the type of x, or out. Raises TypeError for other types, ValueError for shapes that do not match.

    integers=True rounds x to integers of 8 bits, and multiplies them by the integers of w, a Matrix of q8_0. The result
    has other bits. The bits of a row still do not depend on the other rows of x. A w of another type raises
    NotImplementedError."""
    if not isinstance(w, Matrix):
        w = Matrix(w)
    return _core.linear(x, w._memory, w._type, *w.shape, bias=bias, integers=integers, out=out,
                        threads=threads)
