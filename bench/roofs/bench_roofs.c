/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that measure the machine's roofs themselves: multiply-adds of each instruction set, such as
 * fma/avx2, and read/L1 .. read/dram by the best instruction set. Like all rows with a roof, these
 * rows are measured in rounds, each between two bursts of the roof. The measured calls are
 * themselves bursts. The distance of these rows' percentages from 100 shows how exact the
 * percentages of all rows currently are.
 */
#include <string.h>

#include "bench/measure/caches.h"
#include "bench/rows/rows.h"

static const char *const levels[] = {"dram", "L1", "L2", "L3"};

static void burst(void *roof)
{
    roof_burst(roof);
}

static void measure_roof(struct roof *roof, struct patience patience, struct result *result)
{
    const struct subject subject = {burst, roof, roof->work, NULL};
    patience.seconds /= 5.0;
    measure(&subject, roof, patience, &result->figures);
}

static void run_fma(const struct row *row, struct patience patience, struct result *result)
{
    struct roof roof;
    if (!roof_fma(&roof, row->isa->name, NULL)) {
        row_fails(result, "no loops for the roof of %s", row->isa->name);
        return;
    }
    result->work.flops = roof.work;
    measure_roof(&roof, patience, result);
}

static void run_read(const struct row *row, struct patience patience, struct result *result)
{
    struct roof roof;
    const size_t size = level_buffer((int)row->number);
    if (size == 0)
        row_fails(result, "this machine reports no %s cache", levels[row->number]);
    else if (!roof_read(&roof, row->isa->name, NULL, size))
        row_fails(result, "no loops for the roof of %s, or no memory", row->isa->name);
    else {
        result->work.bytes = roof.work;
        measure_roof(&roof, patience, result);
        roof_free(&roof);
    }
}

static void add_row(struct row_list *rows, const char *kind, const char *of, const struct isa *isa,
                    int64_t number,
                    void (*run)(const struct row *, struct patience, struct result *))
{
    struct row *row = rows_add(rows, "%s/%s", kind, of);
    row->quick = QUICK;
    row->isa = isa;
    row->number = number;
    row->run = run;
}

void add_roof_rows(struct row_list *rows)
{
    const struct isa *isas, *best = NULL;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        if (attnkit_isa_can_run(&isas[i])) {
            best = &isas[i];
            add_row(rows, "fma", best->name, best, 0, run_fma);
        }
    for (int level = 1; level <= 3; level++)
        add_row(rows, "read", levels[level], best, level, run_read);
    add_row(rows, "read", levels[0], best, 0, run_read);
}
