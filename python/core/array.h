// SPDX-License-Identifier: Apache-2.0
//
// An array that Python gave: its memory, shape, strides and type, whichever library made it. Arrays
// with the buffer protocol, such as NumPy's, are read by this protocol. bfloat16 and float8 of
// ml_dtypes are read as integers of their width. All other arrays are read by DLPack. Only
// make_rows, make_heads, make_list and make_dense copy an array. The comment of each of these
// functions says when it copies.
#ifndef ATTNKIT_PYTHON_ARRAY_H
#define ATTNKIT_PYTHON_ARRAY_H

#include "python/core/errors.h"

#include <cstdint>
#include <memory>
#include <string>

namespace attnkit_python
{

constexpr int most_dims = 8;

// Types of elements that attnkit_type lacks.
constexpr int32_t INT32 = 1000, INT64 = 1001, UINT64 = 1002, UINT8 = 1003, FLOAT64 = 1004,
                  OTHER = 1005;

class array
{
  public:
    array() = default;
    array(const array &) = delete;
    array &operator=(const array &) = delete;
    ~array();

    // Takes the array of `object`. `name` names the array in errors, and must live as long as this
    // object.
    void read(PyObject *object, const char *name);
    // Takes an array that the call writes. Refuses a read-only array.
    void read_output(PyObject *object, const char *name);

    bool is_given() const
    {
        return name_ != nullptr;
    }
    // Returns the name of the type, for messages, such as "float64". The text of an unknown type
    // has the format that the maker of the array gives, or the number of bits.
    std::string type_name() const;
    std::string shape_text() const;

    // Gives the array the shape `shape`: dimensions of length 1 repeat, as in NumPy. Refuses an
    // array that cannot be broadcast to this shape.
    void broadcast(const int64_t *shape, int ndim);
    // Copies the array if it is not aligned, if the elements of a row are not adjacent, or if a
    // stride is no whole number of elements.
    void make_rows();
    // Turns any shape into [batch][heads][rows][elements]. The dimensions before the heads become
    // one dimension. If a single stride cannot describe this dimension, an input is copied, and an
    // output is refused.
    void make_heads();
    // Turns any shape into [rows][elements]. If a single stride cannot describe the rows, an input
    // is copied, and an output is refused.
    void make_list();
    // Copies the array if it is not aligned, or if its elements do not lie one after the other.
    void make_dense();
    // Refuses an output that make_rows would copy.
    void expect_rows() const;
    void expect_ndim(int ndim) const;
    // Refuses other types than float32, float16 and bfloat16.
    void expect_float() const;
    // Describes an array [batch][heads][rows][elements].
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

// A new array of NumPy and the address of its elements. Its type is f32, f16, bf16, INT32 or UINT8.
struct fresh {
    nb::object object;
    char *data;
};
fresh new_array(const int64_t *shape, int ndim, int32_t type);

// Returns how many bytes of arrays this process has copied so far. Tests check that views are not
// copied.
int64_t copied_bytes();

// Returns a shape as Python writes a tuple, such as "(2, 3)".
std::string text_of_shape(const int64_t *shape, int ndim);

// Looks up the functions and types of NumPy that the module needs. Throws nanobind's python_error
// if NumPy is missing.
void find_numpy();

} // namespace attnkit_python

#endif
