# SPDX-License-Identifier: Apache-2.0
"""Linear maps with llama.cpp, by ggml's product of a matrix by rows of float32. For a matrix of q8_0 or bfloat16, ggml
rounds the rows to the type of the matrix. The result is float32."""

from libraries.forms import Cannot, Form
from libraries.with_llamacpp import F32, KV_TYPES, Graph, backend_of, float32, ggml
from tensors import aligned


def linear(workload, tensors, backend):
    x, y = float32(tensors.x), aligned((workload.rows, workload.out_dim))

    def graph(w):
        made = Graph(backend)
        made.finish(made.apply(ggml.mul_mat, (made.matrix(w, KV_TYPES[workload.type]), made.matrix(x, F32)), (), y))
        return made
    return Form([graph(w) for w in tensors.matrices], lambda: y)


def linear_forms(workload, tensors, setting):
    backend = backend_of(setting)
    yield "product", lambda: linear(workload, tensors, backend)


def layer_forms(workload, tensors, setting):
    raise Cannot("layers are not tried")
