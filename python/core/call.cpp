// SPDX-License-Identifier: Apache-2.0
//
// Reads the tensors of an attention call, takes or makes its outputs, and runs the call. Shapes
// follow torch: [..., heads, rows, elements], where all dimensions before the heads are the batch.
// Only packed sequences have another shape: [rows][heads][elements].
#include "python/core/call.h"

#include <cstring>

namespace attnkit_python
{

namespace
{

void read_input(array &a, PyObject *object, const char *name)
{
    a.read(object, name);
    a.expect_float();
    if (a.ndim < 2 || a.ndim > 6)
        bad_value(std::string(name) + " has the shape " + a.shape_text() +
                  ": must have 2 to 6 dimensions, [..., heads, rows, elements]");
}

// Refuses k or v unless it has the batch of q, and as many dimensions as q.
void expect_batch_of(const array &a, const char *name, const int64_t *shape, int ndim)
{
    bool is_same = a.ndim == ndim;
    for (int d = 0; is_same && d < ndim - 3; d++)
        is_same = a.shape[d] == shape[d];
    if (!is_same)
        bad_value(std::string(name) + " has the shape " + a.shape_text() +
                  ": must have the number of dimensions and the batch of q");
}

// Refuses an array that does not have the given shape.
void expect_shape(const array &a, const char *name, const int64_t *shape, int ndim)
{
    if (a.ndim == ndim && memcmp(a.shape, shape, sizeof *shape * (size_t)ndim) == 0)
        return;
    std::string text = "(";
    for (int d = 0; d < ndim; d++)
        text += (d ? ", " : "") + std::to_string(shape[d]);
    bad_value(std::string(name) + " has the shape " + a.shape_text() + ": must be " + text + ")");
}

// Returns the attnkit_tensor of packed sequences. The dimensions of the array are
// [rows][heads][elements].
attnkit_tensor packed_tensor(array &a)
{
    attnkit_tensor tensor = {};
    tensor.data = a.data;
    tensor.type = a.type;
    tensor.layout = ATTNKIT_STRIDED;
    tensor.strides[1] = a.shape[1] > 1 ? a.strides[1] : 0;
    tensor.strides[2] = a.shape[0] > 1 ? a.strides[0] : 0;
    return tensor;
}

int32_t weights_kind(PyObject *object)
{
    std::string text;
    if (!is_text(object, text))
        return truth(object) ? ATTNKIT_WEIGHTS_SOFTMAX : ATTNKIT_WEIGHTS_NONE;
    const char *const names[] = {"softmax", "biased", "capped", "scaled"};
    for (int i = 0; i < 4; i++)
        if (text == names[i])
            return ATTNKIT_WEIGHTS_SOFTMAX + i;
    bad_value("return_weights is '" + text +
              "': must be True, 'softmax', 'biased', 'capped' or 'scaled'");
}

} // namespace

void call::read_tensors(PyObject *const *values)
{
    read_input(q_, values[Q], "q");
    ndim_ = q_.ndim;
    memcpy(shape_, q_.shape, sizeof q_.shape);
    read_input(k_, values[K], "k");
    expect_batch_of(k_, "k", shape_, ndim_);
    read_input(v_, values[V], "v");
    expect_batch_of(v_, "v", shape_, ndim_);
    for (array *a : {&q_, &k_, &v_}) {
        a->make_rows();
        a->make_heads();
    }
    if (k_.shape[3] != q_.shape[3])
        bad_value("k has rows of " + std::to_string(k_.shape[3]) + " elements: q has " +
                  std::to_string(q_.shape[3]));
    if (v_.shape[1] != k_.shape[1] || v_.shape[2] != k_.shape[2])
        bad_value("v has the shape " + v_.shape_text() + ": must have the heads and rows of k");
    attnkit_attention_args_init(&d.args);
    d.args.batch = q_.shape[0];
    d.args.q_heads = q_.shape[1];
    d.args.q_len = q_.shape[2];
    d.args.head_dim = q_.shape[3];
    d.args.kv_heads = k_.shape[1];
    d.args.kv_len = kv_len = k_.shape[2];
    d.args.value_dim = v_.shape[3];
    if (v_.shape[3] == 0)
        bad_value("v has rows of no element");
    d.args.q = q_.tensor();
    d.args.k = k_.tensor();
    d.args.v = v_.tensor();
}

void call::read_packed(PyObject *const *values)
{
    is_packed_ = true;
    array *const arrays[] = {&q_, &k_, &v_};
    const char *const names[] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++) {
        arrays[i]->read(values[Q + i], names[i]);
        arrays[i]->expect_float();
        arrays[i]->expect_ndim(3);
        arrays[i]->make_rows();
    }
    if (k_.shape[2] != q_.shape[2])
        bad_value("k has rows of " + std::to_string(k_.shape[2]) + " elements: q has " +
                  std::to_string(q_.shape[2]));
    if (v_.shape[0] != k_.shape[0] || v_.shape[1] != k_.shape[1] || v_.shape[2] == 0)
        bad_value("v has the shape " + v_.shape_text() + ": must have the rows and heads of k");
    const int64_t batch = cu_q_.read_offsets(values[CU_SEQLENS_Q], "cu_seqlens_q");
    const int64_t kv_batch = cu_kv_.read_offsets(values[CU_SEQLENS_KV], "cu_seqlens_kv");
    if (kv_batch != batch)
        bad_value("cu_seqlens_kv has " + std::to_string(kv_batch + 1) +
                  " elements: cu_seqlens_q has " + std::to_string(batch + 1));
    ndim_ = 3;
    memcpy(shape_, q_.shape, sizeof q_.shape);
    attnkit_attention_args_init(&d.args);
    d.args.batch = batch;
    d.args.q_heads = q_.shape[1];
    d.args.q_len = q_.shape[0];
    d.args.head_dim = q_.shape[2];
    d.args.kv_heads = k_.shape[1];
    d.args.kv_len = kv_len = k_.shape[0];
    d.args.value_dim = v_.shape[2];
    d.args.q = packed_tensor(q_);
    d.args.k = packed_tensor(k_);
    d.args.v = packed_tensor(v_);
    attnkit_kv_storage_init(&d.storage);
    d.storage.cu_seqlens_q = cu_q_.ints();
    d.storage.cu_seqlens_kv = cu_kv_.ints();
}

