# SPDX-License-Identifier: Apache-2.0
"""The references of the package's tests: attention in float64 by NumPy, and attention by the C library of the build,
which is called by ctypes."""

import ctypes
import os
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools" / "peers"))

from attnkit_structs import MESSAGE_SIZE, AttentionArgs, Exec, new  # noqa: E402

LIBRARY = ctypes.CDLL(os.environ["ATTNKIT_TEST_LIBRARY"])


def drawn(seed, *shape, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def repeated(x, heads):
    return np.repeat(x.astype(np.float64), heads // x.shape[-3], axis=-3)


def oracle(q, k, v, seen=None, bias=0.0, scale=None, softcap=None, sinks=None):
    """Returns out and lse in float64. `seen` (booleans) and `bias` broadcast to the shape of the scores."""
    heads = q.shape[-3]
    q, k, v = q.astype(np.float64), repeated(k, heads), repeated(v, heads)
    x = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        x = softcap * np.tanh(x / softcap)
    x = x + bias
    if seen is not None:
        x = np.where(seen, x, -np.inf)
    if sinks is not None:
        column = np.broadcast_to(sinks.astype(np.float64)[:, None, None], (*x.shape[:-1], 1))
        x, v = np.concatenate([x, column], -1), np.concatenate([v, np.zeros_like(v[..., :1, :])], -2)
    top = np.where(np.isfinite(x.max(-1, initial=-np.inf, keepdims=True)),
                   x.max(-1, initial=-np.inf, keepdims=True), 0)
    weights = np.exp(x - top)
    total = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + top)[..., 0]
    return (weights / np.where(total == 0, 1, total)) @ v, lse


def by_ctypes(args, isa=None):
    """Runs attnkit_attention on one thread. The call writes to the output arrays that args point to."""
    exec = new(Exec, isa=isa)
    message = ctypes.create_string_buffer(MESSAGE_SIZE)
    size = ctypes.c_size_t()
    status = LIBRARY.attnkit_attention_workspace(ctypes.byref(args), ctypes.byref(exec), ctypes.byref(size), message)
    workspace = np.empty(size.value, np.uint8)
    exec.workspace, exec.workspace_size = workspace.ctypes.data, size.value
    status = status or LIBRARY.attnkit_attention(ctypes.byref(args), ctypes.byref(exec), message)
    if status:
        raise ValueError(message.value.decode())


def library_attention(q, k, v, **fields):
    """Returns (out, lse) for dense arrays. `fields` sets fields of attnkit_attention_args and its groups by their
    names."""
    q, k, v = (np.ascontiguousarray(x) for x in (q, k, v))
    batch, q_heads, q_len, head_dim = q.shape
    out = np.empty((batch, q_heads, q_len, v.shape[3]), q.dtype)
    lse = np.empty((batch, q_heads, q_len), np.float32)
    by_ctypes(new(AttentionArgs, batch=batch, q_heads=q_heads, kv_heads=k.shape[1], q_len=q_len, kv_len=k.shape[2],
                  head_dim=head_dim, value_dim=v.shape[3], q=q, k=k, v=v, out=out, lse=lse, **fields))
    return out, lse
