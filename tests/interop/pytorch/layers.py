# SPDX-License-Identifier: Apache-2.0
"""Layers of PyTorch, and the arguments with which attnkit computes the same results. The layers are
nn.MultiheadAttention, blocks like Llama's (with grouped heads, RoPE and a cache), and layers with some of these
features. Seeds are fixed. PyTorch computes in float64 from the numbers that attnkit gets. docs/semantics.md describes
the arguments."""

import numpy as np
import torch
import torch.nn.functional as F

import call
import layer_call
from layer_reference import doubles
from tensors import rounded


class Case:
    """A layer and one call of this layer. Besides the arguments of the constructor, a case has

    given      the weights and dims of attnkit's layer
    fields     the further arguments of attnkit's call
    seen       which keys a row sees, an array [batch, q_heads, q_len, keys]
    bias       the numbers that are added to the scores
    rope       kind, dim and base of the rotation, or None
    positions  the position of row 0 of each sequence
    cached     the number of keys that the cache has for each sequence, or None without a cache
    cache_k, cache_v    the cache, arrays [batch, kv_heads, room, dim]; or None
    out        PyTorch's result in float64
    weights_out, mean_out    the weights of each head and their mean, or None
    close      this case's own limit of the error E (layer_compare.py), for a cache of 16 bits; or None"""

    out = weights_out = mean_out = rope = cached = cache_k = cache_v = close = None

    def __init__(self, seed, batch, q_len, d_model, q_heads, kv_len=None, kv_heads=None, head_dim=None,
                 value_dim=None, d_key=None, d_value=None, d_out=None, bias=True, type="float32",
                 out_type="float32"):
        self.random, self.type, self.out_type = np.random.default_rng(seed), type, out_type
        self.batch, self.q_len, self.d_model, self.q_heads = batch, q_len, d_model, q_heads
        self.kv_heads = kv_heads or q_heads
        self.head_dim = head_dim or d_model // q_heads
        self.value_dim = value_dim or self.head_dim
        self.d_key = d_key or d_model
        self.d_value, self.d_out = d_value or self.d_key, d_out or d_model
        self.x = self.numbers(batch, q_len, d_model)
        self.key = self.numbers(batch, kv_len, self.d_key) if kv_len else self.x
        self.value = self.numbers(batch, kv_len, self.d_value) if d_value else self.key
        self.keys, self.positions = self.key.shape[1], np.zeros(batch, dtype=np.int64)
        self.draw_weights(bias)
        self.given = self.weights | {name: getattr(self, name) for name in layer_call.DIMS}
        self.fields = {}
        self.show_all()

    def numbers(self, *shape, size=1.0):
        values = self.random.standard_normal(shape, dtype=np.float32) * np.float32(size)
        return rounded(values, self.type)

    def draw_weights(self, bias):
        """Draws matrices and biases of such a size that the elements of q, k and v are about 1."""
        shapes = {"q": (self.q_heads * self.head_dim, self.d_model),
                  "k": (self.kv_heads * self.head_dim, self.d_key),
                  "v": (self.kv_heads * self.value_dim, self.d_value),
                  "o": (self.d_out, self.q_heads * self.value_dim)}
        self.weights = {}
        for name, (rows, columns) in shapes.items():
            self.weights["w_" + name] = self.numbers(rows, columns, size=columns ** -0.5)
            if bias:
                self.weights["b_" + name] = self.numbers(rows, size=0.3)

    def show_all(self):
        shape = (self.batch, self.q_heads, self.q_len, self.keys)
        self.seen, self.bias = np.ones(shape, dtype=bool), np.zeros(shape)

    # --------------------------------------------------- the arguments of attnkit, and the reference

    def one_matrix(self):
        """Joins the matrices of the three projections into one matrix, like in_proj_weight, and their biases into one
        bias, like in_proj_bias."""
        for name in ("w", "b"):
            three = [self.given.pop(f"{name}_{part}", None) for part in "qkv"]
            if three[0] is not None:
                self.given[name + "_qkv"] = np.concatenate(three)

    def mask(self, name, seen):
        """Adds a mask of kind IGNORE, which hides keys where seen is false. seen broadcasts to [batch, q_heads, q_len,
        keys]."""
        ignored = ~seen
        array = call.packed_bits(ignored) if name == "mask_bits" else ignored.view(np.uint8)
        self.fields |= call.mask_fields(name, array, call.IGNORE, columns=self.keys)
        self.seen = self.seen & seen

    def add(self, bias):
        """Adds a float32 bias. A row does not see a key whose element in the bias is -infinity."""
        self.fields |= call.mask_fields("bias", bias)
        seen = bias > -np.inf
        self.seen, self.bias = self.seen & seen, self.bias + np.where(seen, bias, 0)

    def causal(self):
        """Makes the call causal. The position of a row is the index of the key of the same token."""
        self.fields |= {"attention_flags": call.CAUSAL, "align": call.BOTTOM_RIGHT}
        rows = self.positions[:, None] + np.arange(self.q_len)
        self.seen = self.seen & (np.arange(self.keys) <= rows[:, :, None])[:, None]

    def arguments(self):
        """Returns the arguments for a call of a Layer. The call appends to copies of the caches."""
        cross = {} if self.key is self.x else {"key": self.key}
        if self.value is not self.key:
            cross["value"] = self.value
        cache = {}
        if self.cached is not None:
            self.copies = self.cache_k.copy(), self.cache_v.copy()  # the copies must live as long as the call
            cache = {"k": self.copies[0], "v": self.copies[1], "kv_len": self.keys, "cached": self.cached}
        return cross | cache | {"out_type": self.out_type, "rotation": self.rope} | self.fields

    # ------------------------------------------------------------------------ the layers in PyTorch

    def make_module(self, **options):
        """Makes an nn.MultiheadAttention with the weights of the case."""
        theirs = torch.nn.MultiheadAttention(
            self.d_model, self.q_heads, bias="b_q" in self.weights, kdim=self.d_key, vdim=self.d_value,
            batch_first=True, dtype=torch.float64, **options)
        w = {name: doubles(array) for name, array in self.weights.items()}
        if theirs.in_proj_weight is not None:
            theirs.in_proj_weight.copy_(torch.cat([w["w_q"], w["w_k"], w["w_v"]]))
        else:
            for name in "qkv":
                getattr(theirs, name + "_proj_weight").copy_(w["w_" + name])
        theirs.out_proj.weight.copy_(w["w_o"])
        if "b_q" in w:
            theirs.in_proj_bias.copy_(torch.cat([w["b_q"], w["b_k"], w["b_v"]]))
            theirs.out_proj.bias.copy_(w["b_o"])
        return theirs.eval()

    def module(self, **options):
        """Sets the case's results to the results of nn.MultiheadAttention. The options are arguments of its forward."""
        theirs, inputs = self.make_module(), [doubles(a) for a in (self.x, self.key, self.value)]
        self.out, self.mean_out = theirs(*inputs, **options)
        _, self.weights_out = theirs(*inputs, average_attn_weights=False, **options)

    def projected(self, name, rows, heads):
        """Returns a projection of rows as [batch, heads, rows, dim]."""
        w, b = self.weights["w_" + name], self.weights.get("b_" + name)
        y = F.linear(doubles(rows), doubles(w), None if b is None else doubles(b))
        return y.unflatten(2, (heads, -1)).transpose(1, 2)

    def projections(self):
        return (self.projected("q", self.x, self.q_heads), self.projected("k", self.key, self.kv_heads),
                self.projected("v", self.value, self.kv_heads))

    def output(self, result):
        """Applies the output projection to the result of attention, [batch, heads, rows, dim]."""
        b = self.weights.get("b_o")
        self.out = F.linear(result.transpose(1, 2).flatten(2), doubles(self.weights["w_o"]),
                            None if b is None else doubles(b))

    def functional(self, **options):
        """Computes the projections, scaled_dot_product_attention and the output projection."""
        self.output(F.scaled_dot_product_attention(*self.projections(), enable_gqa=True, **options))

    def groups(self, mask):
        """Computes attention with an axis of KV heads, and an axis of the query heads of each KV head. The Boolean mask
        broadcasts to [batch, kv_heads, group, q_len, keys]."""
        q, k, v = self.projections()
        q = q.unflatten(1, (self.kv_heads, -1))
        scores = torch.einsum("bgrid,bgjd->bgrij", q, k) * self.head_dim ** -0.5
        weights = torch.softmax(scores.masked_fill(~torch.from_numpy(mask), -torch.inf), dim=-1)
        self.weights_out = weights.flatten(1, 2)
        self.output(torch.einsum("bgrij,bgjd->bgrid", weights, v).flatten(1, 2))


