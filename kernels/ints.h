/* SPDX-License-Identifier: Apache-2.0
 *
 * An array of the caller's integers, which have 64 or 32 bits: for example one integer for each
 * batch entry. The array is read in place, without a copy.
 */
#ifndef ATTNKIT_INTS_H
#define ATTNKIT_INTS_H

#include <stdbool.h>
#include <stdint.h>

struct ints {
    const void *data; /* NULL: no array */
    bool narrow;      /* the elements are int32_t; else int64_t */
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
