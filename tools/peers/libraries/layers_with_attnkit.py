# SPDX-License-Identifier: Apache-2.0
"""Linear maps and layers with attnkit, through ctypes as in with_attnkit.py. Matrices are packed before
anything is timed; K of a cache is in rows, or in tiles.
"""

import ctypes

import numpy as np

from libraries.forms import Form
from libraries.with_attnkit import (BOTTOM_RIGHT, CAUSAL, MESSAGE_SIZE, Args, Exec, check, load,
                                    make_calls, make_shares)
from tensors import aligned, aligned_copy

TILED, TILE_KEYS = 8, 16
BARRIER_BYTES = 64  # at least sizeof(pthread_barrier_t)
DIMS = ("d_model", "d_key", "d_value", "d_out", "q_heads", "kv_heads", "head_dim", "value_dim")
MATRICES, INPUTS = ("w_q", "w_k", "w_v", "w_qkv", "w_o"), ("x", "key", "value")


class PackArgs(ctypes.Structure):
    """attnkit_pack_args"""
    _fields_ = [
        ("size", ctypes.c_size_t), ("flags", ctypes.c_uint32),
        *((name, ctypes.c_int64) for name in ("out_dim", "in_dim")), ("w", ctypes.c_void_p),
        *((name, ctypes.c_int) for name in ("w_type", "packed_type")),
        ("w_stride", ctypes.c_int64), ("packed", ctypes.c_void_p), ("packed_size", ctypes.c_size_t)]


class LinearArgs(ctypes.Structure):
    """attnkit_linear_args"""
    _fields_ = [
        ("size", ctypes.c_size_t), ("flags", ctypes.c_uint32),
        *((name, ctypes.c_int64) for name in ("rows", "in_dim", "out_dim")),
        *((name, ctypes.c_void_p) for name in ("x", "w", "bias", "y")),
        *((name + "_type", ctypes.c_int) for name in ("x", "w", "y")),
        *((name + "_stride", ctypes.c_int64) for name in ("x", "y"))]


class LayerWeights(ctypes.Structure):
    """attnkit_layer_weights"""
    _fields_ = [
        ("size", ctypes.c_size_t), ("flags", ctypes.c_uint32),
        *((name, ctypes.c_int64) for name in DIMS),
        *((name, ctypes.c_void_p) for name in MATRICES),
        *((name, ctypes.c_void_p) for name in ("b_q", "b_k", "b_v", "b_qkv", "b_o")),
        *((name, ctypes.c_int) for name in ("w_type", "packed_type", "bias_type"))]


class LayerArgs(ctypes.Structure):
    """attnkit_layer_args"""
    _fields_ = [
        ("size", ctypes.c_size_t), ("flags", ctypes.c_uint32),
        ("packed", ctypes.c_void_p), ("packed_size", ctypes.c_size_t),
        *((name, ctypes.c_int64) for name in ("batch", "q_len", "kv_len")),
        *((name, ctypes.c_void_p) for name in (*INPUTS, "out")),
        *((name + "_type", ctypes.c_int) for name in ("x", "out")),
        *((name + "_strides", ctypes.c_int64 * 2) for name in (*INPUTS, "out")),
        ("rope", ctypes.c_int), ("rope_dim", ctypes.c_int64), ("rope_base", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("rope_cos", "rope_sin")),
        ("rope_positions", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("positions", "attention", "cached", "mean_weights"))]


def new(struct, **fields):
    """One that knows its size; arrays are pointers."""
    return struct(size=ctypes.sizeof(struct), **{
        name: value.ctypes.data if isinstance(value, np.ndarray) else value
        for name, value in fields.items()})


def asked(function, args):
    """The bytes that it answers."""
    size, message = ctypes.c_size_t(), ctypes.create_string_buffer(MESSAGE_SIZE)
    check(function(ctypes.byref(args), ctypes.byref(size), message), message)
    return size.value


def done(function, *arguments):
    message = ctypes.create_string_buffer(MESSAGE_SIZE)
    check(function(*arguments, None, message), message)


# ------------------------------------------------------------------------------- linear maps


