# SPDX-License-Identifier: Apache-2.0
"""Models whose attention does not ask transformers' interface for a function: Falcon, Bloom and MPT. Here these models
get a forward that differs from their own only in the attention itself. Any other model that does not ask the interface
raises a clear error.

The biases of ALiBi are kept as Bloom and MPT make them: a number for each head and key, the same for all rows."""

import functools

from transformers import PreTrainedModel
from transformers.models.bloom import modeling_bloom as bloom
from transformers.models.falcon import modeling_falcon as falcon
from transformers.models.mpt import modeling_mpt as mpt

from ._attention import attend, refuse_weights
from ._mask import Mask

NAME = "attnkit"
REPLACED = (bloom.BloomPreTrainedModel, falcon.FalconPreTrainedModel, mpt.MptPreTrainedModel)


class FalconAttention(falcon.FalconAttention):
    """The same attention as Falcon's with "sdpa". With ALiBi, the mask holds the biases.

    transformers repeats each KV head for all of its query heads, and a cache then keeps the copies. Here, a cache keeps
    each KV head of the model once."""

    def _split_heads(self, fused_qkv):
        if not self.new_decoder_architecture:
            return super()._split_heads(fused_qkv)
        groups = fused_qkv.unflatten(2, (self.num_kv_heads, -1, self.head_dim))  # the query heads, a key and a value
        return groups[:, :, :, :-2].flatten(2, 3), groups[:, :, :, -2], groups[:, :, :, -1]

    def forward(self, hidden_states, alibi, attention_mask, position_ids=None, layer_past=None, use_cache=False,
                output_attentions=False, position_embeddings=None, **_):
        batch, rows, _ = hidden_states.shape
        query, key, value = (x.transpose(1, 2) for x in self._split_heads(self.query_key_value(hidden_states)))
        if alibi is None:
            query, key = falcon.apply_rotary_pos_emb(query, key, *position_embeddings)
        if layer_past is not None:
            key, value = layer_past.update(key, value, self.layer_idx)
        dropout = self.attention_dropout.p if self.training and alibi is not None else 0.0
        out, weights = attend(self, query, key, value, attention_mask, dropout, output_attentions=output_attentions)
        return self.dense(out.reshape(batch, rows, -1)), weights


def _forward_of_bloom(self, hidden_states, residual, alibi, attention_mask, layer_past=None, use_cache=False,
                      output_attentions=False, **_):
    batch, rows, _ = hidden_states.shape
    query, key, value = self._reshape(self.query_key_value(hidden_states))
    if layer_past is not None:
        key, value = layer_past.update(key, value, self.layer_idx)
    if self.pretraining_tp > 1 and self.slow_but_exact:
        raise NotImplementedError("attnkit: Bloom with slow_but_exact is left to attn_implementation=\"eager\"")
    dropout = self.attention_dropout.p if self.training else 0.0
    out, weights = attend(self, query, key, value, attention_mask, dropout, scaling=self.inv_norm_factor,
                          position_bias=alibi.view(batch, self.num_heads, 1, -1), output_attentions=output_attentions)
    out = self.dense(out.reshape(batch, rows, -1))
    return bloom.dropout_add(out, residual, self.hidden_dropout, self.training), weights


def _forward_of_mpt(self, hidden_states, position_bias, cache=None, attention_mask=None, output_attentions=False, **_):
    batch, rows, _ = hidden_states.shape
    fused = self.Wqkv(hidden_states)
    if self.clip_qkv:
        fused = fused.clamp(min=-self.clip_qkv, max=self.clip_qkv)
    query, key, value = (x.view(batch, rows, self.n_heads, self.head_dim).transpose(1, 2) for x in fused.chunk(3, 2))
    if cache is not None:
        key, value = cache.update(key, value, self.layer_idx)
    keys = key.shape[2]
    if position_bias is not None:
        if position_bias.shape[2] < keys:
            raise ValueError(f"attnkit: max_seq_len is {position_bias.shape[2]}: there are {keys} keys")
        position_bias = position_bias[None, :, :, position_bias.shape[2] - keys:]
    dropout = self.attn_dropout_p if self.training else 0.0
    out, weights = attend(self, query, key, value, attention_mask, dropout, scaling=self.softmax_scale,
                          position_bias=position_bias, output_attentions=output_attentions)
    return self.out_proj(out.reshape(batch, rows, -1)), weights


def _without_weights(theirs):
    """Returns a forward for a block of MPT. If the mask is a Mask, the forward refuses a request for weights, because
    the block would not pass the request to its attention."""
    @functools.wraps(theirs)
    def forward(self, hidden_states, position_bias, attention_mask, *arguments, output_attentions=False, **keywords):
        if isinstance(attention_mask, Mask):
            refuse_weights(output_attentions)
        return theirs(self, hidden_states, position_bias, attention_mask, *arguments,
                      output_attentions=output_attentions, **keywords)
    return forward


def _with(ours, theirs):
    """Returns a forward that calls `ours` if one of its arguments is a Mask, and else `theirs`."""
    @functools.wraps(theirs)
    def forward(self, *arguments, **keywords):
        is_ours = any(isinstance(value, Mask) for value in (*arguments, *keywords.values()))
        return (ours if is_ours else theirs)(self, *arguments, **keywords)
    return forward


def _with_check(theirs):
    """Returns a check that refuses attnkit for models that bypass the interface and are not in REPLACED. In all other
    cases the check calls transformers' own check."""
    @functools.wraps(theirs)
    def get_correct_attn_implementation(self, requested_attention, *arguments, **keywords):
        if requested_attention == NAME and not (isinstance(self, REPLACED) or self._can_set_attn_implementation()):
            raise ValueError(f"attnkit: {type(self).__name__} computes attention by itself, and not by the interface "
                             "of transformers: it has no attn_implementation=\"attnkit\"")
        return theirs(self, requested_attention, *arguments, **keywords)
    return get_correct_attn_implementation


def _with_error(theirs):
    """Returns a set_attn_implementation that raises an error if a model that bypasses the interface is to be set to
    attnkit. The function of transformers would only log a message."""
    @functools.wraps(theirs)
    def set_attn_implementation(self, attn_implementation, *arguments, **keywords):
        if attn_implementation == NAME and not self._can_set_attn_implementation():
            raise ValueError(f"attnkit: the implementation of {type(self).__name__} cannot be changed: give "
                             "attn_implementation=\"attnkit\" when the model is made")
        return theirs(self, attn_implementation, *arguments, **keywords)
    return set_attn_implementation


class Patches:
    """The functions of transformers that are replaced, from the constructor to remove()."""

    def __init__(self):
        self.replaced = []
        falcon.FALCON_ATTENTION_CLASSES[NAME] = FalconAttention
        self._replace(bloom.BloomAttention, "forward", lambda theirs: _with(_forward_of_bloom, theirs))
        self._replace(mpt.MptAttention, "forward", lambda theirs: _with(_forward_of_mpt, theirs))
        self._replace(mpt.MptBlock, "forward", _without_weights)
        self._replace(PreTrainedModel, "get_correct_attn_implementation", _with_check)
        self._replace(PreTrainedModel, "set_attn_implementation", _with_error)

    def _replace(self, owner, name, make):
        theirs = getattr(owner, name)
        self.replaced.append((owner, name, theirs))
        setattr(owner, name, make(theirs))

    def remove(self):
        falcon.FALCON_ATTENTION_CLASSES.pop(NAME, None)
        for owner, name, theirs in self.replaced:
            setattr(owner, name, theirs)
