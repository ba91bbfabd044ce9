# SPDX-License-Identifier: Apache-2.0
"""Linear maps and layers with NumPy, as matmuls into preallocated arrays. The matrices are used as they are, or are
transposed in memory beforehand. Attention is computed as in with_numpy.py."""

from types import SimpleNamespace

import numpy as np

from layers import heads
from libraries.forms import Cannot, Form
from libraries.with_numpy import Attention
from tensors import aligned, aligned_copy


def transposed(w):
    """Returns w transposed in memory, so that the map is x @ transposed(w)."""
    return aligned_copy(w.T)


def as_it_is(w):
    return w.T


WAYS = {"matmul": as_it_is, "matmul, matrices transposed in memory": transposed}


def linear(tensors, way):
    matrices = [way(w) for w in tensors.matrices]
    calls = [lambda w=w: np.matmul(tensors.x, w, out=tensors.out) for w in matrices]
    return Form(calls, lambda: tensors.out)


def linear_forms(workload, tensors, _):
    if workload.type != "float32":
        raise Cannot(f"NumPy has no {workload.type}")
    for name, way in WAYS.items():
        yield name, lambda way=way: linear(tensors, way)


class Layer:
    def __init__(self, workload, tensors, weights, way):
        a, self.tensors, self.dim = workload.attention, tensors, workload.attention.dim
        self.qkv = way(np.concatenate([weights.q, weights.k, weights.v]))
        self.o, self.ends = way(weights.o), (workload.q_dim, workload.q_dim + workload.kv_dim)
        self.k, self.v = weights.cache or (aligned(shape) for shape in a.shapes[1:])
        self.new = slice(a.kv_len - a.q_len, a.kv_len)
        self.q, self.attended = aligned(a.shapes[0]), aligned(a.shapes[0])
        self.attention = Attention(a, SimpleNamespace(q=self.q, out=self.attended))
        self.projected = aligned((a.q_len, workload.q_dim + 2 * workload.kv_dim))
        self.rows = aligned((a.q_len, workload.q_dim))

    def call(self):
        np.matmul(self.tensors.x, self.qkv, out=self.projected)
        q, k, v = (heads(part, self.dim) for part in np.split(self.projected, self.ends, axis=1))
        self.q[0], self.k[0, :, self.new], self.v[0, :, self.new] = q, k, v
        self.attention.call(self.k, self.v)
        heads(self.rows, self.dim)[...] = self.attended[0]
        np.matmul(self.rows, self.o, out=self.tensors.out)


def layer(workload, tensors, way):
    layers = [Layer(workload, tensors, weights, way) for weights in tensors.layers]
    return Form([one.call for one in layers], lambda: tensors.out)


def layer_forms(workload, tensors, _):
    for name, way in WAYS.items():
        yield name, lambda way=way: layer(workload, tensors, way)
