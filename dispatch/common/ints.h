/* SPDX-License-Identifier: Apache-2.0
 *
 * The arrays of integers that callers pass. The integers have 32 or 64 bits.
 */
#ifndef ATTNKIT_COMMON_INTS_H
#define ATTNKIT_COMMON_INTS_H

#include "attnkit.h"
#include "kernels/ints.h"

/* Checks `type` and `reserved` of an array, and sets *ours to the array. Reads no element:
 * theirs.data may be NULL. `name` is the name of the field, for error messages. */
attnkit_status attnkit_read_ints(const char *name, attnkit_ints theirs, struct ints *ours,
                                 char *message);

#endif
