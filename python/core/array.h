// SPDX-License-Identifier: Apache-2.0
//
// An array that Python gave: its memory, shape, strides and type, whoever made it. NumPy's come by
// the buffer protocol, bfloat16 and float8 of ml_dtypes as integers of their width, all others by
// DLPack. Nothing is copied but what attnkit cannot read where it lies.
#ifndef ATTNKIT_PYTHON_ARRAY_H
#define ATTNKIT_PYTHON_ARRAY_H

#include "python/core/errors.h"

#include <cstdint>
#include <memory>
#include <string>

namespace attnkit_python
{

constexpr int most_dims = 8;

// Types of elements beside those of attnkit.
constexpr int32_t INT32 = 1000, INT64 = 1001, UINT64 = 1002, UINT8 = 1003, FLOAT64 = 1004,
                  OTHER = 1005;

class array
{
  public:
    array() = default;
    array(const array &) = delete;
    array &operator=(const array &) = delete;
    ~array();

    // Takes the array of this object; `name` is for errors.
    void read(PyObject *object, const char *name);
    // The same of an array that is written; one that may not be is refused.
    void read_output(PyObject *object, const char *name);

    bool is_given() const
    {
        return name_ != nullptr;
    }
    // For `name`: "float64", or what the maker of the array calls its type.
    std::string type_name() const;
    std::string shape_text() const;

    // Repeats what has length 1, as NumPy does; a shape that does not go is refused.
    void broadcast(const int64_t *shape, int ndim);
    // Makes elements of a row adjacent, and strides whole elements: copies unless they are.
    void make_rows();
    // Makes [batch][heads][rows][elements] of any shape: what is before the heads becomes one
    // dimension, with a copy where no one stride serves it.
    void make_heads();
    // Makes [rows][elements].
    void make_list();
    // Copies unless all elements are one after the other.
    void make_dense();
    // Refuses an output whose elements are not adjacent.
    void expect_rows() const;
    void expect_ndim(int ndim) const;
    // Refuses other types than float32, float16 and bfloat16.
    void expect_float() const;
    // Of [batch][heads][rows][elements].
    attnkit_tensor tensor() const;

    char *data = nullptr;
    int ndim = 0;
    int64_t shape[most_dims] = {};
    int64_t strides[most_dims] = {}; // bytes
    int32_t type = OTHER;
    int64_t item = 0; // bytes of an element
    bool writable = false;

  private:
    bool read_buffer(PyObject *object);
    bool read_narrow(PyObject *object);
    void read_dlpack(PyObject *object);
    bool take_dlpack(nb::handle object);
    bool has_rows() const;
    void merge_first(int count);
    bool first_can_merge(int count) const;
    void copy(bool expands);

    const char *name_ = nullptr;
    Py_buffer buffer_;
    bool has_buffer_ = false;
    bool wants_write_ = false;
    nb::object keep_;
    nb::ndarray<nb::ro> dlpack_;
    std::unique_ptr<char[]> copy_;
};

// A new array of NumPy and its memory; type is f32, f16, bf16, INT32 or UINT8.
struct fresh {
    nb::object object;
    char *data;
};
fresh new_array(const int64_t *shape, int ndim, int32_t type);

// Bytes that arrays were copied for so far, of all calls: tests see that views cost none.
int64_t copied_bytes();

// Looks up what is needed of NumPy; throws `raised` where there is none.
void find_numpy();

} // namespace attnkit_python

#endif
