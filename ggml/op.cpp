// SPDX-License-Identifier: Apache-2.0
//
// The mapping of GGML_OP_FLASH_ATTN_EXT to attnkit's attention. ggml numbers dimensions from the
// innermost one: q is [batch][q_heads][q_len][head_dim] with the sizes ne[3] .. ne[0] and the
// strides nb[3] .. nb[0]. The result is [batch][q_len][q_heads][value_dim]. The mask is a bias.
// Either all heads share the mask, or each head has a mask of its own. With max_bias, each head
// multiplies the mask by the slope of the head. No tensor is copied.
#include "ggml/op.h"

#include <attnkit.hpp>

#include <ggml-impl.h>

#include <cmath>
#include <cstring>

namespace attnkit_ggml
{

namespace
{

// The types of ggml that attnkit supports for K and V, with attnkit's name of each type.
constexpr struct {
    ggml_type ggml;
    attnkit_type attnkit;
} types[] = {
    {GGML_TYPE_F32, ATTNKIT_F32},       {GGML_TYPE_F16, ATTNKIT_F16},
    {GGML_TYPE_BF16, ATTNKIT_BF16},     {GGML_TYPE_Q8_0, ATTNKIT_Q8_0},
    {GGML_TYPE_Q4_0, ATTNKIT_Q4_0},     {GGML_TYPE_Q4_1, ATTNKIT_Q4_1},
    {GGML_TYPE_Q5_0, ATTNKIT_Q5_0},     {GGML_TYPE_Q5_1, ATTNKIT_Q5_1},
    {GGML_TYPE_IQ4_NL, ATTNKIT_IQ4_NL}, {GGML_TYPE_Q1_0, ATTNKIT_Q1_0},
    {GGML_TYPE_Q2_0, ATTNKIT_Q2_0},
};

bool find_type(ggml_type wanted, attnkit_type &type)
{
    for (const auto &row : types)
        if (row.ggml == wanted) {
            type = row.attnkit;
            return true;
        }
    return false;
}

// Returns the stride of a dimension. If the dimension has size 1, but another size is wanted, the
// dimension repeats: its stride is 0.
int64_t stride(const ggml_tensor *t, int dim, int64_t wanted)
{
    return t->ne[dim] == 1 && wanted != 1 ? 0 : static_cast<int64_t>(t->nb[dim]);
}

bool repeats(int64_t size, int64_t wanted)
{
    return size == wanted || size == 1;
}

attnkit_tensor strided(attnkit_type type, int64_t batch, int64_t head, int64_t row)
{
    return attnkit::strided(attnkit::tensor(ATTNKIT_LATER, type), batch, head, row);
}

// Returns a text such as "K [128, 96, 8, 1] of q4_1".
std::string described(const char *name, const ggml_tensor *t)
{
    std::string text = name;
    for (int i = 0; i < GGML_MAX_DIMS; i++)
        text += (i ? ", " : " [") + std::to_string(t->ne[i]);
    return text + "] of " + ggml_type_name(t->type);
}

[[noreturn]] void refuse(const std::string &reason)
{
    throw attnkit::error(ATTNKIT_UNSUPPORTED, reason.c_str());
}

void must(bool holds, const char *otherwise)
{
    if (!holds)
        refuse(otherwise);
}

void check_rows(const char *name, const ggml_tensor *t)
{
    if (t->nb[0] != ggml_type_size(t->type))
        refuse(std::string("the elements of a row of ") + name + " are not adjacent");
}

// Describes K or V. A tensor of one head stands for `heads` heads.
attnkit_tensor describe_cache(const char *name, const ggml_tensor *t, int64_t heads)
{
    attnkit_type type;
    if (!find_type(t->type, type))
        refuse(std::string("attnkit has no ") + name + " of " + ggml_type_name(t->type));
    check_rows(name, t);
    return strided(type, t->nb[3], stride(t, 2, heads), t->nb[1]);
}

void describe_tensors(const ggml_tensor *op, attnkit_attention_args &args)
{
    const ggml_tensor *const q = op->src[0], *const k = op->src[1], *const v = op->src[2];
    must(q->type == GGML_TYPE_F32 && op->type == GGML_TYPE_F32, "q and the result must be f32");
    must(k->ne[0] == q->ne[0] && k->ne[1] == v->ne[1] && k->ne[3] == q->ne[3] &&
             v->ne[3] == q->ne[3],
         "the sizes of q, K and V do not fit together");
    must(repeats(k->ne[2], args.kv_heads) && repeats(v->ne[2], args.kv_heads),
         "K and V have different numbers of heads, neither of which is 1");
    check_rows("q", q);
    check_rows("the result", op);
    args.q = strided(ATTNKIT_F32, q->nb[3], q->nb[2], q->nb[1]);
    args.out = strided(ATTNKIT_F32, op->nb[3], op->nb[1], op->nb[2]);
    args.k = describe_cache("K", k, args.kv_heads);
    args.v = describe_cache("V", v, args.kv_heads);
}

void describe_mask(const ggml_tensor *mask, op_shape &shape)
{
    const attnkit_attention_args &args = shape.args;
    must(mask->type == GGML_TYPE_F16, "the mask must be f16");
    must(mask->ne[0] >= args.kv_len, "the mask has fewer columns than there are keys");
    must(mask->ne[1] >= args.q_len, "the mask has fewer rows than there are queries");
    must(repeats(mask->ne[2], args.q_heads) && repeats(mask->ne[3], args.batch),
         "the mask must have 1 head or all heads, and 1 sequence or all sequences");
    check_rows("the mask", mask);
    shape.scores.bias = strided(ATTNKIT_F16, stride(mask, 3, args.batch),
                                stride(mask, 2, args.q_heads), mask->nb[1]);
}

void describe_scores(const ggml_tensor *op, op_shape &shape)
{
    const ggml_tensor *const mask = op->src[3], *const sinks = op->src[4];
    shape.args.scale = ggml_get_op_params_f32(op, 0);
    shape.max_bias = std::fmax(ggml_get_op_params_f32(op, 1), 0.0f);
    shape.scores.softcap = ggml_get_op_params_f32(op, 2);
    if (shape.max_bias > 0)
        shape.scores.bias_scales = static_cast<const float *>(ATTNKIT_LATER);
    if (sinks) {
        must(sinks->type == GGML_TYPE_F32 && sinks->ne[0] == shape.args.q_heads,
             "the sinks must be f32, one for each head");
        check_rows("the sinks", sinks);
        shape.scores.sinks = static_cast<const float *>(ATTNKIT_LATER);
    }
    must(mask || shape.max_bias == 0, "max_bias is given, but no mask");
    if (mask)
        describe_mask(mask, shape);
}

} // namespace

void describe(const ggml_tensor *op, op_shape &shape)
{
    const ggml_tensor *const q = op->src[0], *const k = op->src[1], *const v = op->src[2];
    std::memset(&shape, 0,
                sizeof shape); // clears the padding, too: shapes are compared by their bytes
    shape.args.size = sizeof shape.args;
    shape.scores.size = sizeof shape.scores;
    shape.args.flags = ATTNKIT_SCALE_GIVEN;
    shape.args.batch = q->ne[3];
    shape.args.q_heads = q->ne[2];
    shape.args.kv_heads = k->ne[2] > v->ne[2] ? k->ne[2] : v->ne[2];
    shape.args.q_len = q->ne[1];
    shape.args.kv_len = k->ne[1];
    shape.args.head_dim = q->ne[0];
    shape.args.value_dim = v->ne[0];
    describe_tensors(op, shape.args);
    describe_scores(op, shape);
}

std::string why_not(const ggml_tensor *op)
{
    op_shape shape;
    size_t bytes;
    try {
        describe(op, shape);
        const attnkit_attention_args args = arguments(shape);
        attnkit::call(attnkit_attention_workspace, &args, nullptr, &bytes);
    } catch (const attnkit::error &problem) {
        return std::string(problem.what()) + " (the first such op has " +
               described("q", op->src[0]) + ", " + described("K", op->src[1]) + ", " +
               described("V", op->src[2]) + ")";
    }
    return "";
}

attnkit_attention_args arguments(const op_shape &shape)
{
    attnkit_attention_args args = shape.args;
    args.scores = &shape.scores;
    return args;
}

// Returns the slope of each head, computed as in ggml. `whole` is the largest power of two that is
// at most the number of heads. The first `whole` heads have powers of `base`, the other heads have
// odd powers of `between`.
std::vector<float> slopes(const op_shape &shape)
{
    std::vector<float> made;
    if (shape.max_bias <= 0)
        return made;
    const int64_t heads = shape.args.q_heads;
    int64_t whole = 1;
    while (2 * whole <= heads)
        whole *= 2;
    const float base = std::pow(2.0f, -shape.max_bias / static_cast<float>(whole)),
                between = std::pow(2.0f, -(shape.max_bias / 2.0f) / static_cast<float>(whole));
    for (int64_t h = 0; h < heads; h++)
        made.push_back(h < whole ? std::pow(base, static_cast<float>(h + 1))
                                 : std::pow(between, static_cast<float>(2 * (h - whole) + 1)));
    return made;
}

attnkit_attention_data addresses(const ggml_tensor *op, const std::vector<float> &slopes,
                                 attnkit_attention_group_data &groups)
{
    attnkit_attention_group_data_init(&groups);
    groups.bias = op->src[3] ? op->src[3]->data : nullptr;
    groups.sinks = op->src[4] ? static_cast<const float *>(op->src[4]->data) : nullptr;
    groups.bias_scales = slopes.empty() ? nullptr : slopes.data();
    attnkit_attention_data data;
    attnkit_attention_data_init(&data);
    data.batch = op->src[0]->ne[3];
    data.q_len = op->src[0]->ne[1];
    data.kv_len = op->src[1]->ne[1];
    data.q = op->src[0]->data;
    data.k = op->src[1]->data;
    data.v = op->src[2]->data;
    data.out = op->data;
    data.groups = &groups;
    return data;
}

} // namespace attnkit_ggml
