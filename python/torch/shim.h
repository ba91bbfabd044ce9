// SPDX-License-Identifier: Apache-2.0
//
// The functions of torch that the ops call: the part of torch's stable C ABI that attnkit needs.
// The functions are declared here, so that a wheel is built without torch and serves every torch
// that has these functions. When attnkit.torch is imported, load_shim looks the functions up.
// tests/python/with_torch/shim.cpp compares each declaration with torch's headers.
#ifndef ATTNKIT_PYTHON_TORCH_SHIM_H
#define ATTNKIT_PYTHON_TORCH_SHIM_H

#include <cstddef>
#include <cstdint>
#include <string>

// torch's own names for its opaque types.
struct AtenTensorOpaque;
class TorchLibraryOpaque;

namespace attnkit_torch
{

using tensor_handle = AtenTensorOpaque *;
using library_handle = TorchLibraryOpaque *;

// A value of any type of a schema. The bytes of a number or of a handle are the first bytes of the
// word in memory. An optional value is NULL or the address of another word, which the receiver
// frees.
using word = uint64_t;

// A function that runs an op: the words of its arguments become the words of its results.
using kernel = void(word *stack, uint64_t arguments, uint64_t results);

// The version of torch for which the words are written: 2.10. Newer versions read the words as 2.10
// does.
constexpr uint64_t abi_version = (uint64_t)2 << 56 | (uint64_t)10 << 48;

// contiguous_format and the functions whose names begin with dtype_ or device_ return a value. All
// other functions that return int32_t return 0 for success.
struct shim {
    int32_t (*get_dim)(tensor_handle, int64_t *);
    int32_t (*get_sizes)(tensor_handle, int64_t **);
    int32_t (*get_strides)(tensor_handle, int64_t **);
    int32_t (*get_dtype)(tensor_handle, int32_t *);
    int32_t (*get_device_type)(tensor_handle, int32_t *);
    int32_t (*get_data_ptr)(tensor_handle, void **);
    int32_t (*empty_strided)(int64_t dims, const int64_t *sizes, const int64_t *strides,
                             int32_t dtype, int32_t device, int32_t index, tensor_handle *);
    int32_t (*new_tensor_handle)(tensor_handle, tensor_handle *);
    int32_t (*delete_tensor)(tensor_handle);

    int32_t (*dtype_float32)();
    int32_t (*dtype_float16)();
    int32_t (*dtype_bfloat16)();
    int32_t (*dtype_int32)();
    int32_t (*dtype_int64)();
    int32_t (*dtype_bool)();
    int32_t (*device_cpu)();
    int32_t (*contiguous_format)();

    int32_t (*call_dispatcher)(const char *op, const char *overload, word *stack, uint64_t version);
    int32_t (*parallel_for)(int64_t begin, int64_t end, int64_t grain,
                            void (*task)(int64_t begin, int64_t end, void *arg), void *arg);
    int32_t (*get_num_threads)(uint32_t *);

    int32_t (*library_def)(const char *name, const char *file, uint32_t line, library_handle *);
    int32_t (*library_impl)(const char *name, const char *key, const char *file, uint32_t line,
                            library_handle *);
    int32_t (*define)(library_handle, const char *schema);
    int32_t (*implement)(library_handle, const char *op, kernel *, uint64_t version);
    int32_t (*delete_library)(library_handle);

    // These two functions are NULL in older versions of torch.
    const char *(*last_error)();
    int32_t (*delete_word)(word *);
};

// Each function beside its name in torch. The last two functions are not in every version of torch.
#define ATTNKIT_TORCH_FUNCTIONS(DO)                                                                \
    DO(get_dim, aoti_torch_get_dim)                                                                \
    DO(get_sizes, aoti_torch_get_sizes)                                                            \
    DO(get_strides, aoti_torch_get_strides)                                                        \
    DO(get_dtype, aoti_torch_get_dtype)                                                            \
    DO(get_device_type, aoti_torch_get_device_type)                                                \
    DO(get_data_ptr, aoti_torch_get_data_ptr)                                                      \
    DO(empty_strided, aoti_torch_empty_strided)                                                    \
    DO(new_tensor_handle, aoti_torch_new_tensor_handle)                                            \
    DO(delete_tensor, aoti_torch_delete_tensor_object)                                             \
    DO(dtype_float32, aoti_torch_dtype_float32)                                                    \
    DO(dtype_float16, aoti_torch_dtype_float16)                                                    \
    DO(dtype_bfloat16, aoti_torch_dtype_bfloat16)                                                  \
    DO(dtype_int32, aoti_torch_dtype_int32)                                                        \
    DO(dtype_int64, aoti_torch_dtype_int64)                                                        \
    DO(dtype_bool, aoti_torch_dtype_bool)                                                          \
    DO(device_cpu, aoti_torch_device_type_cpu)                                                     \
    DO(contiguous_format, aoti_torch_memory_format_contiguous_format)                              \
    DO(call_dispatcher, torch_call_dispatcher)                                                     \
    DO(parallel_for, torch_parallel_for)                                                           \
    DO(get_num_threads, torch_get_num_threads)                                                     \
    DO(library_def, aoti_torch_library_init_def)                                                   \
    DO(library_impl, aoti_torch_library_init_impl)                                                 \
    DO(define, aoti_torch_library_def)                                                             \
    DO(implement, torch_library_impl)                                                              \
    DO(delete_library, aoti_torch_delete_library_object)                                           \
    DO(last_error, torch_exception_get_what_without_backtrace)                                     \
    DO(delete_word, torch_delete_stable_ivalue)

// The functions, once load_shim has found them.
extern shim torch;

// Looks the functions up in torch's library at `path`, which must be loaded already. Returns "", or
// what is wrong.
std::string load_shim(const char *path);

} // namespace attnkit_torch

#endif
