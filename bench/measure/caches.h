/* SPDX-License-Identifier: Apache-2.0
 *
 * The sizes of this machine's caches, and of buffers that stand for them.
 */
#ifndef ATTNKIT_CACHES_H
#define ATTNKIT_CACHES_H

#include <stddef.h>

/* Returns the bytes of a buffer that stands for cache level 1 .. 3, or for memory beyond the caches
 * if level is 0. Returns 0 if this machine has no such level. */
size_t level_buffer(int level);

#endif
