// SPDX-License-Identifier: Apache-2.0
//
// The whole layer: packing its weights, and a call of it, with or without a cache.
#include "python/core/call.h"
#include "python/core/functions.h"

#include <cstring>

namespace attnkit_python
{

namespace
{

constexpr int matrices = 4, biases = 4;

// Reads each matrix or bias that is given, and makes it dense. All of them must have `ndim`
// dimensions and the same type. Returns this type, or f32 if none is given.
int32_t read_weights(PyObject *const *given, const char *const *names, array *arrays, int ndim)
{
    int32_t type = ATTNKIT_F32;
    for (int i = 0, found = -1; i < matrices; i++) {
        if (!given[i])
            continue;
        array &a = arrays[i];
        a.read(given[i], names[i]);
        a.expect_float();
        a.expect_ndim(ndim);
        a.make_dense();
        if (found >= 0 && a.type != type)
            bad_type(std::string(names[i]) + " is " + a.type_name() + ": " + names[found] + " is " +
                     arrays[found].type_name());
        type = a.type;
        found = i;
    }
    return type;
}

void expect_rows_of(const array &bias, const char *name, const array &w)
{
    if (bias.is_given() && bias.shape[0] != w.shape[0])
        bad_value(std::string(name) + " has " + std::to_string(bias.shape[0]) +
                  " elements: its matrix has " + std::to_string(w.shape[0]) + " rows");
}

void expect_matrix(const array &w, const char *name, int64_t out, int64_t in)
{
    if (w.shape[0] != out || (in && w.shape[1] != in))
        bad_value(std::string(name) + " has the shape " + w.shape_text() + ": must have " +
                  std::to_string(out) + " rows" +
                  (in ? " of " + std::to_string(in) + " elements" : ""));
}

// Reads (kind, dim, base) of a rotation.
attnkit_rotation read_rotation(PyObject *rope)
{
    attnkit_rotation rotation;
    attnkit_rotation_init(&rotation);
    rotation.kind = (attnkit_rope)integer(PyTuple_GetItem(rope, 0), "rope");
    rotation.dim = integer(PyTuple_GetItem(rope, 1), "rope_dim");
    rotation.base = number(PyTuple_GetItem(rope, 2), "rope_base");
    return rotation;
}

attnkit_tensor rows_tensor(const array &a)
{
    attnkit_tensor tensor = {};
    tensor.data = a.data;
    tensor.type = a.type;
    tensor.layout = ATTNKIT_STRIDED;
    tensor.strides[0] = a.shape[0] > 1 ? a.strides[0] : 0;
    tensor.strides[2] = a.shape[1] > 1 ? a.strides[1] : 0;
    return tensor;
}

// Reads x, key or value: [batch][rows][n]. n must be `elements`, the number of elements for which
// the layer was packed.
void read_rows(array &a, PyObject *object, const char *name, PyObject *elements)
{
    a.read(object, name);
    a.expect_float();
    a.expect_ndim(3);
    if (a.shape[2] != integer(elements, "d_model"))
        bad_value(std::string(name) + " has the shape " + a.shape_text() +
                  ": the layer takes rows of " + nb::str(nb::handle(elements)).c_str() +
                  " elements");
    a.make_rows();
}

// Checks that x or key, which has rows of `elements` elements, can stand in for key or value.
void check_stand_in(const char *name, const char *other, int64_t elements, int64_t taken)
{
    if (elements != taken)
        bad_value(std::string(name) + " is missing: it cannot be " + other + ", because rows of " +
                  other + " have " + std::to_string(elements) +
                  " elements and the layer takes rows of " + std::to_string(taken));
}

} // namespace

nb::object layer_pack(PyObject *const *args, Py_ssize_t positional, PyObject *names)
{
    enum { WQ, WK, WV, WO, BQ, BK, BV, BO, HEADS, KV, DIM, VALUE_DIM, TYPE, MEMORY, COUNT };
    static const name_list list = {"layer_pack",
                                   0,
                                   0,
                                   {{"w_q", WQ},
                                    {"w_k", WK},
                                    {"w_v", WV},
                                    {"w_o", WO},
                                    {"b_q", BQ},
                                    {"b_k", BK},
                                    {"b_v", BV},
                                    {"b_o", BO},
                                    {"q_heads", HEADS},
                                    {"kv_heads", KV},
                                    {"head_dim", DIM},
                                    {"value_dim", VALUE_DIM},
                                    {"type", TYPE},
                                    {"memory", MEMORY}}};
    static const char *const w_names[] = {"w_q", "w_k", "w_v", "w_o"};
    static const char *const b_names[] = {"b_q", "b_k", "b_v", "b_o"};
    values<COUNT> given;
    read_names(list, args, positional, names, given.of);
    for (int i = 0; i < matrices; i++)
        if (!given.of[i])
            bad_type(std::string(w_names[i]) + " is missing");
    array w[matrices], b[biases];
    attnkit_layer_weights weights;
    attnkit_layer_weights_init(&weights);
    weights.w_type = read_weights(given.of + WQ, w_names, w, 2);
    weights.bias_type = read_weights(given.of + BQ, b_names, b, 1);
    weights.q_heads = integer(given.of[HEADS], "q_heads");
    weights.kv_heads = integer(given.of[KV], "kv_heads");
    weights.head_dim = integer(given.of[DIM], "head_dim");
    weights.value_dim = integer(given.of[VALUE_DIM], "value_dim");
    weights.packed_type = (attnkit_type)integer(given.of[TYPE], "type");
    weights.d_model = w[0].shape[1];
    weights.d_key = w[1].shape[1];
    weights.d_value = w[2].shape[1];
    weights.d_out = w[3].shape[0];
    expect_matrix(w[0], "w_q", weights.q_heads * weights.head_dim, 0);
    expect_matrix(w[1], "w_k", weights.kv_heads * weights.head_dim, 0);
    expect_matrix(w[2], "w_v", weights.kv_heads * weights.value_dim, 0);
    expect_matrix(w[3], "w_o", w[3].shape[0], weights.q_heads * weights.value_dim);
    for (int i = 0; i < biases; i++)
        expect_rows_of(b[i], b_names[i], w[i]);
    weights.w_q = w[0].data;
    weights.w_k = w[1].data;
    weights.w_v = w[2].data;
    weights.w_o = w[3].data;
    weights.b_q = b[0].data;
    weights.b_k = b[1].data;
    weights.b_v = b[2].data;
    weights.b_o = b[3].data;
    char message[ATTNKIT_MESSAGE_SIZE];
    size_t bytes = 0;
    expect_ok(attnkit_layer_packed_size(&weights, &bytes, message), message);
    if (!given.of[MEMORY])
        return nb::int_(bytes);
    array memory;
    memory.read_output(given.of[MEMORY], "memory");
    expect_ok(attnkit_layer_pack(&weights, memory.data, (size_t)memory.shape[0], nullptr, message),
              message);
    return nb::int_(bytes);
}

void call::read_layer(const layer_shape &shape, PyObject *const *values)
{
    attnkit_attention_args_init(&d.args);
    d.args.batch = shape.batch;
    d.args.q_heads = shape.q_heads;
    d.args.q_len = shape.q_len;
    ndim_ = 4;
    shape_[0] = shape.batch;
    shape_[1] = shape.q_heads;
    shape_[2] = shape.q_len;
    kv_len = shape.kv_len;
    if (values[CACHE])
        read_storage(values[CACHE]);
    read_options(values);
    // attnkit_layer sets these fields itself, and refuses numbers other than 0.
    d.args.batch = d.args.q_heads = d.args.q_len = 0;
    d.args.kv_heads = d.args.value_dim = 0;
    link(d);
}

nb::object layer(PyObject *const *args, Py_ssize_t positional, PyObject *names)
{
    enum { HEADS = ARGUMENTS, D_MODEL, D_KEY, D_VALUE, D_OUT, COUNT };
    static const name_list list = {"layer",
                                   7,
                                   7,
                                   {{"x", X},
                                    {"packed", PACKED},
                                    {"q_heads", HEADS},
                                    {"d_model", D_MODEL},
                                    {"d_key", D_KEY},
                                    {"d_value", D_VALUE},
                                    {"d_out", D_OUT},
                                    {"key", KEY},
                                    {"value", VALUE},
                                    {"cache", CACHE},
                                    {"cached", CACHED},
                                    {"rope", ROPE},
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
                                    {"out", OUT},
                                    {"threads", THREADS}}};
    values<COUNT> given;
    read_names(list, args, positional, names, given.of);
    array x, key, value, packed, out;
    integers cached;
    read_rows(x, given.of[X], "x", given.of[D_MODEL]);
    packed.read(given.of[PACKED], "packed");
    attnkit_layer_args layer;
    attnkit_layer_args_init(&layer);
    layer.packed = packed.data;
    layer.packed_size = (size_t)packed.shape[0];
    layer.batch = x.shape[0];
    layer.q_len = x.shape[1];
    layer.x = rows_tensor(x);
    const struct {
        int place, elements;
        const char *name;
        array &a;
        attnkit_tensor &tensor;
    } others[] = {{KEY, D_KEY, "key", key, layer.key},
                  {VALUE, D_VALUE, "value", value, layer.value}};
    for (const auto &other : others) {
        if (!given.of[other.place])
            continue;
        read_rows(other.a, given.of[other.place], other.name, given.of[other.elements]);
        if (other.a.shape[0] != x.shape[0])
            bad_value(std::string(other.name) + " has the shape " + other.a.shape_text() +
                      ": x has a batch of " + std::to_string(x.shape[0]));
        other.tensor = rows_tensor(other.a);
    }
    const int64_t own_elements[] = {x.shape[2], key.is_given() ? key.shape[2] : x.shape[2]};
    if (!key.is_given())
        check_stand_in("key", "x", own_elements[0], integer(given.of[D_KEY], "d_key"));
    if (!value.is_given())
        check_stand_in("value", key.is_given() ? "key" : "x", own_elements[1],
                       integer(given.of[D_VALUE], "d_value"));
    if (value.is_given() && (!key.is_given() || value.shape[1] != key.shape[1]))
        bad_value("value: must have as many rows as key");
    layer.kv_len = key.is_given() ? key.shape[1] : 0;
    attnkit_rotation rotation;
    if (given.of[ROPE]) {
        rotation = read_rotation(given.of[ROPE]);
        layer.rotation = &rotation;
    }
    call c;
    const int64_t kv_len = key.is_given() ? key.shape[1] : layer.q_len;
    c.read_layer({layer.batch, integer(given.of[HEADS], "q_heads"), layer.q_len, kv_len}, given.of);
    layer.attention = &c.d.args;
    if (given.of[CACHED]) {
        cached.read(given.of[CACHED], "cached", layer.batch);
        layer.cached = cached.ints();
    }
    const int64_t shape[] = {layer.batch, layer.q_len, integer(given.of[D_OUT], "d_out")};
    nb::object result;
    if (given.of[OUT]) {
        out.read_output(given.of[OUT], "out");
        out.expect_float();
        out.expect_ndim(3);
        out.expect_rows();
        if (memcmp(out.shape, shape, sizeof shape) != 0)
            bad_value("out has the shape " + out.shape_text() + ": must be " +
                      text_of_shape(shape, 3));
        layer.out = rows_tensor(out);
        result = nb::borrow(given.of[OUT]);
    } else {
        fresh made = new_array(shape, 3, x.type);
        layer.out.data = made.data;
        layer.out.type = x.type;
        result = std::move(made.object);
    }
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = exec_of(c.d.threads);
    expect_ok(attnkit_layer_workspace(&layer, &exec, &exec.workspace_size, message), message);
    exec.workspace = workspace(exec.workspace_size);
    attnkit_status status;
    {
        nb::gil_scoped_release released;
        status = attnkit_layer(&layer, &exec, message);
    }
    expect_ok(status, message);
    return result;
}

} // namespace attnkit_python
