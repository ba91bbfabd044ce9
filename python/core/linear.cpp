// SPDX-License-Identifier: Apache-2.0
//
// Linear maps by packed matrices, and the merge of results over several parts of the keys.
#include "python/core/call.h"
#include "python/core/functions.h"

#include <vector>

namespace attnkit_python
{

namespace
{

// An array as a list of rows: all dimensions before the last one become one dimension. `ndim` and
// `shape` are the dimensions of the array as given.
struct rows {
    array a;
    int ndim = 0;
    int64_t shape[most_dims] = {};
    int64_t count = 0, elements = 0;

    void read(PyObject *object, const char *name, bool writes)
    {
        if (writes)
            a.read_output(object, name);
        else
            a.read(object, name);
        a.expect_float();
        if (a.ndim < 1)
            bad_value(std::string(name) + " has no dimension");
        ndim = a.ndim;
        for (int d = 0; d < ndim; d++)
            shape[d] = a.shape[d];
        if (writes)
            a.expect_rows();
        else
            a.make_rows();
        a.make_list();
        count = a.shape[0];
        elements = a.shape[1];
    }
};

attnkit_tensor row_tensor(const array &a)
{
    attnkit_tensor tensor = {};
    tensor.data = a.data;
    tensor.type = a.type;
    tensor.layout = ATTNKIT_STRIDED;
    tensor.strides[2] = a.shape[0] > 1 ? a.strides[0] : 0;
    return tensor;
}

} // namespace

// pack(w, type) returns how many bytes the packed matrix needs. pack(w, type, memory) packs into
// memory, whose address must be a multiple of 64, and returns the same number.
nb::object pack(PyObject *const *args, Py_ssize_t positional, PyObject *names)
{
    enum { W, TYPE, MEMORY, COUNT };
    static const name_list list = {
        "pack", COUNT, 2, {{"w", W}, {"type", TYPE}, {"memory", MEMORY}}};
    values<COUNT> given;
    read_names(list, args, positional, names, given.of);
    array w, memory;
    w.read(given.of[W], "w");
    w.expect_float();
    w.expect_ndim(2);
    w.make_rows();
    attnkit_pack_args pack;
    attnkit_pack_args_init(&pack);
    pack.out_dim = w.shape[0];
    pack.in_dim = w.shape[1];
    pack.w = row_tensor(w);
    pack.packed_type = (attnkit_type)integer(given.of[TYPE], "type");
    char message[ATTNKIT_MESSAGE_SIZE];
    size_t bytes = 0;
    expect_ok(attnkit_packed_size(&pack, &bytes, message), message);
    if (!given.of[MEMORY])
        return nb::int_(bytes);
    memory.read_output(given.of[MEMORY], "memory");
    pack.packed = memory.data;
    pack.packed_size = (size_t)(memory.ndim == 1 ? memory.shape[0] * memory.item : 0);
    attnkit_status status;
    {
        nb::gil_scoped_release released;
        status = attnkit_pack(&pack, nullptr, message);
    }
    expect_ok(status, message);
    return nb::int_(bytes);
}

// Returns a message of the library for Python. A message may begin with `y`, the library's name of
// the result. Then `out`, the name in Python, replaces `y`.
static std::string with_out(const std::string &message)
{
    return message.rfind("y ", 0) == 0 ? "out" + message.substr(1) : message;
}

nb::object linear(PyObject *const *args, Py_ssize_t positional, PyObject *names)
{
    enum { ROWS, PACKED_W, TYPE, OUT_DIM, IN_DIM, OFFSET, BYTES, RESULT, ON, COUNT };
    static const name_list list = {"linear",
                                   COUNT,
                                   5,
                                   {{"x", ROWS},
                                    {"packed", PACKED_W},
                                    {"type", TYPE},
                                    {"out_dim", OUT_DIM},
                                    {"in_dim", IN_DIM},
                                    {"bias", OFFSET},
                                    {"integers", BYTES},
                                    {"out", RESULT},
                                    {"threads", ON}}};
    values<COUNT> given;
    read_names(list, args, positional, names, given.of);
    rows x, y;
    array packed, bias;
    x.read(given.of[ROWS], "x", false);
    packed.read(given.of[PACKED_W], "packed");
    attnkit_linear_args map;
    attnkit_linear_args_init(&map);
    map.rows = x.count;
    map.in_dim = integer(given.of[IN_DIM], "in_dim");
    map.out_dim = integer(given.of[OUT_DIM], "out_dim");
    if (x.elements != map.in_dim)
        bad_value("x has the last dimension " + std::to_string(x.elements) + ": w has rows of " +
                  std::to_string(map.in_dim));
    map.x = row_tensor(x.a);
    map.w.data = packed.data;
    map.w.type = (attnkit_type)integer(given.of[TYPE], "type");
    map.flags = truth(given.of[BYTES]) ? ATTNKIT_INTEGERS : 0;
    if (given.of[OFFSET]) {
        bias.read(given.of[OFFSET], "bias");
        if (bias.type != ATTNKIT_F32)
            bad_type("bias is " + bias.type_name() + ": must be float32");
        bias.expect_ndim(1);
        if (bias.shape[0] != map.out_dim)
            bad_value("bias has " + std::to_string(bias.shape[0]) + " elements: w has " +
                      std::to_string(map.out_dim) + " rows");
        bias.make_rows();
        map.bias = (const float *)bias.data;
    }
    int64_t shape[most_dims];
    for (int d = 0; d < x.ndim; d++)
        shape[d] = d + 1 < x.ndim ? x.shape[d] : map.out_dim;
    nb::object result;
    if (given.of[RESULT]) {
        y.read(given.of[RESULT], "out", true);
        bool is_same = y.ndim == x.ndim;
        for (int d = 0; is_same && d < x.ndim; d++)
            is_same = y.shape[d] == shape[d];
        if (!is_same)
            bad_value("out: must have the shape of x, with the last dimension " +
                      std::to_string(map.out_dim));
        result = nb::borrow(given.of[RESULT]);
        map.y = row_tensor(y.a);
    } else {
        fresh made = new_array(shape, x.ndim, x.a.type);
        result = std::move(made.object);
        map.y.data = made.data;
        map.y.type = x.a.type;
    }
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = exec_of(read_threads(given.of[ON]));
    expect_ok(attnkit_linear_workspace(&map, &exec, &exec.workspace_size, message), message);
    exec.workspace = workspace(exec.workspace_size);
    attnkit_status status;
    {
        nb::gil_scoped_release released;
        status = attnkit_linear(&map, &exec, message);
    }
    expect_ok(status, with_out(message).c_str());
    return result;
}

namespace
{

// The arrays out and lse of each part of a merge.
struct parts {
    std::vector<array> outs, lses;
    std::vector<const float *> out_data, lse_data;

