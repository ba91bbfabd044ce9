/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of rows, and the sizes of this machine's caches.
 */
#include "rows.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "gbench.h"

struct row *rows_add(struct row_list *rows, const char *format, ...)
{
    static struct row spare; /* what is written to it is lost, and main.c says so */
    struct row *list = realloc(rows->list, ((size_t)rows->count + 1) * sizeof *list);
    struct row *row = &spare;
    rows->out_of_memory |= !list;
    if (list) {
        rows->list = list;
        row = &list[rows->count++];
    }
    *row = (struct row){.threads = 1};
    va_list values;
    va_start(values, format);
    vsnprintf(row->name, sizeof row->name, format, values);
    va_end(values);
    return row;
}

void row_fails(struct result *result, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(result->problem, sizeof result->problem, format, values);
    va_end(values);
}

/* Half a level leaves room for what else is in it; what it holds must not fit into the level
 * below. Virtual machines tell of caches that they share with others: 512 MB must be enough to be
 * beyond them. */
size_t level_buffer(int64_t level)
{
    const size_t least = (size_t)128 << 20, most = (size_t)512 << 20;
    if (level > 0) {
        const size_t size = gbench_cache_bytes((int)level) / 2;
        return level == 1 || size > gbench_cache_bytes((int)level - 1) ? size : 0;
    }
    const size_t size = 4 * gbench_cache_bytes(3);
    return size < least ? least : size > most ? most : size;
}
