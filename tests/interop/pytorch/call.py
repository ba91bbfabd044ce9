# SPDX-License-Identifier: Apache-2.0
"""Calls attnkit_attention on NumPy arrays. The function `attention` takes the sizes of the call from the shapes of q, k
and v, and makes the arrays of the outputs. Its argument `fields` has other fields of attnkit_attention_args, and fields
of the groups of options. mask_fields makes the fields of a mask or bias. Any other tensor, an attnkit_ints or a pointer
is given as an array, and every other field as a number.
"""

import ctypes
from collections import namedtuple

import numpy as np

from attnkit_structs import (ATTEND, BITS, BOOL, BOTTOM_RIGHT, CAUSAL, IGNORE, MESSAGE_SIZE, OFFSETS,
                             SCALE_GIVEN, SOFTMAX, UPPER_LEFT, AttentionArgs, new, tensor)
from libraries import with_attnkit
from tensors import STORED, widened

Setting = namedtuple("Setting", "isa threads")
Result = namedtuple("Result", "out lse weights")


def mask_fields(name, array, kind=None, columns=None):
    """Returns the fields of a mask or bias whose first three axes broadcast to [batch, q_heads, q_len]: axes of size 1
    repeat. `name` is mask, mask_bits or bias. A mask of bits needs `columns`, its number of bits in a row."""
    array = array.reshape((1,) * (4 - array.ndim) + array.shape)
    strides = [0 if n == 1 else stride for n, stride in zip(array.shape[:3], array.strides[:3])]
    type = {"mask": BOOL, "mask_bits": BITS}.get(name)
    fields = {name: tensor(array, type, strides), name + "_columns": columns or array.shape[3]}
    return fields if name == "bias" else fields | {name + "_kind": kind}


def packed_bits(mask):
    """Packs a mask of Booleans into bits. Key j is bit j % 8 of byte j / 8."""
    return np.packbits(mask, axis=-1, bitorder="little")


def describe(q, k, v, fields):
    batch, q_heads, q_len, head_dim = q.shape
    kv_heads, kv_len, value_dim = v.shape[1:]
    return new(AttentionArgs, batch=batch, q_heads=q_heads, kv_heads=kv_heads, q_len=q_len,
               kv_len=kv_len, head_dim=head_dim, value_dim=value_dim, q=q, k=k, v=v, **fields)


def attention(library, isa, q, k, v, out_type="float32", weights=False, **fields):
    """Returns out (bfloat16 as float32), lse and, if `weights` is true, the weights after the softmax. If attnkit
    refuses the call, raises an exception with attnkit's message."""
    q, k, v = (np.ascontiguousarray(array) for array in (q, k, v))
    rows = q.shape[:3]
    out = np.empty((*rows, v.shape[3]), dtype=STORED[out_type])
    out.view(np.uint8)[...] = 0xFF  # a NaN in every type
    lse = np.full(rows, np.nan, dtype=np.float32)
    fields |= {"out": out, "lse": lse}
    written = np.full((*rows, k.shape[2]), np.nan, dtype=np.float32) if weights else None
    if weights:
        fields |= {"weights": written, "kind": SOFTMAX}
    args = describe(q, k, v, fields)
    loaded = with_attnkit.load(library)
    (share,), workspace = with_attnkit.make_shares(loaded, args, Setting(isa, 1))
    message = ctypes.create_string_buffer(MESSAGE_SIZE)
    with_attnkit.check(loaded.attnkit_attention(ctypes.byref(args), ctypes.byref(share), message),
                       message)
    del workspace  # the workspace had to live as long as the call
    return Result(widened(out), lse, written)
