# SPDX-License-Identifier: Apache-2.0
"""Calls attnkit's multi-head attention layer on NumPy arrays. Weights are packed once, when a Layer is made. A call of
a Layer takes some fields of attnkit_layer_args, any fields of the layer's attention, and `rotation`, a dict of the
fields of attnkit_rotation.
"""

import ctypes
from collections import namedtuple

import numpy as np

from attnkit_structs import (HALF, INTERLEAVED, MESSAGE_SIZE, NO_APPEND, Q8_0, SOFTMAX,
                             AttentionArgs, Exec, LayerArgs, LayerWeights, new, tensor, type_of)
from libraries import with_attnkit
from tensors import STORED, aligned, widened

BLOCK = np.dtype([("scale", "<f2"), ("elements", "i1", 32)])  # a block of Q8_0

DIMS = ("d_model", "d_key", "d_value", "d_out", "q_heads", "kv_heads", "head_dim", "value_dim")

Result = namedtuple("Result", "out lse weights mean")


def nan(*shape, type="float32"):
    """Returns an array of NaN in the given type."""
    array = np.empty(shape, dtype=STORED[type])
    array.view(np.uint8)[...] = 0xFF
    return array


def in_rows(array):
    """Returns a Tensor of an array [batch, rows, dim] with any strides of the first two axes. Returns None for None."""
    return None if array is None else tensor(array, strides=(array.strides[0], 0, array.strides[1]))


class Layer:
    """A layer with packed weights. `fields` are its weights, as arrays, and its dims."""

    def __init__(self, library, isa, **fields):
        self.library = with_attnkit.load(library)
        self.exec = new(Exec, isa=isa.encode())
        w_type = Q8_0 if fields["w_o"].dtype == BLOCK else type_of(fields["w_o"])
        bias_type = type_of(fields["b_o"]) if "b_o" in fields else 0
        weights = new(LayerWeights, w_type=w_type, packed_type=w_type, bias_type=bias_type, **fields)
        self.q_heads, self.d_out = weights.q_heads, len(fields["w_o"])
        bytes = ctypes.c_size_t()
        self.call("layer_packed_size", weights, bytes)
        self.packed = aligned((bytes.value,), np.uint8)
        self.call("layer_pack", weights, ctypes.c_void_p(self.packed.ctypes.data),
                  ctypes.c_size_t(bytes.value), self.exec)

    def call(self, name, *arguments):
        """Calls attnkit's function `name`, which is given without the prefix attnkit_. Structs are passed by reference.
        If the function computes a size, the last argument is also passed by reference, and receives the size. If
        attnkit refuses the call, raises an exception with attnkit's message."""
        message = ctypes.create_string_buffer(MESSAGE_SIZE)
        answered = name.endswith(("_size", "_workspace"))
        last = len(arguments) - 1
        passed = [ctypes.byref(argument)
                  if isinstance(argument, ctypes.Structure) or answered and i == last else argument
                  for i, argument in enumerate(arguments)]
        with_attnkit.check(getattr(self.library, "attnkit_" + name)(*passed, message), message)

    def __call__(self, x, key=None, value=None, out_type="float32", weights=False, flags=0, cached=None,
                 attention_flags=0, rotation=None, **fields):
        """Inputs are arrays [batch, rows, dim]. If x is a view whose rows are outermost in memory, out has the same
        order. `rotation` is a dict of the fields of the rotation. `fields` are the fields of the attention. `weights`
        asks for the weights of each query head, and for their mean over the query heads."""
        batch, q_len = x.shape[:2]
        out = nan(batch, q_len, self.d_out, type=out_type)
        if not x.flags.c_contiguous:
            out = nan(q_len, batch, self.d_out, type=out_type).swapaxes(0, 1)
        keys = fields.get("kv_len") or (x if key is None else key).shape[1]
        lse = nan(batch, self.q_heads, q_len)
        of_heads, mean = (nan(batch, self.q_heads, q_len, keys), nan(batch, q_len, keys)) \
            if weights else (None, None)
        attention = new(AttentionArgs, flags=attention_flags, lse=lse, weights=of_heads,
                        kind=SOFTMAX if weights else None, **fields)
        rows = {"x": x, "key": key, "value": value, "out": out}
        if not x.flags.c_contiguous:
            rows = {name: in_rows(array) for name, array in rows.items()}
        args = new(LayerArgs, flags=flags, packed=self.packed, packed_size=self.packed.nbytes, batch=batch,
                   q_len=q_len, kv_len=0 if key is None else key.shape[1], cached=cached,
                   attention=ctypes.pointer(attention), mean_weights=mean, **rows, **(rotation or {}))
        self.run(args)
        return Result(widened(out), lse, of_heads, mean)

    def run(self, args):
        bytes = ctypes.c_size_t()
        self.call("layer_workspace", args, self.exec, bytes)
        workspace = np.empty(bytes.value, dtype=np.uint8)
        self.exec.workspace, self.exec.workspace_size = workspace.ctypes.data, bytes.value
        self.call("layer", args, self.exec)
