# SPDX-License-Identifier: Apache-2.0
"""The tensors and float64 oracles of linear maps and layers, as tensors.py has them for attention."""

from collections import namedtuple

import numpy as np

from tensors import (SAMPLE, Checked, Oracle, Output, Tensors, aligned, aligned_copy, generator,
                     head_oracle, rounded, up_to, widened)

# Matrices are [outputs, inputs]. `cache` is None, or the pair of K and V of a cache, as [1, heads, keys, dim].
Weights = namedtuple("Weights", "q k v o cache")


def matrix(random, out_dim, in_dim):
    """Returns a random matrix whose outputs have about the magnitude of its inputs."""
    return random.standard_normal((out_dim, in_dim), dtype=np.float32) * np.float32(in_dim ** -0.5)


def checked_rows(count):
    return np.unique(np.linspace(0, count - 1, SAMPLE).astype(int))


class LinearTensors(Output):
    """x, out, and `copies` copies of the matrix."""

    def __init__(self, workload, copies=1):
        random = generator(workload)
        x = random.standard_normal((workload.rows, workload.in_dim), dtype=np.float32)
        self.x = aligned_copy(rounded(x, workload.x_type))
        w = rounded(matrix(random, workload.out_dim, workload.in_dim), workload.type)
        self.matrices = [aligned_copy(w) for _ in range(copies)]
        self.out = aligned((workload.rows, workload.out_dim), self.x.dtype)


class LinearOracle(Checked):
    def __init__(self, workload):
        tensors = LinearTensors(workload)
        self.rows = checked_rows(workload.rows)
        x, w = (widened(array).astype(np.float64) for array in (tensors.x[self.rows], tensors.matrices[0]))
        self.values, self.tolerance = x @ w.T, workload.tolerance
        self.largest = float(np.abs(self.values).max())


class LayerTensors(Output):
    """x, out, and `copies` copies of the layer's weights and cache. A layer with a cache has one row of x. The key and
    the value of this row take the last place of the cache."""

    def __init__(self, workload, copies=1):
        random, attention, d_model = generator(workload), workload.attention, workload.d_model
        rows = attention.q_len
        self.x = aligned_copy(random.standard_normal((rows, d_model), dtype=np.float32))
        matrices = [matrix(random, *dims) for dims in (
            (workload.q_dim, d_model), (workload.kv_dim, d_model), (workload.kv_dim, d_model),
            (d_model, workload.q_dim))]
        cache = [random.standard_normal(shape, dtype=np.float32)
                 for shape in attention.shapes[1:]] if rows < attention.kv_len else None
        self.layers = [Weights(*map(aligned_copy, matrices), cache and tuple(map(aligned_copy, cache)))
                       for _ in range(copies)]
        self.out = aligned((rows, d_model))


class LayerOracle(Checked):
    def __init__(self, workload):
        tensors, attention = LayerTensors(workload), workload.attention
        (w,), x = tensors.layers, tensors.x.astype(np.float64)
        before = attention.kv_len - attention.q_len
        self.rows = checked_rows(attention.q_len)
        q = heads(x[self.rows] @ w.q.T, attention.dim)
        k, v = heads(x @ w.k.T, attention.dim), heads(x @ w.v.T, attention.dim)
        if before:
            k, v = (np.concatenate([cached[0, :, :before], new], axis=1)
                    for cached, new in zip(w.cache, (k, v)))
        sees = up_to(before + self.rows, attention.kv_len)
        attended = [head_oracle(q[h], k[h // attention.group], v[h // attention.group], sees)
                    for h in range(attention.q_heads)]
        self.values = np.concatenate(attended, axis=1) @ w.o.T.astype(np.float64)
        self.tolerance = workload.tolerance
        self.largest = float(np.abs(self.values).max())


def heads(rows, dim):
    """Returns [rows, heads * dim] as [heads, rows, dim]."""
    return rows.reshape(len(rows), -1, dim).swapaxes(0, 1)


def tensors_of(workload, copies):
    kinds = {"attention": Tensors, "linear": LinearTensors, "layer": LayerTensors}
    return kinds[workload.kind](workload, copies)


def oracle_of(workload):
    return {"attention": Oracle, "linear": LinearOracle, "layer": LayerOracle}[workload.kind](workload)
