/* SPDX-License-Identifier: Apache-2.0
 *
 * Cells that hold keys in any order: their indices are checked, and listed in memory of the call.
 */
#ifndef ATTNKIT_BIND_CELLS_H
#define ATTNKIT_BIND_CELLS_H

#include "attnkit.h"
#include "kernels/attention/cells.h"

/* Checks the indices of all entries and gives `a`, which has cells, a table in `memory`,
 * attnkit_cell_bytes(a) bytes aligned to a cache line. Costs some cycles for each cell of each
 * entry. */
attnkit_status attnkit_bind_cells(struct attention *a, const struct kernels *kernels, char *memory,
                                  char *message);

#endif
