# SPDX-License-Identifier: Apache-2.0
"""The whole attention layer, with weights in the form in which models save them."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

import numpy

from . import _core
from ._cache import KVCache
from ._types import MATRICES, aligned_bytes, number_of

# The names of the matrices and biases of q, k, v and the output: in Llama, in torch.nn.MultiheadAttention, and in
# attnkit/layer.h.
NAMES = {
    "w_q": ["q_proj.weight", "q_proj_weight", "w_q"], "b_q": ["q_proj.bias", "b_q"],
    "w_k": ["k_proj.weight", "k_proj_weight", "w_k"], "b_k": ["k_proj.bias", "b_k"],
    "w_v": ["v_proj.weight", "v_proj_weight", "w_v"], "b_v": ["v_proj.bias", "b_v"],
    "w_o": ["o_proj.weight", "out_proj.weight", "w_o"], "b_o": ["o_proj.bias", "out_proj.bias", "b_o"],
}
JOINT = {"w": ["in_proj_weight", "qkv_proj.weight", "w_qkv"], "b": ["in_proj_bias", "qkv_proj.bias", "b_qkv"]}
IGNORED = ["bias_k", "bias_v"]
ROPES = {"interleaved": 1, "half": 2}


def _cut(joint: Any, kind: str, heads: List[int]) -> Dict[str, Any]:
    """Cuts a matrix or bias that has the rows of q, k and v one after the other. `heads` has the numbers of rows."""
    ends = numpy.cumsum(heads).tolist()
    if joint.shape[0] != ends[-1]:
        raise ValueError(f"{kind}_qkv has {joint.shape[0]} rows: the heads have {ends[-1]}")
    return {f"{kind}_{part}": joint[end - rows:end] for part, rows, end in zip("qkv", heads, ends)}


class Layer:
    """Multi-head attention with its projections: y = attention(x W_q, key W_k, value W_v) W_o.

    weights   a state dict: arrays by the names of torch.nn.MultiheadAttention (in_proj_weight, out_proj.weight),
              of Llama (q_proj.weight, o_proj.weight), or w_q, w_k, w_v, w_o, b_q and so on
    q_heads   number of query heads; kv_heads is the same number by default
    head_dim  by default the rows of W_q divided by q_heads; value_dim: by default the rows of W_v divided by kv_heads.
              If one matrix has the rows of W_q, W_k and W_v: head_dim is by default the number of rows of this matrix
              divided by q_heads + 2 kv_heads, and value_dim is by default head_dim
    prefix    what the names begin with, such as 'model.layers.0.self_attn.'
    type      of the packed matrices: float32, float16, bfloat16 or q8_0
    rope      None, 'half' (Llama's) or 'interleaved': rotates q and k by their positions, with the base rope_base. Only
              the first rope_dim elements of a head are rotated; 0 means all elements

    Raises KeyError for a matrix that is missing, ValueError for shapes that do not match and for other wrong values."""

    def __init__(self, weights: Mapping[str, Any], *, q_heads: int, kv_heads: Optional[int] = None,
                 head_dim: Optional[int] = None, value_dim: Optional[int] = None, prefix: str = "",
                 type: str = "float32", rope: Optional[str] = None, rope_base: float = 10000.0,
                 rope_dim: int = 0) -> None:
        if rope is not None and rope not in ROPES:
            raise ValueError(f"rope is {rope!r}: must be 'half' or 'interleaved'")
        kv_heads = q_heads if kv_heads is None else kv_heads
        if q_heads < 1 or kv_heads < 1 or q_heads % kv_heads:
            raise ValueError(f"q_heads is {q_heads}: must be at least 1, and a multiple of kv_heads ({kv_heads})")
        self._refuse_others(weights, prefix)
        parts = self._find(weights, prefix, q_heads, kv_heads, head_dim, value_dim)
        head_dim = head_dim or parts["w_q"].shape[0] // q_heads
        value_dim = value_dim or parts["w_v"].shape[0] // kv_heads
        settings = {**parts, "q_heads": q_heads, "kv_heads": kv_heads, "head_dim": head_dim,
                    "value_dim": value_dim, "type": number_of(type, MATRICES)}
        self._packed = aligned_bytes(_core.layer_pack(**settings))
        _core.layer_pack(**settings, memory=self._packed)
        self._rope = None if rope is None else (ROPES[rope], rope_dim, float(rope_base))
        inputs = [int(parts[part].shape[1]) for part in ("w_q", "w_k", "w_v")]
        self._shape = (q_heads, *inputs, int(parts["w_o"].shape[0]))
        self._kv = (kv_heads, head_dim, value_dim)

    @staticmethod
    def _refuse_others(weights: Mapping[str, Any], prefix: str) -> None:
        for name in IGNORED:
            if weights.get(prefix + name) is not None:
                raise ValueError(f"{prefix}{name}: a layer has no additional key and value")

    @staticmethod
    def _find(weights: Mapping[str, Any], prefix: str, q_heads: int, kv_heads: int, head_dim: Optional[int],
              value_dim: Optional[int]) -> Dict[str, Any]:
        def first(names: List[str]) -> Any:
            found = [weights[prefix + name] for name in names if weights.get(prefix + name) is not None]
            return found[0] if found else None

        parts = {part: first(names) for part, names in NAMES.items()}
        joint_w, joint_b = first(JOINT["w"]), first(JOINT["b"])
        if joint_w is not None or joint_b is not None:
            head_dim = head_dim or (joint_w if joint_w is not None else parts["w_q"]).shape[0] // (
                q_heads + 2 * kv_heads if joint_w is not None else q_heads)
            heads = [q_heads * head_dim, kv_heads * head_dim, kv_heads * (value_dim or head_dim)]
            for kind, joint in (("w", joint_w), ("b", joint_b)):
                parts.update({} if joint is None else _cut(joint, kind, heads))
        for part in ("w_q", "w_k", "w_v", "w_o"):
            if parts[part] is None:
                raise KeyError(f"{part}: none of {', '.join(prefix + name for name in NAMES[part])}")
            if len(parts[part].shape) != 2:
                raise ValueError(f"{part} has the shape {tuple(parts[part].shape)}: must be a matrix")
        return {part: array for part, array in parts.items() if array is not None}

    @classmethod
    def from_safetensors(cls, path: Any, **settings: Any) -> "Layer":
        """Makes a layer from a safetensors file, by the package safetensors. The settings are the other arguments of
        Layer."""
        from safetensors import safe_open
        prefix = settings.get("prefix", "")
        with safe_open(path, framework="numpy") as file:
            weights = {name: file.get_tensor(name) for name in file.keys() if name.startswith(prefix)}
        return cls(weights, **settings)

    def make_cache(self, batch: int, capacity: int, **settings: Any) -> KVCache:
        """Makes a KVCache of the shape of this layer. The settings are the arguments of KVCache: type, paged,
        pages, tiled."""
        return KVCache(batch, self._kv[0], capacity, *self._kv[1:], **settings)

    def __call__(self, x: Any, key: Any = None, value: Any = None, *, cache: Optional[KVCache] = None,
                 causal: Any = None, **options: Any) -> Any:
        """Runs the layer on x [batch, rows, d_model], of float32, float16 or bfloat16.

        For cross-attention, give key [batch, keys, d_key], and value [batch, keys, d_value] if it is not the same as
        key. With a cache, the new keys and values are appended to the cache. causal is then 'bottom-right' by default,
        or True with q_offsets. Options have the meaning that they have in attention(): mask, bias, causal, q_offsets,
        kv_lens (not with a cache), window, softcap, sinks, alibi_slopes, scale, out and threads.

        Returns [batch, rows, d_out] in the type of x, or out. Raises the exceptions of attention(). After an exception
        the cache has the keys that it had before."""
        if cache is None:
            return _core.layer(x, self._packed, *self._shape, key=key, value=value, rope=self._rope,
                               causal=causal, **options)
        new = x if key is None else key
        if len(new.shape) != 3 or new.shape[0] != len(cache._lens):
            raise ValueError(f"{'x' if key is None else 'key'} has the shape {tuple(new.shape)}: must be [batch, rows, "
                             f"d_model], with the batch of the cache ({len(cache._lens)})")
        if cache._kv != self._kv:
            raise ValueError(f"cache: (kv_heads, head_dim, value_dim) is {cache._kv}: the layer has {self._kv}")
        more = numpy.full(len(cache._lens), new.shape[1], numpy.int64)
        if causal is None:
            causal = "bottom-right" if options.get("q_offsets") is None else True
        with cache._room(more):
            return _core.layer(x, self._packed, *self._shape, key=key, value=value, cache=cache._cache,
                               cached=cache._lens, rope=self._rope, causal=causal, **options)
