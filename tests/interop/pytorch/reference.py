# SPDX-License-Identifier: Apache-2.0
"""Computes PyTorch's result of a case in float64, and the bound of attnkit's error.

The bound follows the order of roundings in kernels/README.md, with u = 2^-24 for each rounding. x_j is the score that
enters the softmax for key j. In units of u, the errors are:

  x_j       (D + 6) S_j, where D is head_dim, and S_j is the sum of the magnitudes of x_j's terms. The dot product has D
            roundings in its sum. Its factor, and the product with the factor, have at most 6 roundings. The other
            terms of x_j, bias and slope, have at most 5 roundings. With a softcap, the error is (D + 10) S_j: two
            factors, two products and tanh, which is off by 3 ulp
  weight    the error of x_j is a relative error of the weight. The softmax subtracts a maximum from x_j / ln 2. This
            maximum is an integer below max x / ln 2 + 1, so the rounding of the difference adds max x - x_j + ln 2.
            exp2 is off by 1 ulp, which is 2 units. Together:
                                                             eta_j = (D + 6) S_j + max x - x_j + 3
  sums      h roundings: 128 in a block, 4 to add the blocks of a chunk, 1 for each chunk, 1 for a sink
  quotient  1

With w = softmax(x), A = sum w_j |v_j| and H = sum w_j eta_j + h, an element o of out has

    |error| <= u (sum w_j eta_j |v_j| + h A + |o| (H + 1)),      u w_j (eta_j + H + 1) for a weight,

Let l be the sum of the weights before the division, and n the number of keys. For lse, log is off by 1 ulp, and there
are two more roundings:

    |error| <= u (H + 4 |log l| + 2 |lse| + 1),  |log l| <= log(2 n),                 for lse.

A factor of exp(2 u (max eta + h)) covers products of errors. A last term covers losses by subnormal numbers, and
weights that count as 0. A weight that counts as 0 is at most 2^-100.5, and some other weight is over 1/2. PyTorch's own
errors in float64 are negligible. A 16-bit result is rounded once more."""

from collections import namedtuple

import numpy as np
import torch
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention as sdpa

from tensors import widened

UNIT = 2.0 ** -24
TINY = 2.0 ** -147
LEFT_OUT = 2.0 ** -99
# Half a unit in the last place of a 16-bit result: relative to a normal result, and absolute for a subnormal result. A
# float32 result is not rounded once more.
ROUNDING = {"float32": (0.0, 0.0), "float16": (2.0 ** -11, 2.0 ** -25),
            "bfloat16": (2.0 ** -8, 2.0 ** -134)}

Expected = namedtuple("Expected", "out lse weights out_bound lse_bound weights_bound")


def doubles(array):
    return torch.from_numpy(widened(array).astype(np.float64))


def dense_mask(case):
    return torch.from_numpy(np.where(case.seen, case.bias, -np.inf))


def with_sinks(case, k, v, mask):
    """Adds sinks. A sink is a key of zeros with a value of zeros. Its score comes only from the mask."""
    column = torch.from_numpy(case.sinks.astype(np.float64))[:, None, None].expand(*mask.shape[:3], 1)
    return (torch.nn.functional.pad(k, (0, 0, 0, 1)), torch.nn.functional.pad(v, (0, 0, 0, 1)),
            torch.cat((mask, column), dim=3))


def out_of_sdpa(case, q, k, v):
    options = {name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
               for name, value in (case.torch or {}).items()}
    if case.torch is None:
        mask = dense_mask(case)
        if case.sinks is not None:
            k, v, mask = with_sinks(case, k, v, mask)
        options["attn_mask"] = mask
    return sdpa(q, k, v, scale=case.scale, enable_gqa=case.q_heads > case.kv_heads, **options)


def out_of_flex(case, q, k, v):
    seen, bias = torch.from_numpy(case.seen), torch.from_numpy(case.bias)

    def score(x, b, h, i, j):
        capped = case.softcap * torch.tanh(x / case.softcap) + bias[b, h, i, j]
        return torch.where(seen[b, h, i, j], capped, -torch.inf)
    return flex_attention(q, k, v, score_mod=score, scale=case.scale,
                          enable_gqa=case.q_heads > case.kv_heads)


def scores(case, q, k):
    """Returns the scores x, with -infinity for masked keys, and the sums S of the magnitudes of their terms."""
    group = case.q_heads // case.kv_heads
    scale = case.head_dim ** -0.5 if case.scale is None else case.scale
    k = k.repeat_interleave(group, dim=1)
    x, size = scale * (q @ k.mT), abs(scale) * (q.abs() @ k.abs().mT)
    if case.softcap:
        x = case.softcap * torch.tanh(x / case.softcap)
    x, size = x + torch.from_numpy(case.bias), size + torch.from_numpy(case.size)
    return torch.where(torch.from_numpy(case.seen), x, -torch.inf), size


def softmax(x):
    """Returns the softmax, the logarithm of its denominator, and which rows see no key. The weights of these rows are
    0."""
    lse = torch.logsumexp(x, dim=-1, keepdim=True)
    empty = lse == -torch.inf
    return torch.where(empty, 0.0, torch.exp(x - torch.where(empty, 0.0, lse))), lse, empty


def bounds(case, out, x, size, v):
    """Returns the bounds of out, lse and weights. `size` has the sums S of the scores x, and `v` has |v|."""
    weights, lse, empty = softmax(x)
    unseen, keys = x == -torch.inf, x.shape[-1]
    roundings = case.head_dim + (10 if case.softcap else 6)
    eta = torch.where(unseen, 0.0, roundings * size + x.amax(dim=-1, keepdim=True) - x + 3)
    h = 128 + 4 + -(-case.kv_len // 512) + 1
    total = (weights * eta).sum(dim=-1, keepdim=True) + h
    unit = torch.exp(2 * UNIT * (eta.amax(dim=-1, keepdim=True) + h)) * UNIT
    lost = (keys + case.head_dim + 8) * TINY + keys * LEFT_OUT
    of_out = unit * ((weights * eta) @ v + h * (weights @ v) + out.abs() * (total + 1)) + \
        lost * (1 + v.amax())
    relative, least = ROUNDING[case.out_type]
    of_lse = unit * (total + 4 * np.log(2 * keys) + 2 * torch.where(empty, 0.0, lse).abs() + 1) + lost
    return (of_out + relative * (out.abs() + of_out) + least, of_lse,
            unit * weights * (eta + total + 1) + lost)


def expected(case):
    q, k, v = doubles(case.q), doubles(case.k), doubles(case.v)
    out = (out_of_flex if case.kind == "flex" else out_of_sdpa)(case, q, k, v)
    x, size = scores(case, q, k)
    v = v.abs().repeat_interleave(case.q_heads // case.kv_heads, dim=1)
    if case.sinks is not None:
        _, _, size = with_sinks(case, k, k, size)
        size[..., -1] = size[..., -1].abs()
        _, v, x = with_sinks(case, k, v, x)
    out_bound, lse_bound, weights_bound = bounds(case, out, x, size, v)
    weights, lse, _ = softmax(x)
    keys = slice(case.kv_len)  # the keys without the sink
    return Expected(*(value.numpy() for value in (
        out, lse[..., 0], weights[..., keys], out_bound, lse_bound[..., 0], weights_bound[..., keys])))
