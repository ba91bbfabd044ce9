// SPDX-License-Identifier: Apache-2.0
//
// The names of arguments, and the value of each argument in a call. Each function has a list of
// names. The first arguments of a list may be given by position. None means that an argument is not
// given.
#ifndef ATTNKIT_PYTHON_NAMES_H
#define ATTNKIT_PYTHON_NAMES_H

#include "python/core/errors.h"

namespace attnkit_python
{

// Every argument of the functions that compute attention, and some arguments of `layer`.
enum argument {
    Q,
    K,
    V,
    MASK,
    BIAS,
    CAUSAL,
    Q_OFFSETS,
    KV_LENS,
    WINDOW,
    SOFTCAP,
    SINKS,
    ALIBI_SLOPES,
    SCALE,
    DROPOUT,
    SEEDS,
    INTEGERS,
    BF16_PRODUCTS,
    SHORT_WEIGHTS,
    RETURN_LSE,
    RETURN_WEIGHTS,
    OUT,
    THREADS,
    CU_SEQLENS_Q,
    CU_SEQLENS_KV,
    ENABLE_GQA,
    FIRST_KEY,
    STATE_IN,
    STATE_OUT,
    CACHE,
    PACKED,
    X,
    KEY,
    VALUE,
    CACHED,
    ROPE,
    ARGUMENTS
};

constexpr int most_names = 40;

// The names of a function's arguments. `place` is the index of the argument's value in struct
// values.
struct name_list {
    const char *function;
    int positional; // how many of the first arguments may be given by position
    int required;   // how many of the first arguments must be given
    struct {
        const char *name;
        int place;
    } names[most_names];
};

// The values of a call by their places. Each is a borrowed reference, or NULL if the argument is
// not given.
template <int count> struct values {
    PyObject *of[count] = {};
};

// Fills `values`, whose elements must be NULL. Raises TypeError for a name that is unknown or given
// twice, for a required argument that is missing, and for too many arguments by position.
void read_names(const name_list &list, PyObject *const *args, Py_ssize_t positional,
                PyObject *names, PyObject **values);

// Return the value of a single number. `name` is the name of the argument, for error messages.
int64_t integer(PyObject *object, const char *name);
double number(PyObject *object, const char *name);
// Returns whether Python takes the object as true. NULL is false.
bool truth(PyObject *object);
// Returns whether the object is a text of Python. Copies such a text into `text`.
bool is_text(PyObject *object, std::string &text);

} // namespace attnkit_python

#endif