    explicit parts(size_t count) : outs(count), lses(count)
    {
    }

    // Reads the list `outs` or the list `lses`, which has one array for each part. Makes the arrays
    // dense, because attnkit_merge takes the same strides for all parts. Returns the description of
    // each array, without an address.
    static attnkit_tensor read(PyObject *list, const char *name, std::vector<array> &arrays,
                               std::vector<const float *> &data)
    {
        for (size_t i = 0; i < arrays.size(); i++) {
            array &a = arrays[i];
            a.read(owned(PySequence_GetItem(list, (Py_ssize_t)i)).ptr(), name);
            if (a.type != ATTNKIT_F32)
                bad_type(std::string(name) + "[" + std::to_string(i) + "] is " + a.type_name() +
                         ": must be float32");
            if (a.ndim != arrays[0].ndim || a.shape_text() != arrays[0].shape_text())
                bad_value(std::string(name) + "[" + std::to_string(i) + "] has the shape " +
                          a.shape_text() + ": the first array has " + arrays[0].shape_text());
        }
        for (array &a : arrays) {
            a.make_dense();
            data.push_back((const float *)a.data);
        }
        attnkit_tensor tensor = {};
        tensor.type = ATTNKIT_F32;
        return tensor;
    }
};

} // namespace

nb::object merge(PyObject *const *args, Py_ssize_t positional, PyObject *names)
{
    enum { OUTS, LSES, WITH_LSE, ON, COUNT };
    static const name_list list = {
        "merge", 2, 2, {{"outs", OUTS}, {"lses", LSES}, {"return_lse", WITH_LSE}, {"threads", ON}}};
    values<COUNT> given;
    read_names(list, args, positional, names, given.of);
    for (const int place : {OUTS, LSES})
        if (!PyList_Check(given.of[place]) && !PyTuple_Check(given.of[place]))
            bad_type(std::string(place == OUTS ? "outs" : "lses") + ": must be a list of arrays");
    const Py_ssize_t count = PySequence_Size(given.of[OUTS]);
    if (count == 0 || PySequence_Size(given.of[LSES]) != count)
        bad_value("outs and lses: must have the same number of arrays, at least one");
    parts p((size_t)count);
    attnkit_merge_args merge;
    attnkit_merge_args_init(&merge);
    merge.part_out = parts::read(given.of[OUTS], "outs", p.outs, p.out_data);
    merge.part_lse = parts::read(given.of[LSES], "lses", p.lses, p.lse_data);
    const array &out = p.outs[0], &lse = p.lses[0];
    bool fits = out.ndim >= 2 && lse.ndim == out.ndim - 1;
    for (int d = 0; fits && d < lse.ndim; d++)
        fits = lse.shape[d] == out.shape[d];
    if (!fits)
        bad_value("lses have the shape " + lse.shape_text() + ": outs have " + out.shape_text());
    merge.parts = count;
    merge.batch = merge.q_heads = 1;
    merge.q_len = 1;
    for (int d = 0; d < lse.ndim; d++)
        merge.q_len *= lse.shape[d];
    merge.value_dim = out.shape[out.ndim - 1];
    merge.part_outs = p.out_data.data();
    merge.part_lses = p.lse_data.data();
    fresh result = new_array(out.shape, out.ndim, ATTNKIT_F32);
    merge.out.data = result.data;
    fresh total = {};
    if (truth(given.of[WITH_LSE])) {
        total = new_array(lse.shape, lse.ndim, ATTNKIT_F32);
        merge.lse.data = total.data;
    }
    const attnkit_exec exec = exec_of(read_threads(given.of[ON]));
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_status status;
    {
        nb::gil_scoped_release released;
        status = attnkit_merge(&merge, &exec, message);
    }
    expect_ok(status, message);
    return total.data ? nb::object(nb::make_tuple(result.object, total.object)) : result.object;
}

} // namespace attnkit_python
