// SPDX-License-Identifier: Apache-2.0
//
// Reads the KVCache and the States of an attention call, and appends rows to a KVCache.
#include "python/core/cache.h"

#include "python/core/call.h"
#include "python/core/functions.h"

namespace attnkit_python
{

void cache::read(PyObject *object)
{
    constexpr int numbers = 10, arrays = 5;
    if (!PyTuple_Check(object) || PyTuple_Size(object) != numbers + arrays)
        bad_type("cache is not the tuple of a KVCache");
    int64_t *const whole[numbers] = {&type,      &batch,    &kv_heads,  &capacity, &head_dim,
                                     &value_dim, &is_tiled, &page_size, &pages,    &group};
    for (int i = 0; i < numbers; i++)
        *whole[i] = integer(PyTuple_GetItem(object, i), "cache");
    array *const lists[arrays] = {&k, &v, &k_scales, &v_scales, &table};
    const char *const names[arrays] = {"cache.k", "cache.v", "cache.k_scales", "cache.v_scales",
                                       "cache.block_table"};
    for (int i = 0; i < arrays; i++) {
        PyObject *const item = PyTuple_GetItem(object, numbers + i);
        if (item != Py_None)
            lists[i]->read(item, names[i]);
    }
}

attnkit_tensor cache::k_tensor() const
{
    attnkit_tensor tensor = {};
    tensor.data = k.data;
    tensor.type = (attnkit_type)type;
    tensor.layout = is_tiled ? ATTNKIT_TILED : 0;
    return tensor;
}

attnkit_tensor cache::v_tensor() const
{
    attnkit_tensor tensor = {};
    tensor.data = v.data;
    tensor.type = (attnkit_type)type;
    return tensor;
}

// Describes the scales of K or V. The layout field stays 0: attnkit takes scales to be in tiles if
// the elements that they belong to are in tiles.
static attnkit_tensor scales_tensor(const array &scales)
{
    attnkit_tensor tensor = {};
    tensor.data = scales.is_given() ? scales.data : nullptr;
    return tensor;
}

attnkit_pages cache::page_group() const
{
    attnkit_pages group;
    attnkit_pages_init(&group);
    group.block_table = (const int32_t *)table.data;
    group.block_table_stride = table.shape[1];
    group.page_size = page_size;
    group.pages = pages;
    return group;
}

void call::read_storage(PyObject *object)
{
    cache_.read(object);
    const cache &c = cache_;
    d.args.kv_heads = c.kv_heads;
    d.args.value_dim = c.value_dim;
    d.args.kv_len = kv_len = c.capacity;
    d.args.k = c.k_tensor();
    d.args.v = c.v_tensor();
    attnkit_kv_storage_init(&d.storage);
    if (c.k_scales.is_given()) {
        d.storage.k_scales = scales_tensor(c.k_scales);
        d.storage.v_scales = scales_tensor(c.v_scales);
        d.storage.k_scale_group = d.storage.v_scale_group = c.group;
    }
    if (c.has_pages())
        d.pages = c.page_group();
}

// Reads the arrays (max, sum, out) of a State, and returns their addresses. The arrays must be
// dense and writable. A call has batch * q_heads * q_len rows. max and sum have one element for
// each row, and out has value_dim elements for each row.
attnkit_state call::state_of(PyObject *object, array *arrays, const char *name)
{
    if (!PyTuple_Check(object) || PyTuple_Size(object) != 3)
        bad_type(std::string(name) + ": not the arrays of a State");
    const int32_t types[] = {ATTNKIT_F32, FLOAT64, FLOAT64};
    const int64_t rows = d.args.batch * d.args.q_heads * d.args.q_len;
    for (int i = 0; i < 3; i++) {
        arrays[i].read_output(PyTuple_GetItem(object, i), name);
        int64_t elements = 1, dense = arrays[i].item;
        bool is_dense = true;
        for (int dim = arrays[i].ndim - 1; dim >= 0; dim--) {
            elements *= arrays[i].shape[dim];
            is_dense = is_dense && (arrays[i].shape[dim] <= 1 || arrays[i].strides[dim] == dense);
            dense *= arrays[i].shape[dim];
        }
        if (arrays[i].type != types[i] || !is_dense ||
            elements != rows * (i == 2 ? d.args.value_dim : 1))
            bad_value(std::string(name) +
                      " is of another call: must have the rows and types of this call");
    }
    attnkit_state state;
    state.max = (float *)arrays[0].data;
    state.sum = (double *)arrays[1].data;
    state.out = (double *)arrays[2].data;
    return state;
}

void call::read_states(PyObject *const *values)
{
    if (!values[FIRST_KEY] && !values[STATE_IN] && !values[STATE_OUT])
        return;
    attnkit_states_init(&d.states);
    if (values[FIRST_KEY])
        d.states.first_key = integer(values[FIRST_KEY], "first_key");
    if (values[STATE_IN])
        d.states.state_in = state_of(values[STATE_IN], states_, "state_in");
    if (values[STATE_OUT])
        d.states.state_out = state_of(values[STATE_OUT], states_ + 3, "state_out");
}

namespace
{

// Runs an append in the workspace of this thread.
void run_append(const attnkit_append_args &args, int64_t threads)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = exec_of(threads);
    expect_ok(attnkit_append_workspace(&args, &exec, &exec.workspace_size, message), message);
    exec.workspace = workspace(exec.workspace_size);
    attnkit_status status;
    {
        nb::gil_scoped_release released;
        status = attnkit_append(&args, &exec, message);
    }
    expect_ok(status, message);
}

// Reads the rows of k or v that are appended to the cache `c`. A row must have `dim` elements.
void read_rows(array &a, PyObject *object, const char *name, const cache &c, int64_t dim)
{
    a.read(object, name);
    a.expect_float();
    if (a.ndim < 3)
        bad_value(std::string(name) + " has the shape " + a.shape_text() +
                  ": must be [batch, kv_heads, rows, elements]");
    a.make_rows();
    a.make_heads();
    if (a.shape[0] != c.batch || a.shape[1] != c.kv_heads || a.shape[3] != dim)
        bad_value(std::string(name) + " has the shape " + a.shape_text() + ": the cache has (" +
                  std::to_string(c.batch) + ", " + std::to_string(c.kv_heads) + ", rows, " +
                  std::to_string(dim) + ")");
}

} // namespace

