/* SPDX-License-Identifier: Apache-2.0
 *
 * FNV-1a hashes, of 64 bits, over the elements of results in their order.
 */
#ifndef ATTNKIT_TEST_GOLDEN_HASH_H
#define ATTNKIT_TEST_GOLDEN_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "attnkit.h"

static const uint64_t HASH_BEGIN = UINT64_C(0xcbf29ce484222325);

static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *const bytes = data;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Floats of which all NaN count as 0x7fc00000. */
static inline uint64_t hash_floats(uint64_t hash, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits = (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : bits;
        hash = hash_bytes(hash, &bits, sizeof bits);
    }
    return hash;
}

/* Elements of 16 bits, of which all NaN count as one. */
static inline uint64_t hash_halves(uint64_t hash, const void *x, size_t count, uint16_t infinity,
                                   uint16_t nan)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, (const char *)x + i * sizeof bits, sizeof bits);
        bits = (bits & 0x7fff) > infinity ? nan : bits;
        hash = hash_bytes(hash, &bits, sizeof bits);
    }
    return hash;
}

/* Elements of ATTNKIT_F32, F16 or BF16. */
static inline uint64_t hash_elements(uint64_t hash, attnkit_type type, const void *x, size_t count)
{
    switch (type) {
    case ATTNKIT_F16:
        return hash_halves(hash, x, count, 0x7c00, 0x7e00);
    case ATTNKIT_BF16:
        return hash_halves(hash, x, count, 0x7f80, 0x7fc0);
    default:
        return hash_floats(hash, x, count);
    }
}

#endif
