/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of counts.c for calls that compute nothing (a query of the workspace, a refused call),
 * and for calls that are neither attention nor linear maps nor layers.
 */
#ifndef ATTNKIT_COUNT_PARTS_H
#define ATTNKIT_COUNT_PARTS_H

#include "bench/rows/calls.h"

void add_part_rows(struct row_list *rows, const struct isa *isa);

#endif