def packed_matrix(library, w):
    args = new(PackArgs, out_dim=w.shape[0], in_dim=w.shape[1], w=w)
    packed = aligned((asked(library.attnkit_packed_size, args),), np.uint8)
    args.packed, args.packed_size = packed.ctypes.data, packed.nbytes
    done(library.attnkit_pack, ctypes.byref(args))
    return packed


def linear(workload, tensors, setting):
    library = load(setting.library)
    matrices = [packed_matrix(library, w) for w in tensors.matrices]
    args = [new(LinearArgs, rows=workload.rows, in_dim=workload.in_dim, out_dim=workload.out_dim,
                x=tensors.x, w=w, y=tensors.out) for w in matrices]
    execs, workspace = make_shares(library, args[0], setting, "attnkit_linear_workspace")
    return Form(make_calls(library.attnkit_linear, args, execs),
                lambda keep=(matrices, workspace): tensors.out)


def linear_forms(workload, tensors, setting):
    yield "attnkit_linear", lambda: linear(workload, tensors, setting)


# ------------------------------------------------------------------------------------ layers


def packed_layer(library, workload, weights):
    a = workload.attention
    args = new(LayerWeights, d_model=workload.d_model, q_heads=a.q_heads, kv_heads=a.kv_heads,
               head_dim=a.dim, w_q=weights.q, w_k=weights.k, w_v=weights.v, w_o=weights.o)
    packed = aligned((asked(library.attnkit_layer_packed_size, args),), np.uint8)
    done(library.attnkit_layer_pack, ctypes.byref(args), ctypes.c_void_p(packed.ctypes.data),
         ctypes.c_size_t(packed.nbytes))
    return packed


def tiles(k):
    """[1, heads, keys, dim] as [1, heads, tiles, dim, 16]."""
    _, heads, keys, dim = k.shape
    return aligned_copy(k.reshape(1, heads, keys // TILE_KEYS, TILE_KEYS, dim).swapaxes(3, 4))


class Call:
    """The args of a layer, and what they point to."""

    def __init__(self, library, workload, tensors, weights, tiled):
        a = workload.attention
        self.attention = new(Args, flags=CAUSAL * a.causal | TILED * tiled,
                             align=BOTTOM_RIGHT * a.causal)
        self.packed = packed_layer(library, workload, weights)
        self.args = new(LayerArgs, packed=self.packed, packed_size=self.packed.nbytes, batch=1,
                        q_len=a.q_len, x=tensors.x, out=tensors.out,
                        attention=ctypes.addressof(self.attention))
        if weights.cache:
            self.cached = np.array([a.kv_len - a.q_len], dtype=np.int64)
            k, self.v = weights.cache
            self.k = tiles(k) if tiled else k
            self.attention.k, self.attention.v = self.k.ctypes.data, self.v.ctypes.data
            self.attention.kv_len, self.args.cached = a.kv_len, self.cached.ctypes.data


def barrier_of(threads):
    """The C library's: what Python's takes for its lock is a part of a decode step."""
    libc, barrier = ctypes.CDLL(None), ctypes.create_string_buffer(BARRIER_BYTES)
    if libc.pthread_barrier_init(barrier, None, threads):
        raise OSError(f"no barrier of {threads} threads")
    return ctypes.cast(libc.pthread_barrier_wait, ctypes.c_void_p), barrier


def layer(workload, tensors, setting, tiled=False):
    library = load(setting.library)
    calls = [Call(library, workload, tensors, weights, tiled) for weights in tensors.layers]
    args = [call.args for call in calls]
    wait, barrier = barrier_of(setting.threads)
    execs, workspace = make_shares(library, args[0], setting, "attnkit_layer_workspace")
    for share in execs:
        share.barrier, share.pool = wait, ctypes.addressof(barrier)
    return Form(make_calls(library.attnkit_layer, args, execs),
                lambda keep=(calls, workspace, barrier): tensors.out)


def layer_forms(workload, tensors, setting):
    yield "attnkit_layer", lambda: layer(workload, tensors, setting)
    if workload.decode:
        yield "attnkit_layer, K in tiles", lambda: layer(workload, tensors, setting, tiled=True)
