# SPDX-License-Identifier: Apache-2.0
"""PyTorch, by scaled_dot_product_attention. Groups of query heads are computed with enable_gqa. If the call is not
causal, a second form folds the groups into query rows. For padding, one form has a mask that all query rows share, and
another form has a call for each sequence. Strided tensors are used as they are. A dense mask has the type of q."""

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from libraries.forms import Cannot, Form, fold, mask_of


def version():
    mkl = "with MKL" if torch.backends.mkl.is_available() else "without MKL"
    return f"{torch.__version__}, {mkl}, {torch.backends.cpu.get_cpu_capability()}"


def tensor(array):
    """Returns a tensor that shares the array's memory."""
    there = torch.from_numpy(array)
    return there.view(torch.bfloat16) if array.dtype == np.uint16 else there


class Last:
    """Keeps the return value of the last call."""

    def __init__(self, shape):
        self.shape, self.out = shape, None

    def array(self):
        out = self.out.reshape(self.shape)
        return (out.view(torch.uint16) if out.dtype == torch.bfloat16 else out).numpy()


def build(workload, tensors, folded=False, **options):
    q = tensor(fold(tensors.q, workload) if folded else tensors.q)
    last = Last(tensors.q.shape)

    def caller(k, v):
        def call():
            last.out = sdpa(q, k, v, **options)
        return call
    return Form([caller(tensor(k), tensor(v)) for k, v in tensors.kv], last.array)


def mask(workload):
    """Returns a mask [batch, 1, 1, kv_len] that is true where a key exists."""
    keys = torch.arange(workload.kv_len)
    return (keys < torch.tensor(workload.kv_lens)[:, None])[:, None, None, :]


def masked(workload, tensors, folded=False):
    """Returns a dict with the option for the dense mask, or an empty dict if there is no dense mask."""
    if not workload.mask:
        return {}
    return {"attn_mask": tensor(mask_of(workload, tensors.q.dtype, folded))}


def each_sequence(workload, tensors):
    q, out = tensor(tensors.q), tensor(tensors.out)

    def caller(k, v):
        parts = [(q[b:b + 1], k[b:b + 1, :, :n], v[b:b + 1, :, :n], out[b:b + 1])
                 for b, n in enumerate(workload.kv_lens)]

        def call():
            for part_q, part_k, part_v, part_out in parts:
                part_out.copy_(sdpa(part_q, part_k, part_v))
        return call
    return Form([caller(tensor(k), tensor(v)) for k, v in tensors.kv], lambda: tensors.out)


def forms(workload, tensors, setting):
    torch.set_num_threads(setting.threads)
    torch.set_grad_enabled(False)
    if workload.type == "q8_0":
        raise Cannot("its attention has no q8_0")
    if workload.padded:
        yield "sdpa, mask", lambda: build(workload, tensors, attn_mask=mask(workload))
        yield "sdpa, a call for each sequence", lambda: each_sequence(workload, tensors)
        return
    options = {"is_causal": workload.causal, "enable_gqa": workload.group > 1, **masked(workload, tensors)}
    name = "sdpa, enable_gqa" if workload.group > 1 else "sdpa"
    yield name, lambda: build(workload, tensors, **options)
    if workload.can_fold:
        yield ("sdpa, group folded into query rows",
               lambda: build(workload, tensors, folded=True, **masked(workload, tensors, folded=True)))
