# SPDX-License-Identifier: Apache-2.0
"""Tensors for the tests, and the formula of attention with its gradients, in float64 by PyTorch's backend MATH."""

import contextlib

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

import attnkit.torch

TYPES = (torch.float32, torch.bfloat16, torch.float16)


def drawn(seed, *shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def drawn_qkv(dtype=torch.float32, q_len=5, kv_len=7, kv_heads=4, head_dim=16):
    return (drawn(1, 2, 4, q_len, head_dim, dtype=dtype), drawn(2, 2, kv_heads, kv_len, head_dim, dtype=dtype),
            drawn(3, 2, kv_heads, kv_len, head_dim, dtype=dtype))


def wide(value):
    return value.double() if torch.is_tensor(value) and value.dtype in TYPES else value


def formula(q, k, v, **options):
    with sdpa_kernel(SDPBackend.MATH):
        return sdpa(wide(q), wide(k), wide(v), **{name: wide(value) for name, value in options.items()})


def leaves_for(function, *tensors):
    """Returns a copy of each tensor. The copies require gradients. If `function` is `formula`, the copies and their
    gradients are float64."""
    tensors = [tensor.double() if function is formula else tensor for tensor in tensors]
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]


def with_gradients(function, q, k, v, **options):
    """Returns the result, and the gradients of q, k and v. The gradient of the result differs from column to column."""
    leaves = leaves_for(function, q, k, v)
    out = function(*leaves, **options)
    grad = torch.linspace(-1, 1, out.shape[-1]).to(out.dtype).expand(out.shape)
    return [tensor.detach() for tensor in (out, *torch.autograd.grad(out, leaves, grad))]


@contextlib.contextmanager
def active():
    attnkit.torch.activate()
    try:
        yield
    finally:
        attnkit.torch.restore()


def ran(function):
    """Returns the result of a function, and how many attentions attnkit computed meanwhile."""
    before = attnkit.torch.calls()
    return function(), attnkit.torch.calls() - before
