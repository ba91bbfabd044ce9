// SPDX-License-Identifier: Apache-2.0
//
// The op attnkit::attention. It turns the arguments of its schema, one after the other, into the
// structs of a call.
#include "python/torch/mask.h"
#include "python/torch/ops.h"
#include "python/torch/run.h"

#include <cstring>

namespace attnkit_torch
{

using attnkit_python::description;

// align has the values of attnkit_align. A window_left or window_right of -1 means no bound, and a
// softcap of 0 means no softcap.
const char *const attention_schema =
    "attention(Tensor q, Tensor k, Tensor v, Tensor? mask=None, Tensor? bias=None, "
    "bool causal=False, int align=0, Tensor? q_offsets=None, Tensor? kv_lens=None, "
    "bool windowed=False, SymInt window_left=-1, SymInt window_right=-1, SymInt keep_first=0, "
    "float softcap=0.0, Tensor? sinks=None, Tensor? alibi_slopes=None, float? scale=None, "
    "bool rows_first=False, bool bf16_products=False, bool short_weights=False) -> "
    "(Tensor, Tensor)";

namespace
{

// The arguments. The constructor takes them from the stack, in the order of the schema.
struct arguments {
    explicit arguments(const word *stack);

    tensors t;
    tensor mask, bias, q_offsets, kv_lens, sinks, alibi_slopes;
    bool is_causal, is_windowed, is_scaled, has_products, has_short_weights;
    int64_t align, window_left, window_right, keep_first;
    double softcap, scale = 0;
};

template <class type> type plain(word value)
{
    type result;
    memcpy(&result, &value, sizeof result);
    return result;
}

arguments::arguments(const word *stack)
{
    t.q = take_tensor(*stack++);
    t.k = take_tensor(*stack++);
    t.v = take_tensor(*stack++);
    mask = take_optional_tensor(*stack++);
    bias = take_optional_tensor(*stack++);
    is_causal = plain<bool>(*stack++);
    align = plain<int64_t>(*stack++);
    q_offsets = take_optional_tensor(*stack++);
    kv_lens = take_optional_tensor(*stack++);
    is_windowed = plain<bool>(*stack++);
    window_left = plain<int64_t>(*stack++);
    window_right = plain<int64_t>(*stack++);
    keep_first = plain<int64_t>(*stack++);
    softcap = plain<double>(*stack++);
    sinks = take_optional_tensor(*stack++);
    alibi_slopes = take_optional_tensor(*stack++);
    is_scaled = take_optional_float(*stack++, scale);
    t.has_rows_first = plain<bool>(*stack++);
    has_products = plain<bool>(*stack++);
    has_short_weights = plain<bool>(*stack++);
}

// Reads a tensor of one dimension with `count` elements.
view read_list(tensor &t, int64_t count, const char *name)
{
    const view list = read_rows(t, name);
    if (list.ndim != 1 || list.shape[0] != count)
        refuse(std::string(name) + " has the shape " + shape_text(list) + ": must be (" +
               std::to_string(count) + ",)");
    return list;
}

attnkit_ints read_ints(tensor &t, int64_t count, const char *name)
{
    attnkit_ints ints = {};
    if (!t)
        return ints;
    const view list = read_list(t, count, name);
    if (list.type != INT32 && list.type != INT64)
        refuse(std::string(name) + " must be int32 or int64");
    ints.data = list.data;
    ints.type = list.type == INT32 ? ATTNKIT_INT32 : ATTNKIT_INT64;
    return ints;
}

const float *read_floats(description &d, tensor &t, const char *name)
{
    if (!t)
        return nullptr;
    const view list = read_list(t, d.args.q_heads, name);
    if (list.type != ATTNKIT_F32)
        refuse(std::string(name) + " must be float32");
    d.scores.size = sizeof d.scores;
    return (const float *)list.data;
}

void describe_positions(description &d, arguments &a)
{
    d.args.flags |= a.is_causal ? ATTNKIT_CAUSAL : 0;
    d.args.align = (attnkit_align)a.align;
    d.args.q_offsets = read_ints(a.q_offsets, d.args.batch, "q_offsets");
    d.visibility.kv_lens = read_ints(a.kv_lens, d.args.batch, "kv_lens");
    if (a.kv_lens || a.is_windowed)
        d.visibility.size = sizeof d.visibility;
    if (!a.is_windowed)
        return;
    attnkit_window_init(&d.window);
    d.window.left = a.window_left;
    d.window.right = a.window_right;
    d.window.keep_first = a.keep_first;
}

void describe_scores(description &d, arguments &a)
{
    if (a.is_scaled) {
        d.args.flags |= ATTNKIT_SCALE_GIVEN;
        d.args.scale = a.scale;
    }
    if (a.softcap != 0) {
        d.scores.size = sizeof d.scores;
        d.scores.softcap = a.softcap;
    }
    d.scores.sinks = read_floats(d, a.sinks, "sinks");
    d.scores.alibi_slopes = read_floats(d, a.alibi_slopes, "alibi_slopes");
}

} // namespace

void attention(word *stack, uint64_t, uint64_t)
{
    arguments a(stack);
    description d = {};
    mask mask_of_bools, bias;
    describe_tensors(d, a.t, HEADS_FIRST);
    describe_positions(d, a);
    describe_scores(d, a);
    d.args.flags |= a.has_products ? ATTNKIT_BF16_PRODUCTS : 0;
    d.args.flags |= a.has_short_weights ? ATTNKIT_SHORT_WEIGHTS : 0;
    if (a.mask)
        mask_of_bools.add(d, std::move(a.mask), BOOLS, "mask");
    if (a.bias)
        bias.add(d, std::move(a.bias), NUMBERS, "bias");
    run(d);
    stack[0] = word_of(result(a.t));
    stack[1] = word_of(std::move(a.t.lse));
}

} // namespace attnkit_torch
