/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading the sides.
 */
#include "bench/compare/measure/sides.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/compare/measure/forward.h"

struct symbol {
    const char *name;
    size_t offset; /* in struct functions */
    bool required;
};

static const struct symbol symbols[] = {
    {"attnkit_version", offsetof(struct functions, version), true},
    {"attnkit_status_string", offsetof(struct functions, status_string), true},
    {"attnkit_isa_count", offsetof(struct functions, isa_count), true},
    {"attnkit_isa_get", offsetof(struct functions, isa_get), true},
    {"attnkit_attention_workspace", offsetof(struct functions, attention_workspace), true},
    {"attnkit_attention", offsetof(struct functions, attention), true},
    {"attnkit_append", offsetof(struct functions, append), true},
    {"attnkit_packed_size", offsetof(struct functions, packed_size), false},
    {"attnkit_pack", offsetof(struct functions, pack), false},
    {"attnkit_linear_workspace", offsetof(struct functions, linear_workspace), false},
    {"attnkit_linear", offsetof(struct functions, linear), false},
    {"attnkit_layer_packed_size", offsetof(struct functions, layer_packed_size), false},
    {"attnkit_layer_pack", offsetof(struct functions, layer_pack), false},
    {"attnkit_layer_workspace", offsetof(struct functions, layer_workspace), false},
    {"attnkit_layer", offsetof(struct functions, layer), false},
};

static struct side sides[SIDES] = {{.name = "BASE"}, {.name = "HEAD"}, {.name = "BASE again"}};

const char *side_name(int index)
{
    return sides[index].name;
}

const struct functions *side_functions(int index)
{
    return &sides[index].copies[0].functions;
}

/* ------------------------------------------------------------------------------------ loading */

static bool find_symbols(const char *name, struct copy *copy, char problem[SIDES_PROBLEM])
{
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *const address = dlsym(copy->handle, symbols[i].name);
        memcpy((char *)&copy->functions + symbols[i].offset, &address, sizeof address);
        if (address || !symbols[i].required)
            continue;
        snprintf(problem, SIDES_PROBLEM, "%s has no function %s", name, symbols[i].name);
        return false;
    }
    return true;
}

static bool load(const char *name, struct copy *copy, const char *file, char problem[SIDES_PROBLEM])
{
    copy->handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (copy->handle)
        return find_symbols(name, copy, problem);
    snprintf(problem, SIDES_PROBLEM, "%s cannot be loaded: %s", name, dlerror());
    return false;
}

/* ------------------------------------------------------------------------------------ the ABI */

/* "libattnkit.so.0", or "" where the library does not say it. */
static const char *soname(int side)
{
    struct link_map *map;
    if (dlinfo(sides[side].copies[0].handle, RTLD_DI_LINKMAP, &map))
        return "";
    const char *strings = NULL;
    uint64_t offset = 0;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_STRTAB)
            strings = (const char *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_SONAME)
            offset = entry->d_un.d_val;
    }
    /* Some loaders turn the offset of the strings into an address, some leave it. */
    if (strings && (uintptr_t)strings < map->l_addr)
        strings += map->l_addr;
    return strings && offset ? strings + offset : "";
}

/* The structs of a call are those of this program's header. */
static bool has_our_abi(int side, char problem[SIDES_PROBLEM])
{
    const char *const version = side_functions(side)->version();
    if (atoi(version) == ATTNKIT_VERSION_MAJOR)
        return true;
    snprintf(problem, SIDES_PROBLEM,
             "%s is version %s: this program knows the ABI of version %d alone", sides[side].name,
             version, ATTNKIT_VERSION_MAJOR);
    return false;
}

static bool have_same_abi(char problem[SIDES_PROBLEM])
{
    const char *const base = soname(BASE), *const head = soname(HEAD);
    if (!strcmp(base, head))
        return true;
    snprintf(problem, SIDES_PROBLEM, "different ABIs: BASE is '%s', HEAD is '%s'", base, head);
    return false;
}

/* The loader may know a file that it has already loaded. */
static bool are_apart(char problem[SIDES_PROBLEM])
{
    const int count = SIDES * COPIES;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++) {
            const struct side *const a = &sides[i / COPIES], *const b = &sides[j / COPIES];
            if (a->copies[i % COPIES].functions.attention !=
                b->copies[j % COPIES].functions.attention)
                continue;
            snprintf(problem, SIDES_PROBLEM, "%s and %s were loaded as one library", b->name,
                     a->name);
            return false;
        }
    return true;
}

bool sides_load(char *const files[SIDES][COPIES], const int order[SIDES], volatile int *busy,
                char problem[SIDES_PROBLEM])
{
    for (int copy = 0; copy < COPIES; copy++)
        for (int i = 0; i < SIDES; i++) {
            struct side *const side = &sides[order[i]];
            *busy = order[i];
            if (!load(side->name, &side->copies[copy], files[order[i]][copy], problem) ||
                (copy == 0 && !has_our_abi(order[i], problem))) {
                *busy = -1;
                return false;
            }
        }
    *busy = -1;
    forward_to(sides, busy);
    return have_same_abi(problem) && are_apart(problem);
}
