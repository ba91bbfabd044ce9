# SPDX-License-Identifier: Apache-2.0
"""Recipes by which attnkit computes layers of PyTorch, Hugging Face and others. The table of docs/semantics.md lists
the recipes. A recipe takes a function that makes a Layer on one instruction set."""

import numpy as np
import torch

import call
import layer_call
from layers import Case, padded
from layer_reference import doubles
from recipes import near, same_bits


def mask_that_hides_a_row(case):
    """Returns a mask of Booleans [rows, keys]. Row 2 sees no key, and every other row sees all keys."""
    seen = np.ones((case.q_len, case.keys), dtype=bool)
    seen[2] = False
    return seen


def a_row_that_sees_nothing_is_the_bias_of_the_output(layer):
    """For a row that sees no key, PyTorch gives NaN if the call asks for weights. Otherwise PyTorch gives the bias of
    the output projection, like attnkit."""
    case = Case(31, batch=2, q_len=5, kv_len=7, d_model=32, q_heads=4)
    seen = mask_that_hides_a_row(case)
    case.module(attn_mask=torch.from_numpy(~seen), need_weights=False)
    without = case.out
    case.module(attn_mask=torch.from_numpy(~seen))
    case.mask("mask", seen)
    got = layer(**case.given)(case.x, weights=True, **case.arguments())
    same_bits(got.out[:, 2], np.broadcast_to(case.weights["b_o"], got.out[:, 2].shape).copy())
    assert not got.weights[:, :, 2].any() and not got.mean[:, 2].any()
    assert (got.lse[:, :, 2] == -np.inf).all()
    near(got.out, without)
    others = [0, 1, 3, 4]
    near(got.out[:, others], case.out[:, others])
    near(got.mean[:, others], case.mean_out[:, others])


def padding_as_lengths_has_the_bits_of_a_mask(layer):
    case = Case(32, batch=3, q_len=4, kv_len=20, d_model=32, q_heads=4)
    lens = np.array([20, 1, 13])
    padding = padded(lens, 20)
    case.module(key_padding_mask=torch.from_numpy(padding))
    by_lengths = layer(**case.given)(case.x, case.key, kv_lens=lens)
    near(by_lengths.out, case.out)
    case.mask("mask", ~padding[:, None, None])
    same_bits(by_lengths.out, layer(**case.given)(case.x, **case.arguments()).out)


def sequence_first_is_strides(layer):
    """With batch_first=False, x and out are [rows, batch, dim]."""
    case = Case(33, batch=3, q_len=6, d_model=32, q_heads=4)
    case.module()
    made = layer(**case.given)
    rows_first = np.ascontiguousarray(case.x.swapaxes(0, 1)).swapaxes(0, 1)
    got = made(rows_first)
    assert got.out.strides != case.x.strides
    near(got.out, case.out)
    same_bits(np.ascontiguousarray(got.out), made(case.x).out)


def add_zero_attn_is_a_sink_of_0(layer):
    """PyTorch adds a key and a value of zeros. If a sink of 0 takes the place of this key, the other keys have the same
    weights."""
    case = Case(34, batch=2, q_len=5, kv_len=7, d_model=32, q_heads=4)
    theirs = case.make_module(add_zero_attn=True)
    out, weights = theirs(*map(doubles, (case.x, case.key, case.value)), average_attn_weights=False)
    got = layer(**case.given)(case.x, case.key, weights=True, sinks=np.zeros(4, dtype=np.float32))
    near(got.out, out)
    near(got.weights, weights[..., :7])


def add_bias_kv_is_a_key_in_the_cache(layer):
    """After the projections, PyTorch appends one learned key and one learned value. For attnkit, the learned key and
    value come first in the cache."""
    case = Case(37, batch=2, q_len=5, kv_len=7, d_model=32, q_heads=4)
    theirs = case.make_module(add_bias_kv=True)
    rows = [case.numbers(4, 8) for _ in range(2)]  # [heads][head_dim]
    for parameter, row in zip((theirs.bias_k, theirs.bias_v), rows):
        parameter.copy_(doubles(row).flatten())
    out, weights = theirs(*map(doubles, (case.x, case.key, case.value)), average_attn_weights=False)
    k, v = (np.full((2, 4, 8, 8), np.nan, dtype=np.float32) for _ in range(2))
    k[:, :, 0], v[:, :, 0] = rows
    got = layer(**case.given)(case.x, case.key, weights=True, k=k, v=v, kv_len=8,
                              cached=np.array([1, 1]))
    near(got.out, out)
    near(np.roll(got.weights, -1, axis=3), weights)


def cross_attention_keeps_the_keys_of_an_encoder(layer):
    """As in Whisper's decoder, the first call projects the encoder's rows, and later calls attend over the cached keys.
    k_proj has no bias."""
    case = Case(35, batch=2, q_len=3, kv_len=40, d_model=64, q_heads=4)
    del case.given["b_k"]
    case.weights["b_k"][...] = 0
    case.module()
    made = layer(**case.given)
    without = made(case.x, case.key).out
    near(without, case.out)

    k, v = (np.full((2, 4, 48, 16), np.nan, dtype=np.float32) for _ in range(2))
    cache = {"k": k, "v": v, "kv_len": 48}
    first = made(case.x[:, :1].copy(), case.key, cached=np.zeros(2, dtype=np.int64), **cache).out
    same_bits(first, without[:, :1].copy())
    kept = k.copy()
    for i in (1, 2):
        row = made(case.x[:, i:i + 1].copy(), flags=layer_call.NO_APPEND,
                   cached=np.array([40, 40]), **cache).out
        same_bits(row, without[:, i:i + 1].copy())
    same_bits(k, kept)


def meta_and_hugging_face_order_rows_of_w_q_and_w_k_differently(layer):
    """In Meta's Llama, neighbouring elements are a pair. In Hugging Face's weights, the rows of a pair are half a head
    apart, and RoPE rotates in halves."""
    case = Case(36, batch=2, q_len=9, d_model=64, q_heads=4, kv_heads=2, bias=False)
    theirs = dict(case.given)
    for name in ("w_q", "w_k"):
        rows = case.given[name].reshape(-1, 8, 2, 64)  # [heads][pairs][2][d_model]
        theirs[name] = np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(-1, 64)
    causal = {"attention_flags": call.CAUSAL, "align": call.UPPER_LEFT}
    ours = layer(**case.given)(case.x, rotation={"kind": layer_call.INTERLEAVED}, **causal)
    near(layer(**theirs)(case.x, rotation={"kind": layer_call.HALF}, **causal).out, ours.out)
    assert abs(layer(**theirs)(case.x, rotation={"kind": layer_call.INTERLEAVED}, **causal).out
               - ours.out).max() > 0.01


ALL = (a_row_that_sees_nothing_is_the_bias_of_the_output, padding_as_lengths_has_the_bits_of_a_mask,
       sequence_first_is_strides, add_zero_attn_is_a_sink_of_0, add_bias_kv_is_a_key_in_the_cache,
       cross_attention_keeps_the_keys_of_an_encoder,
       meta_and_hugging_face_order_rows_of_w_q_and_w_k_differently)
