# SPDX-License-Identifier: Apache-2.0
"""Computes the multi-head attention layer in float64, step by step, and the bound of attnkit's error for each number.
Below, u is 2^-24, |.| is taken element by element, and e is the error bound of a step's input:

  y = x Wᵀ + b     e |W|ᵀ + (in + 2) u ((|x| + e) |W|ᵀ + |b|): `in` roundings of the sum and 1 for
                   the bias; 1 more covers products of errors
  rotation of x0   e0 |cos| + e1 |sin|, and 4 u ((|x0| + e0) |cos| + (|x1| + e1) |sin|): 1 rounding
                   for the table, 2 for product and sum, 1 more for products of errors; the angles
                   add 2^-40 (|x0| + |x1|); x1 in the same way
  scores           the bound of reference.py for |q| + e_q and |k| + e_k, and
                   P_j = scale sum_d e_q |k| + (|q| + e_q) e_k. reference.py counts errors of a
                   score in units of u, so its eta_j grows by P_j / u
  values           the bound of reference.py for |v| + e_v, and sum w_j e_v
  mean             the mean m of the bounds, and (heads + 2) u (mean of the weights + m)

No result that is rounded in the order of kernels/README.md can be outside this bound. But the bound assumes that all
errors of a sum have the same sign, in every step. So the bound is much larger than real errors, which layer_compare.py
measures."""

from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import torch

import reference
from layer_call import BLOCK, HALF
from reference import UNIT

Known = namedtuple("Known", "value error")
Expected = namedtuple("Expected", "out weights mean size")  # all are Known, except size


def doubles(array):
    """Converts an array of any type, including Q8_0, to float64. The values are exact."""
    if array.dtype == BLOCK:
        values = array["scale"].astype(np.float64)[..., None] * array["elements"]
        return torch.from_numpy(values.reshape(len(array), -1))
    return reference.doubles(array)


def exact(array):
    value = doubles(array)
    return Known(value, torch.zeros_like(value))


def linear(x, w, b):
    """Computes a linear map and its error bound. w and b are arrays; b may be None."""
    w = doubles(w)
    b = torch.zeros(len(w), dtype=torch.float64) if b is None else doubles(b)
    size = (x.value.abs() + x.error) @ w.abs().T + b.abs()
    return Known(x.value @ w.T + b, x.error @ w.abs().T + (w.shape[1] + 2) * UNIT * size)


def heads_of(x, heads):
    """Reshapes [batch, rows, heads * dim] to [batch, heads, rows, dim]."""
    return Known(*(part.unflatten(2, (heads, -1)).transpose(1, 2) for part in x))


