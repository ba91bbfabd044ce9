/* SPDX-License-Identifier: Apache-2.0
 *
 * The sizes of buffers that stand for this machine's caches and memory.
 */
#ifndef ATTNKIT_CACHES_H
#define ATTNKIT_CACHES_H

#include <stddef.h>

/* Returns the size in bytes of a buffer that stands for cache level 1 .. 3. If level is 0, the
 * buffer stands for memory beyond the caches. Returns 0 if this machine has no cache of the level,
 * or if the cache of the level is at most twice as large as the next smaller cache. */
size_t level_buffer(int level);

#endif
