# SPDX-License-Identifier: Apache-2.0
"""The intended differences between attnkit and PyTorch. Each recipe compares attnkit's results with PyTorch's. Most
recipes show the fields with which the results agree. docs/semantics.md has a table of these differences. The argument
of a recipe is call.attention, bound to one instruction set. The tensors are small and float32. PyTorch also computes in
float32, because some recipes depend on the roundings of float32, such as the recipe with a bias of -1e9."""

import numpy as np
import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.attention.flex_attention import AuxRequest, flex_attention
from torch.nn.functional import scaled_dot_product_attention as sdpa

import call
from libraries.forms import Cannot

BATCH, Q_HEADS, KV_HEADS, Q_LEN, KV_LEN, DIM = 2, 4, 2, 5, 9, 16
NEAR = {"rtol": 1e-5, "atol": 1e-5}  # tolerance for numbers of about 1; the random cases check the bound


def tensors(q_len=Q_LEN, kv_len=KV_LEN, q_heads=Q_HEADS, kv_heads=KV_HEADS):
    random = np.random.default_rng(7)
    return [random.standard_normal((BATCH, heads, rows, DIM), dtype=np.float32)
            for heads, rows in ((q_heads, q_len), (kv_heads, kv_len), (kv_heads, kv_len))]


def by_torch(q, k, v, attn_mask=None, **options):
    if isinstance(attn_mask, np.ndarray):
        attn_mask = torch.from_numpy(attn_mask)
    return sdpa(*map(torch.from_numpy, (q, k, v)), attn_mask=attn_mask, **options).numpy()


def grouped(q, k, v, attn_mask=None, **options):
    return by_torch(q, k, v, attn_mask, enable_gqa=True, **options)


def near(got, wanted):
    np.testing.assert_allclose(got, wanted, **NEAR)


def same_bits(got, wanted):
    np.testing.assert_array_equal(got.view(np.uint32), wanted.view(np.uint32))


def refused(words, attention, *tensors, **fields):
    try:
        attention(*tensors, **fields)
    except Cannot as message:
        assert words in str(message), message
    else:
        raise AssertionError(f"not refused: {words}")


def mask_with_an_empty_row():
    """Returns a mask of Booleans. Row 2 sees no key."""
    mask = np.random.default_rng(8).random((Q_LEN, KV_LEN)) < 0.7
    mask[:, 0] = True
    mask[2] = False
    return mask


# ----------------------------------------------------------------------------- causal masks


def causal_begins_where_it_is_said_to(attention):
    q, k, v = tensors()
    refused("align", attention, q, k, v, flags=call.CAUSAL)
    upper = attention(q, k, v, flags=call.CAUSAL, align=call.UPPER_LEFT).out
    near(upper, grouped(q, k, v, is_causal=True))
    k, v = (np.repeat(array, 2, axis=1) for array in (k, v))  # causal_lower_right does not support grouped heads
    lower = attention(q, k, v, flags=call.CAUSAL, align=call.BOTTOM_RIGHT).out
    near(lower, by_torch(q, k, v, causal_lower_right(Q_LEN, KV_LEN)))
    assert abs(upper - lower).max() > 0.1


def causal_and_a_mask_go_together(attention):
    q, k, v = tensors()
    mask = np.random.default_rng(9).random((Q_LEN, KV_LEN)) < 0.6
    try:
        grouped(q, k, v, mask, is_causal=True)
    except RuntimeError:
        pass  # PyTorch needs one mask that combines causal and the other mask
    else:
        raise AssertionError("PyTorch takes both now: compare them")
    both = attention(q, k, v, flags=call.CAUSAL, align=call.UPPER_LEFT,
                     **call.mask_fields("mask", mask.view(np.uint8), call.ATTEND)).out
    seen = mask & np.tri(Q_LEN, KV_LEN, dtype=bool)
    near(both, np.nan_to_num(grouped(q, k, v, seen)))


def causal_goes_with_any_scale(attention):
    """PyTorch's is_causal on CPUs masks before it multiplies by the scale, so that a scale of 0 or less gives NaN.
    PyTorch's attn_mask does not give NaN with these scales."""
    q, k, v = tensors()
    seen = np.tri(Q_LEN, KV_LEN, dtype=bool)
    for scale in (-0.3, 0.0):
        got = attention(q, k, v, flags=call.CAUSAL | call.SCALE_GIVEN, align=call.UPPER_LEFT,
                        scale=scale)
        near(got.out, grouped(q, k, v, seen, scale=scale))


# ---------------------------------------------------------------- rows that see no key


