// SPDX-License-Identifier: Apache-2.0
//
// Chooses the Python exception for each status of attnkit and for each C++ exception.
#include "python/core/errors.h"

#include <new>

namespace attnkit_python
{

void expect_ok(attnkit_status status, const char *message)
{
    switch (status) {
    case ATTNKIT_OK:
        return;
    case ATTNKIT_BAD_ARGUMENT:
        throw refused{PyExc_ValueError, message};
    case ATTNKIT_UNSUPPORTED:
        throw refused{PyExc_NotImplementedError, message};
    case ATTNKIT_OVERFLOW:
        throw refused{PyExc_OverflowError, message};
    default:
        throw refused{PyExc_RuntimeError,
                      std::string(attnkit_status_string(status)) + ": " + message};
    }
}

void set_exception()
{
    try {
        throw;
    } catch (const refused &e) {
        PyErr_SetString(e.type, e.text.c_str());
    } catch (const raised &) {
    } catch (nb::python_error &e) {
        e.restore();
    } catch (const std::bad_alloc &) {
        PyErr_NoMemory();
    } catch (const std::exception &e) {
        PyErr_SetString(PyExc_RuntimeError, e.what());
    }
}

} // namespace attnkit_python
