/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and filling public structs, which begin with their size. An older caller's struct is
 * shorter: when the library reads the struct, the missing fields count as zero. A newer caller's
 * struct is longer. When the library reads this struct, the fields that the library does not know
 * must be zero. When the library fills this struct, it sets these fields to zero.
 */
#ifndef ATTNKIT_VERSIONED_H
#define ATTNKIT_VERSIONED_H

#include <stddef.h>
#include <string.h>

#include "dispatch/common/message.h"

enum {
    LARGEST_STRUCT = 4096, /* bytes; a larger size is a mistake, not a newer version */
};

/* The versions of a public struct. `first` is the size of the struct in its first release, without
 * padding after the last field. No caller has a smaller size, and `first` never changes. `known` is
 * the size in this library. */
struct version {
    const char *name;
    size_t first, known; /* bytes */
};

/* The versions of a struct whose last field in its first release is `last`. Later fields must not
 * use the padding after `last`. */
#define VERSION_OF(type, last)                                                                     \
    {                                                                                              \
#type, offsetof(type, last) + sizeof(((type *)0)->last), sizeof(type)                      \
    }

static inline attnkit_status check_size(const struct version *v, size_t theirs, char *message)
{
    if (theirs >= v->first && theirs <= LARGEST_STRUCT)
        return ATTNKIT_OK;
    return refuse(
        message, ATTNKIT_BAD_ARGUMENT,
        "%s.size is %zu: must be sizeof(%s), %zu in this library, %zu to %d in any library",
        v->name, theirs, v->name, v->known, v->first, LARGEST_STRUCT);
}

/* Sets *read to a struct of v->known bytes with the caller's fields: *read is `theirs` if it has
 * this size, else a copy in `room`. `room` has v->known bytes. */
static inline attnkit_status read_struct(const struct version *v, const void *theirs, void *room,
                                         const void **read, char *message)
{
    size_t size;
    memcpy(&size, theirs, sizeof size);
    *read = theirs;
    if (size == v->known)
        return ATTNKIT_OK;
    if (check_size(v, size, message) != ATTNKIT_OK)
        return ATTNKIT_BAD_ARGUMENT;
    const unsigned char *bytes = theirs;
    for (size_t i = v->known; i < size; i++)
        if (bytes[i] != 0)
            return refuse(message, ATTNKIT_UNSUPPORTED,
                          "%s.size is %zu and byte %zu is set: this library knows %zu bytes",
                          v->name, size, i, v->known);
    memset(room, 0, v->known);
    memcpy(room, theirs, size < v->known ? size : v->known);
    *read = room;
    return ATTNKIT_OK;
}

/* Fills the caller's struct from ours, except its size. If the caller's struct is longer than ours,
 * its further bytes become 0. */
static inline attnkit_status write_struct(const struct version *v, void *theirs, const void *ours,
                                          char *message)
{
    size_t size;
    memcpy(&size, theirs, sizeof size);
    if (check_size(v, size, message) != ATTNKIT_OK)
        return ATTNKIT_BAD_ARGUMENT;
    const size_t fill = size < v->known ? size : v->known;
    memset((char *)theirs + sizeof size, 0, size - sizeof size);
    memcpy((char *)theirs + sizeof size, (const char *)ours + sizeof size, fill - sizeof size);
    return accept(message);
}

#endif
