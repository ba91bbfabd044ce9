/* SPDX-License-Identifier: Apache-2.0
 *
 * Integers of the caller, one for each batch entry or sequence, of 64 or 32 bits: read where they
 * lie.
 */
#ifndef ATTNKIT_INTS_H
#define ATTNKIT_INTS_H

#include <stdbool.h>
#include <stdint.h>

struct ints {
    const void *data; /* NULL: there are none */
    bool narrow;      /* int32_t, else int64_t */
};

static inline int64_t int_at(struct ints a, int64_t i)
{
    return a.narrow ? ((const int32_t *)a.data)[i] : ((const int64_t *)a.data)[i];
}

static inline int64_t int_bytes(struct ints a)
{
    return a.narrow ? (int64_t)sizeof(int32_t) : (int64_t)sizeof(int64_t);
}

#endif
