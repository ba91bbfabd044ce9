# SPDX-License-Identifier: Apache-2.0
"""Linear maps and layers with PyTorch. A linear map is nn.Linear, or one of two operators that torch.compile uses for
nn.Linear in a frozen model, with reordered weights. A layer is a linear map for q, k and v,
scaled_dot_product_attention, and a linear map for the output. For causal prompts whose q is as wide as x, there is also
a form of a layer with nn.MultiheadAttention. nn.MultiheadAttention has no groups of query heads. Therefore the rows of
the matrices for K and V are repeated for each query head of a group."""

import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from libraries.forms import Cannot, Form
from libraries.with_torch import Last, tensor


def module(w, rows):
    linear = torch.nn.Linear(w.shape[1], w.shape[0], bias=False, device="meta")
    linear.weight = torch.nn.Parameter(w, requires_grad=False)
    return linear.eval()


def with_mkldnn(w, rows):
    reordered = torch.ops.mkldnn._reorder_linear_weight(w, rows)
    return lambda x: torch.ops.mkldnn._linear_pointwise(x, reordered, None, "none", [], "")


def with_mkl(w, rows):
    reordered = torch.ops.mkl._mkl_reorder_linear_weight(w, rows)
    return lambda x: torch.ops.mkl._mkl_linear(x, reordered, w, None, rows)


WAYS = {"Linear": module, "mkldnn::_linear_pointwise, weights reordered": with_mkldnn,
        "mkl::_mkl_linear, weights reordered": with_mkl}


def prepare(setting):
    torch.set_num_threads(setting.threads)
    torch.inference_mode().__enter__()  # for all calls of this process


def caller(call, last, *arguments):
    def keep():
        last.out = call(*arguments)
    return keep


def linear(tensors, way):
    x, last = tensor(tensors.x), Last(tensors.out.shape)
    maps = [way(tensor(w), len(x)) for w in tensors.matrices]
    return Form([caller(one, last, x) for one in maps], last.array)


def linear_forms(workload, tensors, setting):
    if workload.type == "q8_0":
        raise Cannot("its linear maps have no q8_0")
    prepare(setting)
    for name, way in WAYS.items():
        yield name, lambda way=way: linear(tensors, way)


class Layer:
    def __init__(self, workload, weights, way):
        self.workload, rows = workload, workload.attention.q_len
        self.qkv = way(torch.cat([tensor(w) for w in (weights.q, weights.k, weights.v)]), rows)
        self.o = way(tensor(weights.o), rows)
        self.cache = weights.cache and tuple(map(tensor, weights.cache))

    def heads(self, rows):
        """Returns [rows, heads * dim] as [1, heads, rows, dim]."""
        return rows.view(len(rows), -1, self.workload.attention.dim).transpose(0, 1)[None]

    def attend(self, q, k, v):
        a = self.workload.attention
        if not self.cache:
            return sdpa(q, k, v, is_causal=a.causal, enable_gqa=a.group > 1)
        for cached, new in zip(self.cache, (k, v)):
            cached[:, :, -a.q_len:] = new
        # The query heads of a group become rows of one head. With enable_gqa, the call would take twice as long.
        return sdpa(q.reshape(1, a.kv_heads, a.group, a.dim), *self.cache).view_as(q)

    def __call__(self, x):
        w = self.workload
        q, k, v = self.qkv(x).split([w.q_dim, w.kv_dim, w.kv_dim], dim=1)
        attended = self.attend(*map(self.heads, (q, k, v)))
        return self.o(attended[0].transpose(0, 1).reshape(len(x), w.q_dim))


def layer(workload, tensors, way):
    x, last = tensor(tensors.x), Last(tensors.out.shape)
    layers = [Layer(workload, weights, way) for weights in tensors.layers]
    return Form([caller(one, last, x) for one in layers], last.array)


def repeated(w, attention):
    """Returns the matrix w for K or V, with the rows of each KV head repeated for each query head of the group."""
    return tensor(w).view(attention.kv_heads, attention.dim, -1).repeat_interleave(
        attention.group, dim=0).flatten(0, 1)


def multi_head(workload, tensors):
    a = workload.attention
    made = []
    for weights in tensors.layers:
        one = torch.nn.MultiheadAttention(workload.d_model, a.q_heads, bias=False, batch_first=True)
        one = one.requires_grad_(False).eval()
        one.in_proj_weight.copy_(torch.cat([tensor(weights.q), repeated(weights.k, a),
                                            repeated(weights.v, a)]))
        one.out_proj.weight.copy_(tensor(weights.o))
        made.append(one)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(a.q_len)
    x, last = tensor(tensors.x)[None], Last(tensors.out.shape)

    def attend(one):
        return one(x, x, x, need_weights=False, attn_mask=mask, is_causal=True)[0]
    return Form([caller(attend, last, one) for one in made], last.array)


def layer_forms(workload, tensors, setting):
    prepare(setting)
    for name, way in WAYS.items():
        yield name + ", sdpa", lambda way=way: layer(workload, tensors, way)
    if not workload.decode and workload.attention.causal and workload.q_dim == workload.d_model:
        yield "MultiheadAttention, K and V repeated", lambda: multi_head(workload, tensors)
