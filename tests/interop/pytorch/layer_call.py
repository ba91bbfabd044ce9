# SPDX-License-Identifier: Apache-2.0
"""The multi-head attention layer of attnkit on NumPy arrays. Weights are packed once; a call has the
fields of attnkit_layer_args and of its attention as keywords.
"""

import ctypes
from collections import namedtuple

import numpy as np

from call import MASK_STRIDED, SOFTMAX, type_of
from libraries import with_attnkit
from libraries.with_attnkit import TYPES
from tensors import STORED, aligned, widened

STRIDED, NO_APPEND = 4, 256
INTERLEAVED, HALF = 1, 2
Q8_0 = 4
BLOCK = np.dtype([("scale", "<f2"), ("elements", "i1", 32)])  # of Q8_0

DIMS = ("d_model", "d_key", "d_value", "d_out", "q_heads", "kv_heads", "head_dim", "value_dim")
MATRICES = ("w_q", "w_k", "w_v", "w_qkv", "w_o")
BIASES = ("b_q", "b_k", "b_v", "b_qkv", "b_o")
INPUTS = ("x", "key", "value")
ROPE = ("rope", "rope_dim", "rope_base", "positions")

Result = namedtuple("Result", "out lse weights mean")


class Weights(ctypes.Structure):
    """attnkit_layer_weights"""
    _fields_ = [
        ("size", ctypes.c_size_t), ("flags", ctypes.c_uint32),
        *((name, ctypes.c_int64) for name in DIMS),
        *((name, ctypes.c_void_p) for name in (*MATRICES, *BIASES)),
        *((name, ctypes.c_int) for name in ("w_type", "packed_type", "bias_type"))]


class Args(ctypes.Structure):
    """attnkit_layer_args"""
    _fields_ = [
        ("size", ctypes.c_size_t), ("flags", ctypes.c_uint32),
        ("packed", ctypes.c_void_p), ("packed_size", ctypes.c_size_t),
        *((name, ctypes.c_int64) for name in ("batch", "q_len", "kv_len")),
        *((name, ctypes.c_void_p) for name in (*INPUTS, "out")),
        ("x_type", ctypes.c_int), ("out_type", ctypes.c_int),
        *((name + "_strides", ctypes.c_int64 * 2) for name in (*INPUTS, "out")),
        ("rope", ctypes.c_int), ("rope_dim", ctypes.c_int64), ("rope_base", ctypes.c_double),
        ("rope_cos", ctypes.c_void_p), ("rope_sin", ctypes.c_void_p),
        ("rope_positions", ctypes.c_int64), ("positions", ctypes.c_void_p),
        ("attention", ctypes.c_void_p), ("cached", ctypes.c_void_p),
        ("mean_weights", ctypes.c_void_p)]


def new(struct, **fields):
    """A struct that knows its size. Arrays are pointers, and tuples strides."""
    made = struct(size=ctypes.sizeof(struct))
    for name, value in fields.items():
        if isinstance(value, np.ndarray):
            value = value.ctypes.data
        elif isinstance(value, tuple):
            value = (ctypes.c_int64 * len(value))(*value)
        if value is not None:
            setattr(made, name, value)
    return made


def nan(*shape, type="float32"):
    """An array of them, in any of the types."""
    array = np.empty(shape, dtype=STORED[type])
    array.view(np.uint8)[...] = 0xFF
    return array


def set_strides(args, tensors):
    args.flags |= STRIDED
    for name, array in tensors.items():
        if array is not None:
            setattr(args, name + "_strides", (ctypes.c_int64 * 2)(*array.strides[:2]))


class Layer:
    """A layer by its weights, which are arrays, and its dims."""

    def __init__(self, library, isa, **fields):
        self.library = with_attnkit.load(library)
        self.exec = new(with_attnkit.Exec, isa=isa.encode())
        w_type = Q8_0 if fields["w_o"].dtype == BLOCK else type_of(fields["w_o"])
        bias_type = type_of(fields["b_o"]) if "b_o" in fields else 0
        weights = new(Weights, w_type=w_type, packed_type=w_type, bias_type=bias_type, **fields)
        self.q_heads, self.d_out = weights.q_heads, len(fields["w_o"])
        bytes = ctypes.c_size_t()
        self.call("layer_packed_size", weights, bytes)
        self.packed = aligned((bytes.value,), np.uint8)
        self.call("layer_pack", weights, ctypes.c_void_p(self.packed.ctypes.data),
                  ctypes.c_size_t(bytes.value), self.exec)

    def call(self, name, *arguments):
        """Structs, and a size that is answered, by reference; what attnkit refuses is an exception with
        its message."""
        message = ctypes.create_string_buffer(with_attnkit.MESSAGE_SIZE)
        answered = name.endswith(("_size", "_workspace"))
        last = len(arguments) - 1
        passed = [ctypes.byref(argument)
                  if isinstance(argument, ctypes.Structure) or answered and i == last else argument
                  for i, argument in enumerate(arguments)]
        with_attnkit.check(getattr(self.library, "attnkit_" + name)(*passed, message), message)

    def __call__(self, x, key=None, value=None, out_type="float32", weights=False, flags=0, cached=None,
                 attention_flags=0, **fields):
        """Inputs are [batch, rows, dim]; where x is a view whose rows come first in memory, so is out.
        fields are those of ROPE, and of the attention. weights: of each head, and their mean."""
        batch, q_len = x.shape[:2]
        out = nan(batch, q_len, self.d_out, type=out_type)
        if not x.flags.c_contiguous:
            out = nan(q_len, batch, self.d_out, type=out_type).swapaxes(0, 1)
        keys = fields.get("kv_len") or (x if key is None else key).shape[1]
        lse = nan(batch, self.q_heads, q_len)
        of_heads, mean = (nan(batch, self.q_heads, q_len, keys), nan(batch, q_len, keys)) \
            if weights else (None, None)
        if any(name + "_strides" in fields for name in with_attnkit.MASKS):
            attention_flags |= MASK_STRIDED
        own = {name: fields.pop(name) for name in ROPE if name in fields}
        attention = new(with_attnkit.Args, flags=attention_flags, lse=lse, weights=of_heads,
                        weights_kind=SOFTMAX if weights else 0, **fields)
        args = new(Args, flags=flags, packed=self.packed, packed_size=self.packed.nbytes, batch=batch,
                   q_len=q_len, kv_len=0 if key is None else key.shape[1], x=x, key=key, value=value,
                   out=out, x_type=type_of(x), out_type=TYPES[out_type],
                   attention=ctypes.addressof(attention), cached=cached, mean_weights=mean, **own)
        if not x.flags.c_contiguous:
            set_strides(args, {"x": x, "key": key, "value": value, "out": out})
        self.run(args)
        return Result(widened(out), lse, of_heads, mean)

    def run(self, args):
        bytes = ctypes.c_size_t()
        self.call("layer_workspace", args, self.exec, bytes)
        workspace = np.empty(bytes.value, dtype=np.uint8)
        self.exec.workspace, self.exec.workspace_size = workspace.ctypes.data, bytes.value
        self.call("layer", args, self.exec)
