// SPDX-License-Identifier: Apache-2.0
//
// Finds the functions of torch by their names, in the library of torch that the process has loaded.
#include "python/torch/shim.h"

#include <cstring>

#include <dlfcn.h>

namespace attnkit_torch
{

shim torch;

namespace
{

// Sets `place` to the function at `address`. Returns whether the address is not NULL.
template <class function> bool put(function *&place, void *address)
{
    static_assert(sizeof place == sizeof address, "dlsym gives functions");
    memcpy(&place, &address, sizeof place);
    return address != nullptr;
}

bool is_optional(const char *name)
{
    return strcmp(name, "torch_exception_get_what_without_backtrace") == 0 ||
           strcmp(name, "torch_delete_stable_ivalue") == 0;
}

} // namespace

std::string load_shim(const char *path)
{
    void *const library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        return std::string("torch has not loaded ") + path;
#define LOOK_UP(place, name)                                                                       \
    if (!put(torch.place, dlsym(library, #name)) && !is_optional(#name))                           \
        return "this version of torch has no function " #name;
    ATTNKIT_TORCH_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    return "";
}

} // namespace attnkit_torch