def a_row_that_sees_nothing_is_0_with_an_lse_of_minus_infinity(attention):
    """PyTorch gives NaN before version 2.5, and 0 from 2.5 on. nan_to_num makes the NaN 0."""
    q, k, v = tensors()
    mask = mask_with_an_empty_row()
    bias = np.where(mask, np.float32(0), np.float32(-np.inf))
    for fields, given in ((call.mask_fields("mask", mask.view(np.uint8), call.ATTEND), mask),
                          (call.mask_fields("bias", bias), bias)):
        got = attention(q, k, v, weights=True, **fields)
        near(got.out, np.nan_to_num(grouped(q, k, v, given)))
        assert not got.out[:, :, 2].view(np.uint32).any()  # not -0 either
        assert (got.lse[:, :, 2] == -np.inf).all() and np.isfinite(got.lse[:, :, 3]).all()
        assert not got.weights[:, :, 2].any()


def no_keys_at_all_give_0(attention):
    q, k, v = tensors(kv_len=0)
    got = attention(q, k, v)
    near(got.out, grouped(q, k, v))
    assert (got.lse == -np.inf).all()


def a_mask_of_minus_1e9_is_numbers_and_not_a_mask(attention):
    """If all keys of a row have a bias of -1e9, the result of the row is the mean of the rows of v in both libraries,
    because the float32 sums lose the scores. If a row also sees keys without this bias, each key with this bias has a
    weight of 0, as if it were masked."""
    q, k, v = tensors()
    mask = mask_with_an_empty_row()
    mean = np.repeat(v.mean(axis=2), 2, axis=1)
    for least in (np.float32(-1e9), np.finfo(np.float32).min):
        bias = np.where(mask, np.float32(0), least)
        got = attention(q, k, v, **call.mask_fields("bias", bias)).out
        near(got, grouped(q, k, v, bias))
        near(got[:, :, 2], mean)
        masked = attention(q, k, v, **call.mask_fields("mask", mask.view(np.uint8), call.ATTEND)).out
        others = [0, 1, 3, 4]
        same_bits(got[:, :, others], masked[:, :, others])
        # The recipe: pass a Boolean mask instead of the bias.
        again = attention(q, k, v, **call.mask_fields(
            "mask", (bias < -1e8).view(np.uint8), call.IGNORE)).out
        same_bits(again, masked)


def lse_is_a_natural_logarithm(attention):
    """lse equals the lse of flex_attention. An lse in base 2 is this lse times log2 e."""
    q, k, v = tensors()
    mask = mask_with_an_empty_row()
    seen = torch.from_numpy(mask)
    out, more = flex_attention(
        *map(torch.from_numpy, (q, k, v)), enable_gqa=True, return_aux=AuxRequest(lse=True),
        score_mod=lambda x, b, h, i, j: torch.where(seen[i, j], x, -torch.inf))
    got = attention(q, k, v, **call.mask_fields("mask", mask.view(np.uint8), call.ATTEND))
    near(got.out, np.nan_to_num(out.numpy()))
    near(got.lse, more.lse.numpy())


# ------------------------------------------------------------------- what a mask says


def a_float_mask_of_0_and_1_is_added(attention):
    """PyTorch and attnkit add a float mask of 0 and 1. The bytes 0 and 1 of a Boolean mask are false and true."""
    q, k, v = tensors()
    mask = np.random.default_rng(10).random((Q_LEN, KV_LEN)) < 0.6
    numbers = mask.astype(np.float32)
    added = attention(q, k, v, **call.mask_fields("bias", numbers)).out
    near(added, grouped(q, k, v, numbers))
    masked = attention(q, k, v, **call.mask_fields("mask", mask.astype(np.uint8), call.ATTEND)).out
    near(masked, grouped(q, k, v, numbers != 0))
    assert abs(added - masked).max() > 0.01


def module(heads):
    """Makes an nn.MultiheadAttention whose projections are identity matrices."""
    width = heads * DIM
    attention = torch.nn.MultiheadAttention(width, heads, bias=False, batch_first=True)
    attention.in_proj_weight.copy_(torch.eye(width).repeat(3, 1))
    attention.out_proj.weight.copy_(torch.eye(width))
    return attention.eval()


def side_by_side(array):
    """Reshapes [batch, heads, rows, dim] to [batch, rows, heads * dim]."""
    return torch.from_numpy(np.ascontiguousarray(array.swapaxes(1, 2))).flatten(2)


