/* SPDX-License-Identifier: Apache-2.0
 *
 * The sizes of this machine's caches, and of buffers that stand for them.
 */
#ifndef ATTNKIT_CACHES_H
#define ATTNKIT_CACHES_H

#include <stddef.h>

/* Bytes of a buffer that stands for a cache level, 1 .. 3, or with 0 for memory beyond the caches.
 * 0: this machine has no such level. */
size_t level_buffer(int level);

#endif
