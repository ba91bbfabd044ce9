/* SPDX-License-Identifier: Apache-2.0
 *
 * FNV-1a hashes, of 64 bits, over the elements of results in their order.
 */
#ifndef ATTNKIT_TEST_GOLDEN_HASH_H
#define ATTNKIT_TEST_GOLDEN_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "attnkit.h"

static const uint64_t HASH_BEGIN = UINT64_C(0xcbf29ce484222325);

/* Each of the three functions returns `hash`, continued over the given data. */
static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *const bytes = data;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static inline uint64_t hash_floats(uint64_t hash, const float *x, size_t count)
{
    return hash_bytes(hash, x, count * sizeof *x);
}

/* The elements have the type ATTNKIT_F32, ATTNKIT_F16 or ATTNKIT_BF16. */
static inline uint64_t hash_elements(uint64_t hash, attnkit_type type, const void *x, size_t count)
{
    return hash_bytes(hash, x, count * (type == ATTNKIT_F32 ? sizeof(float) : sizeof(uint16_t)));
}

#endif
