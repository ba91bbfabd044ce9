# SPDX-License-Identifier: Apache-2.0
"""One call of attnkit on NumPy arrays, by the structs of tools/peers/libraries/with_attnkit.py. Every
field of attnkit_attention_args is a keyword: a number, an array for a pointer, a tuple for strides.
"""

import ctypes
from collections import namedtuple

import numpy as np

from libraries import with_attnkit
from libraries.with_attnkit import TYPES
from tensors import STORED, widened

CAUSAL, SCALE_GIVEN, WINDOW, MASK_STRIDED = 1, 2, 16, 32
UPPER_LEFT, BOTTOM_RIGHT, OFFSETS = 1, 2, 3
ATTEND, IGNORE = 1, 2
SOFTMAX = 1

Setting = namedtuple("Setting", "isa threads")
Result = namedtuple("Result", "out lse weights")


def type_of(array):
    return next(TYPES[name] for name, stored in STORED.items() if stored == array.dtype)


def mask_fields(name, array, kind=None, columns=None):
    """The fields of a mask that broadcasts against [batch, q_heads, q_len]: axes of 1 repeat."""
    array = array.reshape((1,) * (4 - array.ndim) + array.shape)
    fields = {name: array, name + "_columns": columns or array.shape[3],
              name + "_strides": tuple(0 if n == 1 else stride for n, stride
                                       in zip(array.shape[:3], array.strides[:3]))}
    if name == "bias":
        fields["bias_type"] = type_of(array)
    else:
        fields[name + "_kind"] = kind
    return fields


def packed_bits(mask):
    """A mask of Booleans as bits, key j in bit j % 8 of byte j / 8."""
    return np.packbits(mask, axis=-1, bitorder="little")


def describe(q, k, v, fields):
    args = with_attnkit.Args(size=ctypes.sizeof(with_attnkit.Args))
    args.batch, args.q_heads, args.q_len, args.head_dim = q.shape
    args.kv_heads, args.kv_len, args.value_dim = v.shape[1:]
    args.q_type, args.k_type, args.v_type = type_of(q), type_of(k), type_of(v)
    for name, value in {"q": q, "k": k, "v": v, **fields}.items():
        if isinstance(value, np.ndarray):
            value = value.ctypes.data
        elif isinstance(value, tuple):
            value = (ctypes.c_int64 * 3)(*value)
        setattr(args, name, value)
    if any(name + "_strides" in fields for name in with_attnkit.MASKS):
        args.flags |= MASK_STRIDED
    return args


def attention(library, isa, q, k, v, out_type="float32", weights=False, **fields):
    """out as numbers, lse, and the weights after the softmax where they are asked for. What attnkit
    refuses is an exception with its message."""
    q, k, v = (np.ascontiguousarray(array) for array in (q, k, v))
    rows = q.shape[:3]
    out = np.empty((*rows, v.shape[3]), dtype=STORED[out_type])
    out.view(np.uint8)[...] = 0xFF  # a NaN in every type
    lse = np.full(rows, np.nan, dtype=np.float32)
    fields |= {"out": out, "lse": lse, "out_type": TYPES[out_type]}
    written = np.full((*rows, k.shape[2]), np.nan, dtype=np.float32) if weights else None
    if weights:
        fields |= {"weights": written, "weights_kind": SOFTMAX}
    args = describe(q, k, v, fields)
    loaded = with_attnkit.load(library)
    (share,), workspace = with_attnkit.make_shares(loaded, args, Setting(isa, 1))
    message = ctypes.create_string_buffer(with_attnkit.MESSAGE_SIZE)
    with_attnkit.check(loaded.attnkit_attention(ctypes.byref(args), ctypes.byref(share), message),
                       message)
    del workspace  # lived as long as the call
    return Result(widened(out), lse, written)
