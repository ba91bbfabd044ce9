// SPDX-License-Identifier: Apache-2.0
//
// Tensors of OpenVINO are read in place: their strides go to attnkit, and a dimension of size 1
// that repeats has the stride 0. Only a mask with a single column is copied: the copy repeats this
// column for all keys. The threads are the threads of the TBB arena in which OpenVINO runs the
// model.
#include "python/openvino/run.h"

#include <attnkit.hpp>

#include <openvino/core/except.hpp>
#include <openvino/core/parallel.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace attnkit_openvino
{

namespace
{

using dims = std::array<int64_t, 4>; // batch, heads, rows, columns

attnkit_type type_of(const ov::Tensor &tensor)
{
    const ov::element::Type type = tensor.get_element_type();
    return type == ov::element::f16    ? ATTNKIT_F16
           : type == ov::element::bf16 ? ATTNKIT_BF16
                                       : ATTNKIT_F32;
}

// Returns the four sizes of a tensor. If the tensor has fewer dimensions, the first sizes are 1.
dims sizes(const ov::Tensor &tensor)
{
    dims made{1, 1, 1, 1};
    const ov::Shape &shape = tensor.get_shape();
    std::copy(shape.begin(), shape.end(), made.end() - static_cast<int64_t>(shape.size()));
    return made;
}

// Returns the size of a dimension for a call in which two tensors have the sizes a and b along this
// dimension. A size of 1 repeats.
int64_t together(int64_t a, int64_t b)
{
    OPENVINO_ASSERT(a == b || a == 1 || b == 1, "attnkit: sizes ", a, " and ", b, " do not fit");
    return a == 1 ? b : a;
}

// Describes a tensor for a call of the sizes `wanted`: batch entries, heads and rows. A dimension
// of size 1 repeats. The last number of `wanted` is not used.
attnkit_tensor described(const ov::Tensor &tensor, const dims &wanted)
{
    const dims size = sizes(tensor);
    const ov::Strides steps = tensor.get_strides();
    attnkit_tensor made =
        attnkit::strided(attnkit::tensor(tensor.data(), type_of(tensor)), 0, 0, 0);
    for (size_t i = 0; i < 3; i++) {
        const int64_t place =
            static_cast<int64_t>(i + steps.size()) - static_cast<int64_t>(size.size());
        if (place >= 0 && size[i] != 1)
            made.strides[i] = static_cast<int64_t>(steps[static_cast<size_t>(place)]);
        OPENVINO_ASSERT(size[i] == 1 || size[i] == wanted[i], "attnkit: a dimension has size ",
                        size[i], " instead of ", wanted[i]);
    }
    OPENVINO_ASSERT(steps.empty() || steps.back() == tensor.get_element_type().size(),
                    "attnkit: the elements of a row are not adjacent");
    return made;
}

// The arguments of a call, with the structs and the memory to which they point.
struct request {
    attnkit_attention_args args = attnkit::make<attnkit_attention_args>();
    attnkit_visibility visibility = attnkit::make<attnkit_visibility>();
    attnkit_score_mods scores = attnkit::make<attnkit_score_mods>();
    std::vector<unsigned char> columns; // a mask whose single column is repeated for all keys
};

void describe_shape(const ov::TensorVector &inputs, request &made)
{
    const dims q = sizes(inputs[0]), k = sizes(inputs[1]), v = sizes(inputs[2]);
    attnkit_attention_args &args = made.args;
    args.batch = together(together(q[0], k[0]), v[0]);
    args.q_heads = together(together(q[1], k[1]), v[1]);
    args.kv_heads = k[1] == 1 && v[1] == 1 ? 1 : args.q_heads;
    args.q_len = q[2];
    args.kv_len = k[2];
    args.head_dim = q[3];
    args.value_dim = v[3];
    OPENVINO_ASSERT(k[3] == q[3] && v[2] == k[2],
                    "attnkit: the shapes of query, key and value do not fit");
    const dims rows{args.batch, args.kv_heads, args.kv_len, 0};
    args.q = described(inputs[0], {args.batch, args.q_heads, args.q_len, 0});
    args.k = described(inputs[1], rows);
    args.v = described(inputs[2], rows);
}

// Returns the only element of a tensor of type f32, f16 or bf16. Throws for any other tensor.
double number(const ov::Tensor &tensor)
{
    OPENVINO_ASSERT(tensor.get_size() == 1, "attnkit: scale has ", tensor.get_size(), " elements");
    switch (tensor.get_element_type()) {
    case ov::element::f32:
        return static_cast<double>(*tensor.data<float>());
    case ov::element::f16:
        return static_cast<double>(static_cast<float>(*tensor.data<ov::float16>()));
    case ov::element::bf16:
        return static_cast<double>(static_cast<float>(*tensor.data<ov::bfloat16>()));
    default:
        OPENVINO_THROW("attnkit: scale is ", tensor.get_element_type());
    }
}

// Writes a mask [.., 1] to `memory` as [.., columns], and returns this memory as a tensor.
ov::Tensor with_columns(const ov::Tensor &mask, int64_t columns, std::vector<unsigned char> &memory)
{
    const size_t bytes = mask.get_element_type().size(), wanted = static_cast<size_t>(columns);
    const auto *const from = static_cast<const unsigned char *>(mask.data());
    memory.resize(mask.get_size() * wanted * bytes);
    for (size_t i = 0; i < mask.get_size() * wanted; i++)
        std::copy_n(from + i / wanted * bytes, bytes, memory.data() + i * bytes);
    ov::Shape shape = mask.get_shape();
    if (shape.empty())
        shape = {1};
    shape.back() = wanted;
    return {mask.get_element_type(), shape, memory.data()};
}

bool is_bool(const ov::Tensor &mask)
{
    return mask.get_element_type().size() == 1;
}

// Returns whether a mask is a single 0, which stands for no mask. Models with a scale and without a
// mask have such a mask, because the mask comes before the scale.
bool is_none(const ov::Tensor &mask)
{
    return mask.get_size() == 1 && !is_bool(mask) && number(mask) == 0;
}

void describe_mask(const ov::Tensor &given, request &made)
{
    attnkit_attention_args &args = made.args;
    const int64_t columns = args.kv_len;
    if (is_none(given) || args.batch * args.q_heads * args.q_len * columns == 0)
        return;
    const bool repeats = sizes(given)[3] == 1 && columns != 1;
    const ov::Tensor mask = repeats ? with_columns(given, columns, made.columns) : given;
    OPENVINO_ASSERT(sizes(mask)[3] == columns, "attnkit: attention_mask has ", sizes(mask)[3],
                    " columns instead of ", columns);
    const attnkit_tensor tensor = described(mask, {args.batch, args.q_heads, args.q_len, 0});
    if (is_bool(mask)) {
        made.visibility.mask = tensor;
        made.visibility.mask.type = ATTNKIT_BOOL;
        made.visibility.mask_kind = ATTNKIT_MASK_ATTEND;
        args.visibility = &made.visibility;
    } else {
        made.scores.bias = tensor;
        args.scores = &made.scores;
    }
}

// Sets the shape of the result. The result has as many dimensions as the tensor with the most
// dimensions among q, k and v.
void set_shape(ov::Tensor &out, const ov::TensorVector &inputs, const attnkit_attention_args &args)
{
    const dims all{args.batch, args.q_heads, args.q_len, args.value_dim};
    size_t count = 0;
    for (size_t i = 0; i < 3; i++)
        count = std::max(count, inputs[i].get_shape().size());
    out.set_shape(ov::Shape(all.end() - static_cast<int64_t>(count), all.end()));
}

void run_tasks(void *, int64_t count, void (*task)(void *arg, int64_t i), void *arg)
{
    // isolate() keeps this thread from beginning another call while it waits. The calls of a thread
    // share a workspace.
    tbb::this_task_arena::isolate([=] {
        tbb::parallel_for(
            int64_t(0), count, [=](int64_t i) { task(arg, i); }, tbb::simple_partitioner());
    });
}

void call(const attnkit_attention_args &args)
{
    static thread_local attnkit::workspace scratch;
    auto exec = attnkit::make<attnkit_exec>();
    exec.threads = parallel_get_max_threads();
    if (exec.threads > 1)
        exec.parallel_for = run_tasks;
    try {
        attnkit::attention(args, scratch, exec);
    } catch (const attnkit::error &problem) {
        OPENVINO_THROW("attnkit: ", problem.what());
    }
}

} // namespace

void run(ov::Tensor &out, const ov::TensorVector &inputs, bool causal)
{
    request made;
    attnkit_attention_args &args = made.args;
    describe_shape(inputs, made);
    if (causal) { // opset13: a causal call ignores its mask
        args.flags |= ATTNKIT_CAUSAL;
        args.align = ATTNKIT_ALIGN_UPPER_LEFT;
    } else if (inputs.size() > 3) {
        describe_mask(inputs[3], made);
    }
    if (inputs.size() > 4) {
        args.flags |= ATTNKIT_SCALE_GIVEN;
        args.scale = number(inputs[4]);
    }
    set_shape(out, inputs, args);
    args.out = described(out, {args.batch, args.q_heads, args.q_len, 0});
    call(args);
}

} // namespace attnkit_openvino
