// SPDX-License-Identifier: Apache-2.0
//
// Reads the options of an attention call: each argument of Python goes into the struct of attnkit
// that has the option. This file leaves most checks to attnkit. It checks options that have another
// form in Python, and whether an option comes with the other options that it needs.
#include "python/core/call.h"

#include <cstring>

namespace attnkit_python
{

namespace
{

// Reads an array with one number for each query head.
const float *read_heads(array &a, PyObject *object, const char *name, int64_t heads)
{
    a.read(object, name);
    if (a.type != ATTNKIT_F32)
        bad_type(std::string(name) + " is " + a.type_name() + ": must be float32");
    a.expect_ndim(1);
    if (a.shape[0] != heads)
        bad_value(std::string(name) + " has " + std::to_string(a.shape[0]) +
                  " elements: must have one for each query head (" + std::to_string(heads) + ")");
    a.make_rows();
    return (const float *)a.data;
}

// Reads number i of a window: a bound, or keep_first. None becomes -1, which as a bound means no
// bound.
int64_t bound(nb::handle window, int i, const char *name)
{
    const nb::object value = window[nb::int_(i)];
    return value.is_none() ? -1 : integer(value.ptr(), name);
}

} // namespace

bool is_mask_of_truths(PyObject *object)
{
    array mask;
    mask.read(object, "attn_mask");
    return mask.type == ATTNKIT_BOOL;
}

void integers::read(PyObject *object, const char *name, int64_t count)
{
    if (PyIndex_Check(object) && !PySequence_Check(object)) {
        own_.assign((size_t)(count > 0 ? count : 1), integer(object, name));
        data_ = own_.data();
        return;
    }
    read_offsets(object, name);
    if (length_ != count)
        bad_value(std::string(name) + " has " + std::to_string(length_) +
                  " elements: must have one for each batch entry (" + std::to_string(count) + ")");
}

int64_t integers::read_offsets(PyObject *object, const char *name)
{
    if (PyList_Check(object) || PyTuple_Check(object)) {
        const Py_ssize_t n = PySequence_Size(object);
        own_.resize((size_t)n + 1);
        for (Py_ssize_t i = 0; i < n; i++)
            own_[(size_t)i] = integer(owned(PySequence_GetItem(object, i)).ptr(), name);
        data_ = own_.data();
        length_ = n;
        return n - 1;
    }
    array_.read(object, name);
    if (array_.type != INT32 && array_.type != INT64)
        bad_type(std::string(name) + " is " + array_.type_name() + ": must be int32 or int64");
    array_.expect_ndim(1);
    array_.make_rows();
    data_ = array_.data;
    type_ = array_.type == INT32 ? ATTNKIT_INT32 : ATTNKIT_INT64;
    length_ = array_.shape[0];
    return length_ - 1;
}

attnkit_ints integers::ints() const
{
    attnkit_ints ints = {};
    ints.data = data_;
    ints.type = type_;
    return ints;
}

// Returns the shape to which masks and biases are broadcast: the shape of q with `columns` in place
// of the elements.
const int64_t *call::score_shape(int64_t columns)
{
    memcpy(scores_, shape_, sizeof scores_);
    scores_[ndim_ - 1] = columns;
    return scores_;
}

// Broadcasts a mask or a bias to [..., heads, rows, columns]. Without a cache, columns is kv_len.
// With a cache, a mask or bias keeps its own number of columns, but a single column is repeated
// kv_len times.
void call::shape_mask(array &a)
{
    if (a.ndim == 0)
        bad_value("a mask or bias needs at least the dimension of the keys");
    const bool is_cached = d.storage.size && !is_packed_;
    const int64_t last = a.shape[a.ndim - 1];
    const int64_t columns = is_cached && last != 1 ? last : kv_len;
    a.broadcast(score_shape(columns), ndim_);
    a.make_rows();
    a.make_heads();
}

void call::read_mask(PyObject *object)
{
    if (is_packed_)
        bad_value("mask: packed sequences have none");
    mask_.read(object, "mask");
    if (mask_.type != ATTNKIT_BOOL)
        bad_type("mask is " + mask_.type_name() +
                 ": must be bool, true where a key is seen; give numbers to add as bias");
    shape_mask(mask_);
    if (mask_.shape[3] == 0)
        return;
    d.visibility.size = sizeof d.visibility;
    d.visibility.mask = mask_.tensor();
    d.visibility.mask_columns = mask_.shape[3];
    d.visibility.mask_kind = ATTNKIT_MASK_ATTEND;
}

void call::read_bias(PyObject *object)
{
    bias_.read(object, "bias");
    bias_.expect_float();
    shape_mask(bias_);
    if (bias_.shape[3] == 0)
        return;
    d.scores.size = sizeof d.scores;
    d.scores.bias = bias_.tensor();
    d.scores.bias_columns = bias_.shape[3];
}

void call::read_positions(PyObject *const *values)
{
    std::string text;
    const bool is_named = is_text(values[CAUSAL], text);
    if (is_named && text != "upper-left" && text != "bottom-right")
        bad_value("causal is '" + text + "': must be 'upper-left' or 'bottom-right'");
    const bool is_causal = is_named || truth(values[CAUSAL]);
    if (is_causal)
        d.args.flags |= ATTNKIT_CAUSAL;
    if (values[Q_OFFSETS]) {
        if (is_named)
            bad_value("causal is '" + text + "': with q_offsets it must be True, or not given");
        q_offsets_.read(values[Q_OFFSETS], "q_offsets", d.args.batch);
        d.args.align = ATTNKIT_ALIGN_OFFSETS;
        d.args.q_offsets = q_offsets_.ints();
    } else if (is_named) {
        d.args.align = text == "upper-left" ? ATTNKIT_ALIGN_UPPER_LEFT : ATTNKIT_ALIGN_BOTTOM_RIGHT;
    } else if (is_causal) {
        bad_value("causal is True: must be 'upper-left' or 'bottom-right', or come with q_offsets");
    }
    const bool has_no_place = d.args.align == ATTNKIT_ALIGN_NONE;
    const char *const names[] = {"window", "alibi_slopes", "dropout"};
    const int places[] = {WINDOW, ALIBI_SLOPES, DROPOUT};
    for (int i = 0; has_no_place && i < 3; i++)
        if (values[places[i]] && !(i == 2 && number(values[places[i]], "dropout") == 0))
            bad_value(std::string(names[i]) +
                      " needs to know where the rows are: give causal or q_offsets");
}

void call::read_window(PyObject *object)
{
    const nb::handle window(object);
    const bool is_pair = PyTuple_Check(object) || PyList_Check(object);
    const Py_ssize_t n = is_pair ? PySequence_Size(object) : 0;
    if (n != 2 && n != 3)
        bad_value("window: must be (left, right) or (left, right, keep_first)");
    d.visibility.size = sizeof d.visibility;
    attnkit_window_init(&d.window);
    d.window.left = bound(window, 0, "window");
    d.window.right = bound(window, 1, "window");
    d.window.keep_first = n == 3 ? bound(window, 2, "window") : 0;
}

void call::read_dropout(PyObject *const *values)
{
    const double rate = values[DROPOUT] ? number(values[DROPOUT], "dropout") : 0.0;
    if (rate == 0.0) {
        if (values[SEEDS])
            bad_value("seeds: there is no dropout");
        return;
    }
    if (!values[SEEDS])
        bad_value("dropout needs seeds, one for each batch entry");
    d.scores.size = sizeof d.scores;
    d.scores.dropout = rate;
    if (PyIndex_Check(values[SEEDS]) && !PySequence_Check(values[SEEDS])) {
        const unsigned long long seed = PyLong_AsUnsignedLongLongMask(values[SEEDS]);
        if (PyErr_Occurred())
            throw raised{};
        own_seeds_.assign((size_t)d.args.batch + 1, seed);
        d.scores.dropout_seeds = own_seeds_.data();
        return;
    }
    seeds_.read(values[SEEDS], "seeds");
    if (seeds_.type != UINT64 && seeds_.type != INT64)
        bad_type("seeds is " + seeds_.type_name() + ": must be uint64 or int64");
    seeds_.expect_ndim(1);
    if (seeds_.shape[0] != d.args.batch)
        bad_value("seeds has " + std::to_string(seeds_.shape[0]) +
                  " elements: must have one for each batch entry (" + std::to_string(d.args.batch) +
                  ")");
    seeds_.make_rows();
    d.scores.dropout_seeds = (const uint64_t *)seeds_.data;
}

void call::read_scores(PyObject *const *values)
{
    if (values[SOFTCAP]) {
        d.scores.size = sizeof d.scores;
        d.scores.softcap = number(values[SOFTCAP], "softcap");
    }
    if (values[SINKS]) {
        d.scores.size = sizeof d.scores;
        d.scores.sinks = read_heads(sinks_, values[SINKS], "sinks", d.args.q_heads);
    }
    if (values[ALIBI_SLOPES]) {
        d.scores.size = sizeof d.scores;
        d.scores.alibi_slopes =
            read_heads(slopes_, values[ALIBI_SLOPES], "alibi_slopes", d.args.q_heads);
    }
    read_dropout(values);
}

void call::read_arithmetic(PyObject *const *values)
{
    if (truth(values[INTEGERS]))
        d.args.flags |= ATTNKIT_INTEGERS;
    if (truth(values[BF16_PRODUCTS]))
        d.args.flags |= ATTNKIT_BF16_PRODUCTS;
    if (truth(values[SHORT_WEIGHTS]))
        d.args.flags |= ATTNKIT_SHORT_WEIGHTS;
}

void call::read_options(PyObject *const *values)
{
    d.threads = read_threads(values[THREADS]);
    if (values[SCALE]) {
        d.args.flags |= ATTNKIT_SCALE_GIVEN;
        d.args.scale = number(values[SCALE], "scale");
    }
    read_arithmetic(values);
    read_positions(values);
    if (values[KV_LENS]) {
        kv_lens_.read(values[KV_LENS], "kv_lens", d.args.batch);
        d.visibility.size = sizeof d.visibility;
        d.visibility.kv_lens = kv_lens_.ints();
    }
    if (values[WINDOW])
        read_window(values[WINDOW]);
    if (values[MASK])
        read_mask(values[MASK]);
    if (values[BIAS])
        read_bias(values[BIAS]);
    read_scores(values);
    read_states(values);
}

} // namespace attnkit_python
