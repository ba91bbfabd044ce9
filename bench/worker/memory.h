/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that the rows of this worker allocate.
 */
#ifndef ATTNKIT_WORKER_MEMORY_H
#define ATTNKIT_WORKER_MEMORY_H

#include "bench/worker/worker.h"

/* Makes malloc, calloc and aligned_alloc of the rows take memory from `memory`, or from the system
 * if `memory` is NULL. */
void memory_take_from(const struct worker_memory *memory);

#endif