def kept(random, *shape):
    """Draws a mask of Booleans. Every row sees the first key."""
    mask = random.random(shape) < 0.7
    mask[..., 0] = True
    return mask


def padded(lens, keys):
    """Returns a key_padding_mask, which is true where there is no key."""
    return np.arange(keys) >= np.array(lens)[:, None]


# --------------------------------------------------------------------------- nn.MultiheadAttention


def module_cross_with_one_head():
    case = Case(1, batch=8, q_len=128, kv_len=256, d_model=512, q_heads=1)
    case.module(need_weights=False)
    return case


def module_self_with_weights():
    case = Case(2, batch=32, q_len=50, d_model=512, q_heads=8)
    case.one_matrix()
    case.module()
    return case


def module_cross_with_few_rows():
    case = Case(3, batch=2, q_len=3, kv_len=5, d_model=512, q_heads=8)
    case.module()
    return case


def module_self_with_padding_and_causal_mask():
    """The case is like the self-attention of a TransformerDecoderLayer, with tgt_mask and tgt_key_padding_mask."""
    case = Case(4, batch=4, q_len=64, d_model=512, q_heads=8)
    case.one_matrix()
    padding = padded((64, 40, 1, 63), 64)
    causal = torch.triu(torch.ones(64, 64, dtype=torch.bool), 1)
    case.module(key_padding_mask=torch.from_numpy(padding), attn_mask=causal)
    case.mask("mask_bits", ~padding[:, None, None])
    case.causal()
    return case


