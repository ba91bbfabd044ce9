// SPDX-License-Identifier: Apache-2.0
//
// The texts that help() shows for the functions without Python code of their own. Each text begins
// with the function's signature, in the form that Python's inspect reads.
#ifndef ATTNKIT_PYTHON_DOCS_H
#define ATTNKIT_PYTHON_DOCS_H

namespace attnkit_python
{

namespace docs
{

constexpr const char *attention = R"(attention(q, k, v, *, mask=None, bias=None, causal=None, )"
                                  R"(q_offsets=None, kv_lens=None, window=None, softcap=None, )"
                                  R"(sinks=None, alibi_slopes=None, scale=None, dropout=None, )"
                                  R"(seeds=None, bf16_products=False, short_weights=False, )"
                                  R"(return_lse=False, return_weights=False, out=None, threads=None)
--

Attention: softmax(scale * q k^T) v over the keys that a row may see.

Shapes: q [..., q_heads, q_len, head_dim], k [..., kv_heads, kv_len, head_dim] and v [..., kv_heads,
kv_len, value_dim], of float32, float16 or bfloat16 each. The dimensions before the heads are the
batch, which is the same for q, k and v. q_heads is a multiple of kv_heads: consecutive query heads
share a KV head. An array is read where it lies if it is aligned, the elements of its last dimension
are adjacent, and one stride describes the batch; else it is copied first.

mask           bool, true where a row sees a key; repeats to [..., q_heads, q_len, kv_len]
bias           float32, float16 or bfloat16, added to the scores; repeats as a mask; -inf hides a
               key
causal         'upper-left' (row 0 is at key 0), 'bottom-right' (the last row is at the last key),
               or True with q_offsets
q_offsets      position of row 0 among the keys: an int, or one for each batch entry
kv_lens        keys of each batch entry, 0 to kv_len
window         (left, right) or (left, right, keep_first): numbers of keys, without the row's own
               key; a left or right of None means no bound; the first keep_first keys are seen, too
softcap        a score x becomes softcap * tanh(x / softcap)
sinks          float32 [q_heads]: exp(sink) is added to the denominator of the softmax
alibi_slopes   float32 [q_heads]: slope * (key - position) is added to the scores
scale          1 / sqrt(head_dim) by default
dropout        probability that a weight becomes 0; needs seeds
seeds          an int, or an array of uint64 or int64 with a seed for each batch entry; only with
               dropout
bf16_products  multiplies q, k and v of bfloat16 in groups of 32 products, which changes the bits;
               not with dropout or return_weights. docs/format.md has the arithmetic
short_weights  with bf16_products: each weight is a single bfloat16, not the sum of two
return_lse     also float32 [..., q_heads, q_len]: the natural logarithm of the softmax's
               denominator
return_weights also float32 [..., q_heads, q_len, kv_len]: True or 'softmax', or a stage of the
               scores: 'biased', 'capped', 'scaled'
out            array for the result, whose rows are adjacent elements; overlaps no input
threads        1 by default, at most 1024; the bits are the same for any number

Returns the result [..., q_heads, q_len, value_dim] in the type of q, or out. With return_lse or
return_weights, returns a tuple: the result, then lse and weights, each if it was asked for. A row
that sees no key is 0. Its lse is -inf, or its sink if there are sinks.

Raises TypeError for an array of a wrong type, ValueError for a wrong value, shape or device,
NotImplementedError for an option that attnkit lacks, OverflowError for numbers and sizes that are
too large.)";

constexpr const char *torch =
    R"(scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, )"
    R"(is_causal=False, *, scale=None, enable_gqa=False, out=None, threads=None)
--

Attention with the signature of torch.nn.functional.scaled_dot_product_attention, on arrays.

Shapes: query [..., heads, L, E], key [..., kv_heads, S, E], value [..., kv_heads, S, Ev], of 2 to 6
dimensions, of float32, float16 or bfloat16.

attn_mask    bool, true where a row sees a key, or numbers that are added to the scores; repeats to
             [..., heads, L, S]; not with is_causal
dropout_p    must be 0: attention() has dropout, with seeds
is_causal    row i sees the keys up to i
scale        1 / sqrt(E) by default
enable_gqa   heads may be a multiple of kv_heads
out, threads as in attention()

Returns [..., heads, L, Ev] in the type of query. A row that sees no key is 0.

Raises as attention() does, and NotImplementedError for dropout_p.)";

constexpr const char *varlen =
    R"(attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_kv, *, causal=None, q_offsets=None, )"
    R"(window=None, softcap=None, sinks=None, alibi_slopes=None, scale=None, dropout=None, )"
    R"(seeds=None, bf16_products=False, short_weights=False, return_lse=False, out=None, )"
    R"(threads=None)
--

Attention over sequences that are packed one after the other.

Shapes: q [rows, q_heads, head_dim], k [keys, kv_heads, head_dim], v [keys, kv_heads, value_dim].
cu_seqlens_q and cu_seqlens_kv, int32, int64 or a list, have one element more than there are
sequences: sequence b has the rows cu_seqlens_q[b] to cu_seqlens_q[b + 1] - 1, and keys in the same
way. The other arguments are as in attention(). lse is float32 [q_heads, rows].

Returns [rows, q_heads, value_dim] in the type of q, or out; with return_lse a tuple of the result
and lse. A sequence has the same bits as in a call without the other sequences.

Raises as attention() does.)";

constexpr const char *merge = R"(merge(outs, lses, *, return_lse=False, threads=None)
--

Merges the results of attention over several parts of the keys into one result.

outs is a list of float32 arrays [..., rows, value_dim], and lses a list of float32 arrays
[..., rows]: for each part, the result and the lse of attention(..., return_lse=True). No key is in
two parts. An lse of -inf says that a row saw no key in a part.

Returns float32 [..., rows, value_dim], the result of attention over all keys. It has other bits
than one call over all keys; State gives the bits of one call. With return_lse, returns a tuple of
the result and the lse over all keys.

Raises TypeError for other types, ValueError for other numbers of arrays or other shapes.)";

constexpr const char *info = R"(info()
--

Returns a dictionary. version is the library's version. prefill and decode are the instruction sets
that are chosen for many rows and for few rows. unit is the unit that they use, or None. reason is
the reason for this choice. The lists isas and units have an entry for each instruction set and for
each unit: its name, the CPU features that it needs, whether it is built, whether it can run, and
why. The entry of a unit also says whether calls use this unit (used).

Raises RuntimeError if the environment variable ATTNKIT_ISA names an instruction set that cannot
run.)";

constexpr const char *enable = R"(enable(unit)
--

Enables a unit of an instruction set for this process.

Only 'avx512+amx' has to be enabled, because a process may use the CPU's tile registers only with
permission of the operating system. For any other unit, the call only tells whether the unit can
run. Later calls use an enabled unit, on threads that were started before, too; results keep their
bits. Call enable when the program starts. Returns None.

Raises RuntimeError if there is no such unit, or if it cannot run here; the text says why. After an
exception, calls use the units that they used before.)";

} // namespace docs

} // namespace attnkit_python

#endif
