/* SPDX-License-Identifier: Apache-2.0
 *
 * Manages the list of rows.
 */
#include "bench/rows/rows.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/cli/filter.h"
#include "tools/cli/tool.h"

struct row *rows_add(struct row_list *rows, const char *format, ...)
{
    static struct row spare; /* returned if there is no memory */
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

bool rows_filter(struct row_list *rows, const char *expression)
{
    regex_t filter;
    int kept = 0;
    if (!filter_make(expression, &filter))
        return false;
    for (int i = 0; i < rows->count; i++)
        if (filter_takes(&filter, rows->list[i].name))
            rows->list[kept++] = rows->list[i];
    rows->count = kept;
    regfree(&filter);
    return kept > 0 || complain("no row is left; --list prints all names");
}

void row_fails(struct result *result, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(result->problem, sizeof result->problem, format, values);
    va_end(values);
}