def module_cross_with_memory_masks():
    """The case is like the cross-attention of a TransformerDecoderLayer, with a float memory_mask and
    memory_key_padding_mask."""
    case = Case(5, batch=4, q_len=40, kv_len=96, d_model=512, q_heads=8)
    padding = padded((96, 50, 17, 95), 96)
    added = case.random.standard_normal((40, 96), dtype=np.float32)
    added = np.where(kept(case.random, 40, 96), added, np.float32(-np.inf))
    case.module(key_padding_mask=torch.from_numpy(np.where(padding, -np.inf, 0.0)),
                attn_mask=torch.from_numpy(added.astype(np.float64)))
    case.mask("mask", ~padding[:, None, None])
    case.add(added)
    return case


def module_with_a_mask_for_each_head():
    """attn_mask has three axes: [batch * heads, rows, keys]."""
    case = Case(6, batch=3, q_len=9, kv_len=33, d_model=64, q_heads=4)
    seen = kept(case.random, 3, 4, 9, 33)
    case.module(attn_mask=torch.from_numpy(~seen).flatten(0, 1))
    case.mask("mask", seen)
    return case


def module_without_biases():
    case = Case(7, batch=2, q_len=20, kv_len=30, d_model=96, q_heads=3, bias=False)
    case.module()
    return case


def module_with_key_and_value_dims():
    """With kdim and vdim, the module has three matrices, but one in_proj_bias."""
    case = Case(8, batch=3, q_len=17, kv_len=25, d_model=128, q_heads=4, d_key=48, d_value=80)
    case.given["b_qkv"] = np.concatenate([case.given.pop("b_" + name) for name in "qkv"])
    case.module()
    return case


# ------------------------------------------------------------------ grouped heads, and other dims


def values_of_another_dim():
    case = Case(9, batch=2, q_len=40, kv_len=70, d_model=256, q_heads=4, head_dim=64, value_dim=128,
                d_out=192)
    case.functional()
    return case


def grouped_in_2():
    case = Case(10, batch=2, q_len=50, d_model=512, q_heads=8, kv_heads=2)
    case.functional()
    return case


def grouped_in_2_with_a_mask_of_five_axes():
    case = Case(11, batch=2, q_len=50, d_model=512, q_heads=8, kv_heads=2)
    seen = kept(case.random, 2, 2, 4, 50, 50)
    case.groups(seen)
    case.mask("mask", seen.reshape(2, 8, 50, 50))
    return case


def grouped_in_2_with_a_mask_for_each_group():
    case = Case(12, batch=2, q_len=30, kv_len=60, d_model=512, q_heads=8, kv_heads=2)
    seen = kept(case.random, 2, 2, 1, 30, 60)
    case.groups(seen)
    case.mask("mask", np.repeat(seen.reshape(2, 2, 30, 60), 4, axis=1))
    return case


def one_kv_head():
    case = Case(13, batch=2, q_len=50, d_model=512, q_heads=8, kv_heads=1)
    case.functional()
    return case


def one_kv_head_with_a_mask():
    case = Case(14, batch=2, q_len=50, d_model=512, q_heads=8, kv_heads=1)
    seen = kept(case.random, 2, 1, 8, 50, 50)
    case.groups(seen)
    case.mask("mask_bits", seen[:, 0])
    return case


# ------------------------------------------------------------------------------ RoPE and a cache


