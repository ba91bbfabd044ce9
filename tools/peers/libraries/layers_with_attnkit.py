# SPDX-License-Identifier: Apache-2.0
"""Linear maps and layers with attnkit, through ctypes as in with_attnkit.py. Matrices are packed before anything is
timed. A layer with a cache has two forms: K is stored in rows or in tiles."""

import ctypes

import numpy as np

from attnkit_structs import (BOTTOM_RIGHT, CAUSAL, MESSAGE_SIZE, TILED, AttentionArgs, LayerArgs,
                             LayerWeights, LinearArgs, PackArgs, new, tensor, type_of)
from libraries.forms import Form
from libraries.with_attnkit import FLAGS, check, in_tiles, load, make_calls, make_shares
from tensors import aligned

BARRIER_BYTES = 64  # at least sizeof(pthread_barrier_t)


def asked(function, args):
    """Calls a function of the library that computes the size of packed weights. Returns this size in bytes."""
    size, message = ctypes.c_size_t(), ctypes.create_string_buffer(MESSAGE_SIZE)
    check(function(ctypes.byref(args), ctypes.byref(size), message), message)
    return size.value


def done(function, *arguments):
    message = ctypes.create_string_buffer(MESSAGE_SIZE)
    check(function(*arguments, None, message), message)


# ------------------------------------------------------------------------------- linear maps


def packed_matrix(library, workload, w):
    args = new(PackArgs, out_dim=workload.out_dim, in_dim=workload.in_dim, w=tensor(w), packed_type=type_of(w))
    packed = aligned((asked(library.attnkit_packed_size, args),), np.uint8)
    args.packed, args.packed_size = packed.ctypes.data, packed.nbytes
    done(library.attnkit_pack, ctypes.byref(args))
    return packed


def linear(workload, tensors, setting):
    library = load(setting.library)
    matrices = [packed_matrix(library, workload, w) for w in tensors.matrices]
    flags, type = FLAGS[setting.mode], type_of(tensors.matrices[0])
    args = [new(LinearArgs, rows=workload.rows, in_dim=workload.in_dim, out_dim=workload.out_dim,
                x=tensors.x, w=tensor(w, type=type), y=tensors.out, flags=flags) for w in matrices]
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


class Call:
    """The args of a layer, and the arrays to which they point."""

    def __init__(self, library, workload, tensors, weights, tiled):
        a = workload.attention
        self.packed, self.cached, cache = packed_layer(library, workload, weights), None, {}
        if weights.cache:
            self.cached = np.array([a.kv_len - a.q_len], dtype=np.int64)
            k, self.v = weights.cache
            self.k = in_tiles(k) if tiled else k
            cache = {"k": tensor(self.k, layout=TILED * tiled), "v": self.v, "kv_len": a.kv_len}
        attention = new(AttentionArgs, flags=CAUSAL * a.causal, align=BOTTOM_RIGHT * a.causal, **cache)
        self.args = new(LayerArgs, packed=self.packed, packed_size=self.packed.nbytes, batch=1,
                        q_len=a.q_len, x=tensors.x, out=tensors.out,
                        attention=ctypes.pointer(attention), cached=self.cached)


def barrier_of(threads):
    """Makes a barrier of the C library. Returns the function that waits at the barrier, and the barrier. A lock of
    Python would take a noticeable share of the time of a decode step."""
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
