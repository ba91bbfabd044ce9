// SPDX-License-Identifier: Apache-2.0
//
// The functions of the module attnkit._core for attnkit.torch. torch_load finds torch's functions
// and defines attnkit's op. torch_override puts attnkit's function in the place of torch's
// function, or puts torch's function back. torch_runs returns how many calls attnkit has computed
// for torch.
#include "python/core/functions.h"
#include "python/torch/ops.h"
#include "python/torch/run.h"

namespace attnkit_python
{

namespace
{

using attnkit_torch::library_handle;
using attnkit_torch::torch;

library_handle overriding; // the torch::Library that holds attnkit's function, or NULL

void expect(int32_t status)
{
    if (status)
        throw refused{PyExc_RuntimeError, torch.last_error && torch.last_error()
                                              ? torch.last_error()
                                              : "a function of torch failed"};
}

library_handle implement(const char *library, const char *op, attnkit_torch::kernel *function)
{
    library_handle handle;
    expect(torch.library_impl(library, "CPU", __FILE__, __LINE__, &handle));
    expect(torch.implement(handle, op, function, attnkit_torch::abi_version));
    return handle;
}

} // namespace

// torch_load(path): finds torch's functions in the library at `path`, and defines attnkit's op.
nb::object torch_load(PyObject *const *args, Py_ssize_t positional, PyObject *)
{
    std::string path;
    if (positional != 1 || !is_text(args[0], path))
        bad_type("torch_load(path)");
    static bool is_defined; // an op is defined once in a process
    if (is_defined)
        return nb::none();
    const std::string wrong = attnkit_torch::load_shim(path.c_str());
    if (!wrong.empty())
        throw refused{PyExc_ImportError, wrong};
    library_handle definitions;
    expect(torch.library_def("attnkit", __FILE__, __LINE__, &definitions));
    expect(torch.define(definitions, attnkit_torch::attention_schema));
    implement("attnkit", "attention", attnkit_torch::attention);
    is_defined = true;
    return nb::none();
}

// torch_override(is_on): sends scaled_dot_product_attention to attnkit, or to torch again.
nb::object torch_override(PyObject *const *args, Py_ssize_t positional, PyObject *)
{
    if (positional != 1 || !torch.implement)
        bad_type("torch_override(is_on) after torch_load");
    const bool is_on = truth(args[0]);
    if (is_on && !overriding) {
        overriding = implement("aten", "_scaled_dot_product_flash_attention_for_cpu",
                               attnkit_torch::flash_attention);
    } else if (!is_on && overriding) {
        expect(torch.delete_library(overriding));
        overriding = nullptr;
    }
    return nb::none();
}

nb::object torch_runs(PyObject *const *, Py_ssize_t, PyObject *)
{
    return nb::int_(attnkit_torch::runs());
}

} // namespace attnkit_python
