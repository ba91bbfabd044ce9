/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays of integers of a public call, whose width is one of two.
 */
#ifndef ATTNKIT_COMMON_INTS_H
#define ATTNKIT_COMMON_INTS_H

#include "attnkit.h"
#include "kernels/ints.h"

/* Reads an array, whose data may be NULL. Refuses what is not known by the name of the field. */
attnkit_status attnkit_read_ints(const char *name, attnkit_ints theirs, struct ints *ours,
                                 char *message);

#endif
