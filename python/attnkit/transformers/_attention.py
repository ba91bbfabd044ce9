# SPDX-License-Identifier: Apache-2.0
"""attnkit's function in transformers' AttentionInterface: one layer's attention from a model's arguments."""

from contextlib import nullcontext

import torch

from ..torch import attention
from ._mask import Mask

arithmetic = {}  # options of attnkit.torch.attention that register() has set
WITHOUT_AUTOGRAD = torch._C._AutoDispatchBelowAutograd  # for calls without gradients: saves time in torch


def refuse_weights(output_attentions):
    if output_attentions:
        raise ValueError('attnkit: there are no weights to return: output_attentions needs attn_implementation="eager"')


def _refuse_dropout(dropout):
    if dropout:
        raise NotImplementedError(f"attnkit: a model cannot run with dropout ({dropout}). Train with "
                                  'attn_implementation="sdpa", or set attention_dropout to 0')


def mask_options(attention_mask, rows, is_causal, with_gradients):
    """Returns a mask of a model as arguments of attnkit.torch.attention.

    If attention_mask is None, a causal layer begins at position 0, and a single row sees all keys, as for "sdpa"."""
    if isinstance(attention_mask, Mask):
        options = attention_mask.options()
        if with_gradients and not options.keys() <= {"mask"} and options != {"causal": "upper-left"}:
            return {"mask": attention_mask.elements()}  # torch's backward op takes a tensor, or upper-left causality
        return options
    if attention_mask is None:
        return {"causal": "upper-left"} if is_causal and rows > 1 else {}
    return {"mask" if attention_mask.dtype == torch.bool else "bias": attention_mask}


def _in_rows(bias):
    """Returns a bias whose rows have adjacent elements, as the op reads rows. A bias that needs gradients, an inference
    tensor and a bias in a compiled graph are returned unchanged: the op copies such a bias if it has to.

    In the bias that T5 makes, the elements of a row are not adjacent. T5 passes this bias to all of its layers. The
    copy is kept with the bias, so that only the first layer has to copy the bias. In inference mode no copy is kept,
    because a later call with gradients could not use it."""
    if bias.stride(-1) == 1 or bias.requires_grad or bias.is_inference() or torch.compiler.is_compiling():
        return bias
    if torch.is_inference_mode_enabled():
        return bias.contiguous()
    version, copy = getattr(bias, "_attnkit_rows", (None, None))
    if version != bias._version:
        copy = bias.contiguous()
        bias._attnkit_rows = bias._version, copy
    return copy


def _add_bias(options, position_bias):
    """Returns options with a bias that a model adds to the scores: relative positions in T5, ALiBi in Bloom and MPT."""
    position_bias = _in_rows(position_bias)
    if "bias" in options:
        position_bias = position_bias + options["bias"]
    return dict(options, bias=position_bias)


def attend(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, position_bias=None,
           softcap=None, s_aux=None, output_attentions=False, cu_seq_lens_q=None, **_):
    """Returns the attention of a layer as [batch, rows, heads, value_dim], and None for the weights."""
    _refuse_dropout(dropout)
    refuse_weights(output_attentions)
    if cu_seq_lens_q is not None and cu_seq_lens_q.numel() > 2 and (attention_mask is None or
                                                                    isinstance(attention_mask, Mask)):
        raise ValueError("attnkit: cu_seq_lens_q says that sequences are packed, and the mask does not: give "
                         "position_ids that begin at 0 in each sequence, and no attention_mask")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    with_gradients = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (query, key, value, position_bias, s_aux))
    options = mask_options(attention_mask, query.shape[2], is_causal, with_gradients)
    if position_bias is not None:
        options = _add_bias(options, position_bias)
    sinks = None if s_aux is None else s_aux.float()
    with nullcontext() if with_gradients or torch.compiler.is_compiling() else WITHOUT_AUTOGRAD():
        out = attention(query, key, value, scale=scaling, softcap=softcap, sinks=sinks, rows_first=True,
                        **arithmetic, **options)
    return out.transpose(1, 2), None