def rotated_by_halves(x, base, positions):
    """Rotates x [heads, rows, dim] as apply_rotary_pos_emb and rotate_half of Hugging Face's Llama do."""
    dim = x.shape[-1]
    frequencies = 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = torch.outer(positions.double(), frequencies)
    angles = torch.cat((angles, angles), dim=-1)
    halves = torch.cat((-x[..., dim // 2:], x[..., :dim // 2]), dim=-1)
    return x * angles.cos() + halves * angles.sin()


def rotated_as_complex(x, base, positions):
    """Rotates x with neighbouring elements as real and imaginary parts, as in Meta's Llama."""
    dim = x.shape[-1]
    frequencies = 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = torch.outer(positions.double(), frequencies)
    turns = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * turns).flatten(-2)


def llama(seed, cached, rows, rotate, base, rope, rope_dim=0, cache_type="float32"):
    """Makes the attention of a Llama block. The new rows follow a cache, whose keys are already rotated."""
    batch, room = len(cached), max(cached) + rows
    case = Case(seed, batch=batch, q_len=rows, d_model=256, q_heads=8, kv_heads=2, bias=False)
    case.rope = {"kind": rope, "dim": rope_dim, "base": base}
    case.cached = case.positions = np.array(cached, dtype=np.int64)
    case.cache_k, case.cache_v = (
        rounded(case.numbers(batch, 2, room, 32), cache_type) for _ in range(2))
    case.keys = room
    case.show_all()
    case.causal()
    llama_in_torch(case, rotate, base)
    return case


def llama_in_torch(case, rotate, base):
    q, k, v = case.projections()
    results = []
    for b, start in enumerate(case.cached):  # the sequences have different numbers of keys
        positions = torch.arange(start, start + case.q_len)
        keys = torch.cat((doubles(case.cache_k)[b, :, :start], rotate(k[b], base, positions)), dim=1)
        values = torch.cat((doubles(case.cache_v)[b, :, :start], v[b]), dim=1)
        seen = torch.ones(case.q_len, len(keys[0]), dtype=torch.bool).tril(start)
        results.append(F.scaled_dot_product_attention(
            rotate(q[b], base, positions)[None], keys[None], values[None], attn_mask=seen,
            enable_gqa=True))
    case.output(torch.cat(results))


def llama_prompt():
    return llama(15, [0, 0], 37, rotated_by_halves, 10000.0, layer_call.HALF)


def llama_part_of_a_prompt_behind_a_cache():
    return llama(16, [300, 0, 77], 21, rotated_by_halves, 500000.0, layer_call.HALF)


def llama_token_behind_a_cache():
    return llama(17, [600, 1, 513], 1, rotated_by_halves, 500000.0, layer_call.HALF)


def llama_with_neighbours_as_pairs():
    return llama(18, [0, 40], 21, rotated_as_complex, 10000.0, layer_call.INTERLEAVED)


def neox_with_a_quarter_of_a_head_rotated():
    def rotate(x, base, positions):
        return torch.cat((rotated_by_halves(x[..., :8], base, positions), x[..., 8:]), dim=-1)
    return llama(24, [0, 40], 21, rotate, 10000.0, layer_call.HALF, rope_dim=8)


def llama_with_a_cache_of_16_bits():
    case = llama(19, [100, 40], 21, rotated_by_halves, 10000.0, layer_call.HALF, cache_type="float16")
    case.close = 4 * 1243
    return case


# -------------------------------------------------------------------------------- other types


def weights_and_inputs_of_float16():
    case = Case(20, batch=2, q_len=30, d_model=128, q_heads=4, type="float16")
    case.module()
    return case


def weights_and_inputs_of_bfloat16():
    case = Case(21, batch=2, q_len=30, kv_len=20, d_model=128, q_heads=4, type="bfloat16")
    case.module()
    return case


def out_of_float16():
    case = Case(22, batch=2, q_len=30, d_model=128, q_heads=4, type="float16", out_type="float16")
    case.module()
    return case


def blocks(values):
    """Converts values to Q8_0, with a block for each 32 numbers of a row."""
    values = values.reshape(len(values), -1, 32)
    array = np.empty(values.shape[:2], dtype=layer_call.BLOCK)
    array["scale"] = abs(values).max(axis=2) / 127
    scale = array["scale"][..., None].astype(np.float32)
    array["elements"] = np.clip(np.rint(values / scale), -127, 127)
    return array


def weights_of_q8_0():
    """The float64 computation takes the numbers that the blocks stand for."""
    case = Case(23, batch=2, q_len=30, d_model=128, q_heads=4)
    for name in ("w_q", "w_k", "w_v", "w_o"):
        case.given[name] = case.weights[name] = blocks(case.weights[name])
    case.module()
    return case


ALL = (module_cross_with_one_head, module_self_with_weights, module_cross_with_few_rows,
       module_self_with_padding_and_causal_mask, module_cross_with_memory_masks,
       module_with_a_mask_for_each_head, module_without_biases, module_with_key_and_value_dims,
       values_of_another_dim, grouped_in_2, grouped_in_2_with_a_mask_of_five_axes,
       grouped_in_2_with_a_mask_for_each_group, one_kv_head, one_kv_head_with_a_mask, llama_prompt,
       llama_part_of_a_prompt_behind_a_cache, llama_token_behind_a_cache,
       llama_with_neighbours_as_pairs, neox_with_a_quarter_of_a_head_rotated,
       llama_with_a_cache_of_16_bits, weights_and_inputs_of_float16, weights_and_inputs_of_bfloat16,
       out_of_float16, weights_of_q8_0)