void call::read_cached(PyObject *const *values)
{
    read_input(q_, values[Q], "q");
    ndim_ = q_.ndim;
    memcpy(shape_, q_.shape, sizeof q_.shape);
    q_.make_rows();
    q_.make_heads();
    attnkit_attention_args_init(&d.args);
    d.args.batch = q_.shape[0];
    d.args.q_heads = q_.shape[1];
    d.args.q_len = q_.shape[2];
    d.args.head_dim = q_.shape[3];
    d.args.q = q_.tensor();
    read_storage(values[CACHE]);
    if (q_.shape[0] != cache_.batch || q_.shape[3] != cache_.head_dim)
        bad_value("q has the shape " + q_.shape_text() + ": the cache is of batch " +
                  std::to_string(cache_.batch) + " and rows of " + std::to_string(cache_.head_dim) +
                  " elements");
}

void call::read_outputs(PyObject *const *values)
{
    if (d.states.size && d.states.state_out.max)
        return;
    int64_t shape[most_dims];
    memcpy(shape, shape_, sizeof shape);
    shape[ndim_ - 1] = d.args.value_dim;
    if (values[OUT]) {
        out_.read_output(values[OUT], "out");
        out_.expect_float();
        expect_shape(out_, "out", shape, ndim_);
        out_.expect_rows();
        out_object_ = nb::borrow(values[OUT]);
        if (!is_packed_)
            out_.make_heads();
        d.args.out = is_packed_ ? packed_tensor(out_) : out_.tensor();
    } else {
        fresh made = new_array(shape, ndim_, q_.type);
        out_object_ = std::move(made.object);
        d.args.out.data = made.data;
        d.args.out.type = q_.type;
        if (is_packed_) {
            const int64_t item = q_.type == ATTNKIT_F32 ? 4 : 2;
            d.args.out.layout = ATTNKIT_STRIDED;
            d.args.out.strides[1] = d.args.value_dim * item;
            d.args.out.strides[2] = d.args.q_heads * d.args.value_dim * item;
        }
    }
    if (truth(values[RETURN_LSE])) {
        const int64_t heads_rows[2] = {shape_[1], shape_[0]};
        fresh made = is_packed_ ? new_array(heads_rows, 2, ATTNKIT_F32)
                                : new_array(shape, ndim_ - 1, ATTNKIT_F32);
        lse_object_ = std::move(made.object);
        d.args.lse.data = made.data;
    }
    const int32_t kind = weights_kind(values[RETURN_WEIGHTS]);
    if (kind != ATTNKIT_WEIGHTS_NONE) {
        shape[ndim_ - 1] = kv_len;
        fresh made = new_array(shape, ndim_, ATTNKIT_F32);
        weights_object_ = std::move(made.object);
        attnkit_weights_out_init(&d.weights);
        d.weights.weights.data = made.data;
        d.weights.kind = kind;
    }
}

void call::run()
{
    run_planned(d);
}

nb::object call::result()
{
    if (!out_object_.is_valid())
        return nb::none();
    if (!lse_object_.is_valid() && !weights_object_.is_valid())
        return std::move(out_object_);
    if (!weights_object_.is_valid())
        return nb::make_tuple(out_object_, lse_object_);
    if (!lse_object_.is_valid())
        return nb::make_tuple(out_object_, weights_object_);
    return nb::make_tuple(out_object_, lse_object_, weights_object_);
}

} // namespace attnkit_python
