/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread's share of the work. Threads that have finished their own shares also take work from
 * this share.
 */
#ifndef ATTNKIT_QUEUE_H
#define ATTNKIT_QUEUE_H

#include <stdatomic.h>
#include <stdint.h>

/* Pieces `next` to `end` - 1 of the work are left. `next` may be larger than `end`. A queue fills a
 * cache line. */
struct queue {
    _Alignas(64) _Atomic int64_t next;
    int64_t end;
};

#endif
