/* SPDX-License-Identifier: Apache-2.0
 *
 * The malloc, calloc, aligned_alloc and free that the code of bench/rows calls in a worker. The
 * linker redirects the calls to these functions (--wrap). So `attnkit compare` decides where the
 * operands of a measured call lie.
 */
#include "bench/worker/memory.h"

#include <string.h>

/* The linker's --wrap needs these names. */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *block);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void __wrap_free(void *block);

static const struct worker_memory *source;

void memory_take_from(const struct worker_memory *memory)
{
    source = memory;
}

void *__wrap_malloc(size_t bytes)
{
    return source ? source->take(source->owner, bytes) : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    size_t all;
    if (!source)
        return __real_calloc(count, bytes);
    if (__builtin_mul_overflow(count, bytes, &all))
        return NULL;
    void *const block = source->take(source->owner, all);
    return block ? memset(block, 0, all) : NULL;
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return source ? source->take(source->owner, bytes) : __real_aligned_alloc(alignment, bytes);
}

void __wrap_free(void *block)
{
    if (!source || !source->give_back(source->owner, block))
        __real_free(block);
}
