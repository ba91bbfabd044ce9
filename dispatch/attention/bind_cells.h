/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the indices of cells, which hold keys in any order, and lists the cells in a table in the
 * workspace.
 */
#ifndef ATTNKIT_BIND_CELLS_H
#define ATTNKIT_BIND_CELLS_H

#include "attnkit.h"
#include "kernels/attention/cells.h"

/* Checks the key indices of all batch entries, and makes the table of cells of `a` in `memory`.
 * Also checks that q_offsets minus the first key of an entry does not overflow. `memory` has
 * attnkit_cell_bytes(a) bytes and is aligned to a cache line. `a` must have cells. This function
 * takes some cycles for each cell of each entry. */
attnkit_status attnkit_bind_cells(struct attention *a, const struct kernels *kernels, char *memory,
                                  char *message);

#endif