nb::object append(PyObject *const *args, Py_ssize_t positional, PyObject *names)
{
    enum { TO, ROWS_K, ROWS_V, STARTS, LENS, ON, COUNT };
    static const name_list list = {"append",
                                   COUNT,
                                   4,
                                   {{"cache", TO},
                                    {"k", ROWS_K},
                                    {"v", ROWS_V},
                                    {"starts", STARTS},
                                    {"lens", LENS},
                                    {"threads", ON}}};
    values<COUNT> given;
    read_names(list, args, positional, names, given.of);
    cache c;
    c.read(given.of[TO]);
    array k, v;
    read_rows(k, given.of[ROWS_K], "k", c, c.head_dim);
    read_rows(v, given.of[ROWS_V], "v", c, c.value_dim);
    if (v.shape[2] != k.shape[2])
        bad_value("v has " + std::to_string(v.shape[2]) + " rows: k has " +
                  std::to_string(k.shape[2]));
    integers starts, lens;
    starts.read(given.of[STARTS], "starts", c.batch);
    if (given.of[LENS])
        lens.read(given.of[LENS], "lens", c.batch);
    attnkit_pages pages = {};
    if (c.has_pages())
        pages = c.page_group();
    attnkit_append_args to;
    attnkit_append_args_init(&to);
    to.batch = c.batch;
    to.heads = c.kv_heads;
    to.len = k.shape[2];
    to.capacity = c.capacity;
    to.starts = starts.ints();
    to.lens = lens.ints();
    to.pages = c.has_pages() ? &pages : nullptr;
    to.scale_group = c.k_scales.is_given() ? c.group : 0;
    to.dim = c.head_dim;
    to.src = k.tensor();
    to.dst = c.k_tensor();
    to.dst_scales = scales_tensor(c.k_scales);
    const int64_t threads = read_threads(given.of[ON]);
    run_append(to, threads);
    to.dim = c.value_dim;
    to.src = v.tensor();
    to.dst = c.v_tensor();
    to.dst_scales = scales_tensor(c.v_scales);
    run_append(to, threads);
    return nb::none();
}

} // namespace attnkit_python
