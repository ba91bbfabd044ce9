// SPDX-License-Identifier: Apache-2.0
//
// The functions of attention: the names of their arguments, and the steps of a call.
#include "python/core/call.h"
#include "python/core/functions.h"

namespace attnkit_python
{

namespace
{

constexpr name_list attention_names = {"attention",
                                       3,
                                       3,
                                       {{"q", Q},
                                        {"k", K},
                                        {"v", V},
                                        {"mask", MASK},
                                        {"bias", BIAS},
                                        {"causal", CAUSAL},
                                        {"q_offsets", Q_OFFSETS},
                                        {"kv_lens", KV_LENS},
                                        {"window", WINDOW},
                                        {"softcap", SOFTCAP},
                                        {"sinks", SINKS},
                                        {"alibi_slopes", ALIBI_SLOPES},
                                        {"scale", SCALE},
                                        {"dropout", DROPOUT},
                                        {"seeds", SEEDS},
                                        {"bf16_products", BF16_PRODUCTS},
                                        {"short_weights", SHORT_WEIGHTS},
                                        {"return_lse", RETURN_LSE},
                                        {"return_weights", RETURN_WEIGHTS},
                                        {"out", OUT},
                                        {"threads", THREADS}}};

constexpr name_list varlen_names = {"attention_varlen",
                                    5,
                                    5,
                                    {{"q", Q},
                                     {"k", K},
                                     {"v", V},
                                     {"cu_seqlens_q", CU_SEQLENS_Q},
                                     {"cu_seqlens_kv", CU_SEQLENS_KV},
                                     {"causal", CAUSAL},
                                     {"q_offsets", Q_OFFSETS},
                                     {"window", WINDOW},
                                     {"softcap", SOFTCAP},
                                     {"sinks", SINKS},
                                     {"alibi_slopes", ALIBI_SLOPES},
                                     {"scale", SCALE},
                                     {"dropout", DROPOUT},
                                     {"seeds", SEEDS},
                                     {"bf16_products", BF16_PRODUCTS},
                                     {"short_weights", SHORT_WEIGHTS},
                                     {"return_lse", RETURN_LSE},
                                     {"out", OUT},
                                     {"threads", THREADS}}};

constexpr name_list cache_names = {"attend",
                                   2,
                                   2,
                                   {{"q", Q},
                                    {"cache", CACHE},
                                    {"mask", MASK},
                                    {"bias", BIAS},
                                    {"causal", CAUSAL},
                                    {"q_offsets", Q_OFFSETS},
                                    {"kv_lens", KV_LENS},
                                    {"window", WINDOW},
                                    {"softcap", SOFTCAP},
                                    {"sinks", SINKS},
                                    {"alibi_slopes", ALIBI_SLOPES},
                                    {"scale", SCALE},
                                    {"dropout", DROPOUT},
                                    {"seeds", SEEDS},
                                    {"integers", INTEGERS},
                                    {"bf16_products", BF16_PRODUCTS},
                                    {"short_weights", SHORT_WEIGHTS},
                                    {"return_lse", RETURN_LSE},
                                    {"out", OUT},
                                    {"threads", THREADS}}};

constexpr name_list part_names = {"update",
                                  3,
                                  3,
                                  {{"q", Q},
                                   {"k", K},
                                   {"v", V},
                                   {"mask", MASK},
                                   {"bias", BIAS},
                                   {"causal", CAUSAL},
                                   {"q_offsets", Q_OFFSETS},
                                   {"kv_lens", KV_LENS},
                                   {"window", WINDOW},
                                   {"softcap", SOFTCAP},
                                   {"sinks", SINKS},
                                   {"alibi_slopes", ALIBI_SLOPES},
                                   {"scale", SCALE},
                                   {"dropout", DROPOUT},
                                   {"seeds", SEEDS},
                                   {"bf16_products", BF16_PRODUCTS},
                                   {"short_weights", SHORT_WEIGHTS},
                                   {"first_key", FIRST_KEY},
                                   {"state_in", STATE_IN},
                                   {"state_out", STATE_OUT},
                                   {"return_lse", RETURN_LSE},
                                   {"out", OUT},
                                   {"threads", THREADS}}};

enum { QUERY = Q, DROPOUT_P = DROPOUT, ATTN_MASK = MASK, IS_CAUSAL = CAUSAL };
constexpr name_list torch_names = {"scaled_dot_product_attention",
                                   6,
                                   3,
                                   {{"query", QUERY},
                                    {"key", K},
                                    {"value", V},
                                    {"attn_mask", ATTN_MASK},
                                    {"dropout_p", DROPOUT_P},
                                    {"is_causal", IS_CAUSAL},
                                    {"scale", SCALE},
                                    {"enable_gqa", ENABLE_GQA},
                                    {"out", OUT},
                                    {"threads", THREADS}}};

nb::object finish(call &c, PyObject *const *values)
{
    c.read_options(values);
    c.read_outputs(values);
    c.run();
    return c.result();
}

nb::object on_tensors(const name_list &list, PyObject *const *args, Py_ssize_t positional,
                      PyObject *names)
{
    values<ARGUMENTS> given;
    read_names(list, args, positional, names, given.of);
    call c;
    c.read_tensors(given.of);
    return finish(c, given.of);
}

} // namespace

nb::object attention(PyObject *const *args, Py_ssize_t positional, PyObject *names)
{
    return on_tensors(attention_names, args, positional, names);
}

nb::object attend_part(PyObject *const *args, Py_ssize_t positional, PyObject *names)
{
    return on_tensors(part_names, args, positional, names);
}

nb::object attention_varlen(PyObject *const *args, Py_ssize_t positional, PyObject *names)
{
    values<ARGUMENTS> given;
    read_names(varlen_names, args, positional, names, given.of);
    call c;
    c.read_packed(given.of);
    return finish(c, given.of);
}

nb::object attend_cache(PyObject *const *args, Py_ssize_t positional, PyObject *names)
{
    values<ARGUMENTS> given;
    read_names(cache_names, args, positional, names, given.of);
    call c;
    c.read_cached(given.of);
    return finish(c, given.of);
}

// Computes attention as torch's function of the same name does. A mask has bools or numbers.
// is_causal puts query row 0 at key 0. Without enable_gqa, key must have as many heads as query.
nb::object scaled_dot_product_attention(PyObject *const *args, Py_ssize_t positional,
                                        PyObject *names)
{
    values<ARGUMENTS> given;
    read_names(torch_names, args, positional, names, given.of);
    if (given.of[DROPOUT] && number(given.of[DROPOUT], "dropout_p") != 0)
        throw refused{PyExc_NotImplementedError,
                      "dropout_p is not 0: attnkit.attention has dropout, with seeds"};
    given.of[DROPOUT] = nullptr;
    const bool is_causal = truth(given.of[CAUSAL]);
    if (is_causal && given.of[MASK])
        bad_value("attn_mask: must be None if is_causal is true");
    const nb::object alignment = is_causal ? nb::object(nb::str("upper-left")) : nb::object();
    given.of[CAUSAL] = alignment.ptr();
    call c;
    c.read_tensors(given.of);
    if (!truth(given.of[ENABLE_GQA]) && c.d.args.q_heads != c.d.args.kv_heads)
        bad_value("key has " + std::to_string(c.d.args.kv_heads) + " heads and query " +
                  std::to_string(c.d.args.q_heads) + ": that needs enable_gqa");
    if (given.of[MASK] && !is_mask_of_truths(given.of[MASK])) {
        given.of[BIAS] = given.of[MASK];
        given.of[MASK] = nullptr;
    }
    return finish(c, given.of);
}

} // namespace attnkit_python
