# SPDX-License-Identifier: Apache-2.0
"""Calls whose keys lie on several ranks: prefill and decoding, in several types, with each option of attention() that
chain_attention takes, except threads. Every transport is tested with these calls. The result of chain_attention must
have the bits of attention() over all keys in one process."""

import attnkit
import ml_dtypes
import numpy as np
from attnkit.distributed import chain_attention, tree_attention

BF16 = ml_dtypes.bfloat16
PER_KEY = ("mask", "bias")


def drawn(seed, *shape, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def seen(seed, *shape):
    return np.random.default_rng(seed).random(shape) < 0.7


SINKS = np.float32([0.5, -1, 2, 0])
SLOPES = np.float32([0.5, 0.25, 0.125, 0.0625])
# name: shape of q, KV heads, keys, value_dim, type of q, type of k and v, options
CASES = {
    "prefill": ((1, 4, 300, 32), 2, 2100, 32, np.float32, np.float32, {"causal": "bottom-right"}),
    "prefill of a prompt": ((1, 4, 1700, 32), 2, 1700, 24, np.float32, np.float32, {"causal": "upper-left"}),
    "decode": ((1, 8, 1, 64), 2, 4321, 64, np.float32, np.float16, {"causal": "bottom-right"}),
    "decode of a batch": ((40, 4, 1, 16), 2, 1600, 16, np.float32, np.float32, {
        "causal": "bottom-right", "kv_lens": np.arange(40) * 41, "return_lse": True}),
    "not causal": ((2, 4, 130, 16), 4, 1537, 40, np.float16, np.float16, {"return_lse": True}),
    "bfloat16": ((1, 4, 70, 32), 1, 1100, 32, BF16, BF16, {"causal": "bottom-right", "return_lse": True}),
    "products of bfloat16": ((1, 4, 70, 32), 1, 1100, 32, BF16, BF16, {
        "causal": "bottom-right", "bf16_products": True, "short_weights": True, "return_lse": True}),
    "masks": ((2, 4, 90, 16), 2, 1600, 16, np.float32, np.float32, {
        "mask": seen(5, 2, 1, 90, 1600), "bias": drawn(6, 1, 4, 1, 1600), "softcap": 5.0, "sinks": SINKS}),
    "a mask for all rows": ((3, 4, 70, 16), 2, 1100, 16, np.float32, np.float32, {
        "mask": seen(7, 1100), "scale": 0.3}),
    "windows": ((2, 4, 200, 16), 2, 2000, 16, np.float32, np.float32, {
        "causal": True, "q_offsets": np.array([1500, 700]), "window": (600, None, 4), "alibi_slopes": SLOPES}),
    "dropout": ((2, 4, 150, 16), 2, 1300, 16, np.float32, np.float32, {
        "causal": "bottom-right", "dropout": 0.25, "seeds": np.array([7, 8], np.uint64), "return_lse": True}),
    "rows that see nothing": ((1, 4, 100, 16), 2, 1100, 16, np.float32, np.float32, {
        "causal": True, "q_offsets": -50, "return_lse": True}),
    "no heads": ((130, 16), None, 1100, 16, np.float32, np.float32, {"return_lse": True}),
    "two dimensions of a batch": ((2, 3, 4, 70, 16), 2, 1100, 16, np.float32, np.float32, {
        "causal": "bottom-right", "kv_lens": np.arange(6) * 210}),
    "no rows": ((1, 4, 0, 16), 2, 1100, 16, np.float32, np.float32, {"return_lse": True}),
}


def make(name):
    """Returns q, k, v over all keys, and the options."""
    shape, kv_heads, keys, value_dim, q_type, kv_type, options = CASES[name]
    heads = (*shape[:-3], kv_heads) if kv_heads else ()
    return (drawn(1, *shape, dtype=q_type), drawn(2, *heads, keys, shape[-1], dtype=kv_type),
            drawn(3, *heads, keys, value_dim, dtype=kv_type), options)


def spread(keys, size, rank):
    """Returns the keys of a rank as a slice. All ranks have the same number of whole chunks, and the last rank also has
    the remaining keys."""
    share = keys // 512 // size * 512
    return slice(rank * share, keys if rank == size - 1 else (rank + 1) * share)


def on_rank(options, keys):
    """Returns the options of a rank that has the keys of the slice `keys`. mask and bias keep only the columns of these
    keys, and all other options are unchanged."""
    return {name: value[..., keys] if name in PER_KEY else value for name, value in options.items()}


def same(left, right):
    left, right = (x if isinstance(x, tuple) else (x,) for x in (left, right))
    return len(left) == len(right) and all(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
                                           for a, b in zip(left, right))


def chain_has_the_bits(group, name, keys=None, **more):
    q, k, v, options = make(name)
    keys = keys or spread(k.shape[-2], group.size, group.rank)
    result = chain_attention(q, k[..., keys, :], v[..., keys, :], group, **on_rank(options, keys), **more)
    return same(result, attnkit.attention(q, k, v, **options))


def tree_error(group, name):
    """Returns the largest difference of tree_attention from attention() in one process, for out and for lse."""
    q, k, v, options = make(name)
    keys = spread(k.shape[-2], group.size, group.rank)
    out, lse = tree_attention(q, k[..., keys, :], v[..., keys, :], group,
                              **{**on_rank(options, keys), "return_lse": True})
    whole, whole_lse = attnkit.attention(q, k, v, **{**options, "return_lse": True})
    off = np.abs(out.astype(np.float64) - whole.astype(np.float64)).max(initial=0)
    with np.errstate(invalid="ignore"):
        apart = np.where(lse == whole_lse, 0, np.abs(lse - whole_lse)).max(initial=0)
    return float(off), float(apart)
