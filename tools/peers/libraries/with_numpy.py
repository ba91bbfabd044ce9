# SPDX-License-Identifier: Apache-2.0
"""NumPy, by matmul, softmax in place, and matmul. Scores and results are written to arrays that exist before the call.
The query heads that share a KV head are rows of one matrix. A batch entry uses only its own keys. Each heads_call()
computes attention of some KV heads. The scores of these heads take at most MOST_SCORES bytes together. A head with more
scores is computed alone. In each call, float16 is widened first, because BLAS lacks float16."""

import numpy as np

from libraries.forms import Cannot, Form
from tensors import additive, aligned

MOST_SCORES = 64 << 20  # bytes


def version():
    try:
        blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{np.__version__}, {blas['name']} {blas['version']}"
    except TypeError:  # before NumPy 1.25, show_config only prints
        return np.__version__


def softmax(scores):
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)


class Attention:
    def __init__(self, workload, tensors):
        w, self.workload, self.tensors = workload, workload, tensors
        self.rows = w.group * w.q_len
        self.heads = max(1, min(w.kv_heads, MOST_SCORES // (4 * self.rows * w.kv_len)))
        self.scores = aligned((self.heads * self.rows * w.kv_len,))
        self.bias = additive(w, np.float32)[0, 0] if w.causal or w.mask else None
        self.scale = np.float32(w.dim ** -0.5)

    def heads_call(self, q, k, v, out):
        """Computes attention of some KV heads. Their scores must fit self.scores. The arrays are [heads, rows, dim]."""
        q, k, v = (a.astype(np.float32, copy=False) for a in (q, k, v))
        shape = (len(q), self.rows, k.shape[1])
        scores = self.scores[:np.prod(shape)].reshape(shape)
        np.matmul(q * self.scale, k.swapaxes(1, 2), out=scores)
        if self.bias is not None:
            grouped = scores.reshape(len(q), self.workload.group, *self.bias.shape)
            grouped += self.bias
        softmax(scores)
        np.matmul(scores, v, out=out)

    def call(self, k, v):
        w = self.workload
        shape = (w.batch, w.kv_heads, self.rows, w.dim)
        q, out = self.tensors.q.reshape(shape), self.tensors.out.reshape(shape)
        for b, n in enumerate(w.kv_lens):
            for h in range(0, w.kv_heads, self.heads):
                some = slice(h, h + self.heads)
                self.heads_call(q[b, some], k[b, some, :n], v[b, some, :n], out[b, some])


def build(workload, tensors):
    attention = Attention(workload, tensors)
    calls = [lambda k=k, v=v: attention.call(k, v) for k, v in tensors.kv]
    return Form(calls, lambda: tensors.out)


def forms(workload, tensors, _):
    if workload.type in ("bfloat16", "q8_0"):
        raise Cannot(f"NumPy has no {workload.type}")
    yield "matmul, softmax, matmul", lambda: build(workload, tensors)