def multihead_attention_ignores_where_a_mask_is_true(attention):
    """The module gets two masks at once: a mask of keys for each sequence, and a mask of rows and keys."""
    q, k, v = tensors(kv_heads=Q_HEADS)
    padding = np.arange(KV_LEN) >= np.array([[KV_LEN - 2], [KV_LEN]])
    ignored = np.random.default_rng(11).random((Q_LEN, KV_LEN)) < 0.4
    ignored[:, 0] = False
    wanted, weights = module(Q_HEADS)(
        *map(side_by_side, (q, k, v)), key_padding_mask=torch.from_numpy(padding),
        attn_mask=torch.from_numpy(ignored), average_attn_weights=False)
    got = attention(q, k, v, weights=True,
                    **call.mask_fields("mask", ignored.view(np.uint8), call.IGNORE),
                    **call.mask_fields("mask_bits", call.packed_bits(padding)[:, None, None],
                                       call.IGNORE, columns=KV_LEN))
    near(side_by_side(got.out), wanted)
    near(got.weights, weights)
    lens = np.array([KV_LEN - 2, KV_LEN])  # lengths instead of the padding mask give the same bits
    same_bits(got.out, attention(
        q, k, v, kv_lens=lens, **call.mask_fields("mask", ignored.view(np.uint8), call.IGNORE)).out)


def multihead_attention_gives_weights_of_nan_where_a_row_sees_nothing(attention):
    q, k, v = tensors(kv_heads=Q_HEADS)
    ignored = ~mask_with_an_empty_row()
    _, weights = module(Q_HEADS)(*map(side_by_side, (q, k, v)), attn_mask=torch.from_numpy(ignored),
                                 average_attn_weights=False)
    got = attention(q, k, v, weights=True,
                    **call.mask_fields("mask", ignored.view(np.uint8), call.IGNORE))
    near(got.weights, np.nan_to_num(weights.numpy()))


# ------------------------------------------------------------------------ what is masked


def what_a_masked_key_holds_is_not_looked_at(attention):
    """PyTorch multiplies a masked v by 0, and infinity or NaN times 0 is NaN."""
    q, k, v = tensors()
    mask = np.ones((Q_LEN, KV_LEN), dtype=bool)
    mask[:, 4] = False
    fields = call.mask_fields("mask", mask.view(np.uint8), call.ATTEND)
    clean = attention(q, k, v, **fields).out
    near(clean, grouped(q, k, v, mask))
    k[:, :, 4], v[:, :, 4] = np.nan, np.inf
    same_bits(attention(q, k, v, **fields).out, clean)
    k[:, :, 4], v[:, :, 4] = 0, 0  # PyTorch needs finite numbers here
    near(clean, grouped(q, k, v, mask))


def a_scale_of_0_is_one_that_is_given(attention):
    q, k, v = tensors()
    refused("scale", attention, q, k, v, scale=0.5)
    near(attention(q, k, v, flags=call.SCALE_GIVEN, scale=0.0).out, grouped(q, k, v, scale=0.0))
    near(attention(q, k, v).out, grouped(q, k, v, scale=DIM ** -0.5))


def dropout_is_drawn_from_a_seed_and_not_from_a_state(attention):
    """attnkit's random numbers differ from PyTorch's. The mean is the same, because both libraries divide the weights
    that they keep by 1 - rate."""
    q, k, _ = tensors(kv_len=4000)
    ones = np.ones((BATCH, KV_HEADS, 4000, 1), dtype=np.float32)
    seeds = np.array([1, 2], dtype=np.uint64)
    options = {"align": call.UPPER_LEFT, "dropout": 0.25, "flags": call.SCALE_GIVEN, "scale": 0.0}
    got = attention(q, k, ones, dropout_seeds=seeds, **options)
    # Each element is the mean of 4000 numbers that are 4/3 or 0. Its standard deviation is 0.577 / sqrt(4000).
    assert abs(got.out - 1).max() < 6 * 0.0092 and got.out.std() > 0.3 * 0.0092
    theirs = grouped(q, k, ones, dropout_p=0.25, scale=0.0)
    assert abs(theirs - 1).max() < 6 * 0.0092
    same_bits(got.out, attention(q, k, ones, dropout_seeds=seeds, **options).out)
    near(got.lse, np.full(got.lse.shape, np.log(4000)))


ALL = (causal_begins_where_it_is_said_to, causal_and_a_mask_go_together, causal_goes_with_any_scale,
       a_row_that_sees_nothing_is_0_with_an_lse_of_minus_infinity, no_keys_at_all_give_0,
       a_mask_of_minus_1e9_is_numbers_and_not_a_mask, lse_is_a_natural_logarithm,
       a_float_mask_of_0_and_1_is_added, multihead_attention_ignores_where_a_mask_is_true,
       multihead_attention_gives_weights_of_nan_where_a_row_sees_nothing,
       what_a_masked_key_holds_is_not_looked_at, a_scale_of_0_is_one_that_is_given,
       dropout_is_drawn_from_a_seed_and_not_from_a_state)
