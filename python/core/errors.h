// SPDX-License-Identifier: Apache-2.0
//
// Errors of the module. Code throws `refused` with the type of a Python exception and its text, or
// `raised` if Python has set an exception already. `guarded` catches exceptions of these two types,
// of nanobind and of the C++ library. It sets Python's exception and returns NULL, as Python
// expects of a function that fails.
#ifndef ATTNKIT_PYTHON_ERRORS_H
#define ATTNKIT_PYTHON_ERRORS_H

#include "python/core/python.h"

#include <string>

namespace attnkit_python
{

struct refused {
    PyObject *type;
    std::string text;
};

struct raised {
};

[[noreturn]] inline void bad_value(const std::string &text)
{
    throw refused{PyExc_ValueError, text};
}

[[noreturn]] inline void bad_type(const std::string &text)
{
    throw refused{PyExc_TypeError, text};
}

// Throws `refused` unless the status is ATTNKIT_OK. The text of the exception contains the message.
void expect_ok(attnkit_status status, const char *message);

// Takes over a new reference to an object. Throws `raised` if the reference is NULL: Python has
// then set an exception.
inline nb::object owned(PyObject *object)
{
    if (!object)
        throw raised{};
    return nb::steal(object);
}

// Sets Python's exception for the C++ exception that is being handled.
void set_exception();

using function = nb::object(PyObject *const *args, Py_ssize_t positional, PyObject *names);

template <function f>
PyObject *guarded(PyObject *, PyObject *const *args, Py_ssize_t positional, PyObject *names)
{
    try {
        return f(args, positional, names).release().ptr();
    } catch (...) {
        set_exception();
        return nullptr;
    }
}

} // namespace attnkit_python

#endif