def pairs_of(rope_dim, rope):
    """Returns the indices of the first and the second element of each pair."""
    if rope == HALF:
        return torch.arange(rope_dim // 2), torch.arange(rope_dim // 2, rope_dim)
    return torch.arange(0, rope_dim, 2), torch.arange(1, rope_dim, 2)


def rotate(x, rope, positions):
    """Rotates x [batch, heads, rows, dim] by the rotation `rope`. If `rope` is None, returns x. positions holds the
    position of row 0 of each batch entry."""
    if rope is None:
        return x
    rope_dim, base = rope["dim"] or x.value.shape[3], rope["base"]
    frequencies = base ** (-2 * torch.arange(rope_dim // 2, dtype=torch.float64) / rope_dim)
    rows = torch.from_numpy(np.asarray(positions))[:, None] + torch.arange(x.value.shape[2])
    angles = rows[:, None, :, None] * frequencies
    cos, sin = torch.cos(angles), torch.sin(angles)
    first, second = pairs_of(rope_dim, rope["kind"])
    (x0, x1), (e0, e1) = ((part[..., first], part[..., second]) for part in x)
    value, error = x.value.clone(), x.error.clone()
    value[..., first], value[..., second] = x0 * cos - x1 * sin, x1 * cos + x0 * sin
    cos, sin, turned = cos.abs(), sin.abs(), 2.0 ** -40 * (x0.abs() + x1.abs())
    s0, s1 = x0.abs() + e0, x1.abs() + e1
    error[..., first] = e0 * cos + e1 * sin + 4 * UNIT * (s0 * cos + s1 * sin) + turned
    error[..., second] = e1 * cos + e0 * sin + 4 * UNIT * (s1 * cos + s0 * sin) + turned
    return Known(value, error)


def behind(cached, old, new):
    """Returns the keys or values of the cache `old` [batch, heads, room, dim] after `new` was appended. In batch entry
    b, the rows of `new` begin at key cached[b]. The error of these rows includes the rounding to the type of the
    cache."""
    relative, least = reference.ROUNDING[str(old.dtype)]
    value, error = doubles(old), torch.zeros(old.shape, dtype=torch.float64)
    rows = new.value.shape[2]
    for b, start in enumerate(cached):
        size = new.value[b].abs() + new.error[b]
        value[b, :, start:start + rows] = new.value[b]
        error[b, :, start:start + rows] = new.error[b] + relative * size + least
    return Known(value, error)


def repeated(x, group):
    return Known(*(part.repeat_interleave(group, dim=1) for part in x))


def attention(q, k, v, seen, bias):
    """Computes attention. k and v have as many heads as q. seen says which keys a row sees, and bias holds the numbers
    that are added to the scores."""
    dim, keys = q.value.shape[3], k.value.shape[2]
    scale = dim ** -0.5
    q_size, k_size = q.value.abs() + q.error, k.value.abs() + k.error
    moved = scale * (q.error @ k.value.abs().mT + q_size @ k.error.mT)
    size = scale * (q_size @ k_size.mT) + bias.abs() + moved / ((dim + 6) * UNIT)
    x = torch.where(seen, scale * (q.value @ k.value.mT) + bias, -torch.inf)
    weights, _, _ = reference.softmax(x)
    out, moved_v = weights @ v.value, weights @ v.error
    case = SimpleNamespace(head_dim=dim, kv_len=keys, out_type="float32", softcap=0.0)
    of_out, _, of_weights = reference.bounds(case, out.abs() + moved_v, x, size,
                                             v.value.abs() + v.error)
    return Known(out, of_out + moved_v), Known(weights, of_weights)


def mean_of(weights):
    heads = weights.value.shape[1]
    value, error = weights.value.mean(dim=1), weights.error.mean(dim=1)
    return Known(value, error + (heads + 2) * UNIT * (value + error))


def expected(case):
    """Computes the expected results of a case of layers.py. size is the sum of the magnitudes that the output
    projection adds: |result of attention| |W_O|ᵀ + |b_o|. layer_compare.py divides errors by u times size."""
    weights = case.weights
    q = heads_of(linear(exact(case.x), weights["w_q"], weights.get("b_q")), case.q_heads)
    q = rotate(q, case.rope, case.positions)
    k = heads_of(linear(exact(case.key), weights["w_k"], weights.get("b_k")), case.kv_heads)
    k = rotate(k, case.rope, case.positions)
    v = heads_of(linear(exact(case.value), weights["w_v"], weights.get("b_v")), case.kv_heads)
    if case.cached is not None:
        k, v = behind(case.cached, case.cache_k, k), behind(case.cached, case.cache_v, v)
    group = case.q_heads // case.kv_heads
    result, shares = attention(q, repeated(k, group), repeated(v, group), torch.from_numpy(case.seen),
                               torch.from_numpy(case.bias))
    result = Known(*(part.transpose(1, 2).flatten(2) for part in result))
    out = linear(result, weights["w_o"], weights.get("b_o"))
    relative, least = reference.ROUNDING[case.out_type]
    rounded = Known(out.value, out.error + relative * (out.value.abs() + out.error) + least)
    size = result.value.abs() @ doubles(weights["w_o"]).abs().T
    if "b_o" in weights:
        size = size + doubles(weights["b_o"]).abs()
    return Expected(rounded, shares, mean_of(shares), size)
