/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and filling public structs, which begin with their size. An older caller's struct is
 * shorter: what it lacks is zero. A newer caller's is longer: what we do not know must be zero.
 */
#ifndef ATTNKIT_VERSIONED_H
#define ATTNKIT_VERSIONED_H

#include <string.h>

#include "dispatch/common/message.h"

enum {
    LARGEST_STRUCT = 4096, /* bytes; a size beyond it is a mistake and not a newer version */
};

static inline attnkit_status check_size(size_t theirs, size_t smallest, const char *name,
                                        char *message)
{
    if (theirs < smallest || theirs > LARGEST_STRUCT)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s.size is %zu: must be sizeof(%s), here %zu",
                      name, theirs, name, smallest);
    return ATTNKIT_OK;
}

/* Copies `theirs` into `ours`, a zeroed struct of `known` bytes. `smallest` is the size of the
 * struct's first version. */
static inline attnkit_status read_struct(void *ours, size_t known, size_t smallest,
                                         const void *theirs, const char *name, char *message)
{
    size_t size;
    memcpy(&size, theirs, sizeof size);
    if (check_size(size, smallest, name, message) != ATTNKIT_OK)
        return ATTNKIT_BAD_ARGUMENT;
    const unsigned char *bytes = theirs;
    for (size_t i = known; i < size; i++)
        if (bytes[i] != 0)
            return refuse(message, ATTNKIT_UNSUPPORTED,
                          "%s.size is %zu and byte %zu is set: this library knows %zu bytes", name,
                          size, i, known);
    memcpy(ours, theirs, size < known ? size : known);
    return ATTNKIT_OK;
}

/* Fills the caller's struct from ours, all but its size. */
static inline attnkit_status write_struct(void *theirs, const void *ours, size_t known,
                                          size_t smallest, const char *name, char *message)
{
    size_t size;
    memcpy(&size, theirs, sizeof size);
    if (check_size(size, smallest, name, message) != ATTNKIT_OK)
        return ATTNKIT_BAD_ARGUMENT;
    const size_t fill = size < known ? size : known;
    memcpy((char *)theirs + sizeof size, (const char *)ours + sizeof size, fill - sizeof size);
    return accept(message);
}

#endif
