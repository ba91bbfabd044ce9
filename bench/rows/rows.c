/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of rows.
 */
#include "bench/rows/rows.h"

#include <regex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/cli/tool.h"

struct row *rows_add(struct row_list *rows, const char *format, ...)
{
    static struct row spare; /* what is written to it is lost, and `main` says so */
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
    const int error = regcomp(&filter, expression ? expression : "", REG_EXTENDED | REG_NOSUB);
    if (error) {
        char message[256];
        regerror(error, &filter, message, sizeof message);
        return complain("--filter is '%s': %s", expression, message);
    }
    int kept = 0;
    for (int i = 0; i < rows->count; i++)
        if (!regexec(&filter, rows->list[i].name, 0, NULL, 0))
            rows->list[kept++] = rows->list[i];
    rows->count = kept;
    regfree(&filter);
    return kept > 0 || complain("no row is left; --list has their names");
}

void row_fails(struct result *result, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(result->problem, sizeof result->problem, format, values);
    va_end(values);
}
