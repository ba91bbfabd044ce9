/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the calls of a row, and compares their speed with a roof.
 */
#include "bench/measure/caches.h"
#include "bench/rows/calls.h"

void measure_calls(const struct row *row, struct pool *pool, struct patience patience,
                   const struct row_call *call, struct result *result)
{
    const char *const isa = row->isa->name;
    const struct work work = result->work;
    struct roof roof = {0};
    const bool has_roof = work.flops > 0.0 ? roof_fma(&roof, isa, pool)
                                           : roof_read(&roof, isa, pool, level_buffer(0));
    if (has_roof) {
        const struct subject subject = {call->make, call->arg,
                                        work.flops > 0.0 ? work.flops : work.bytes, pool};
        measure(&subject, &roof, patience, &result->figures);
    } else {
        row_fails(result, "no loops for the roof of %s, or no memory", isa);
    }
    roof_free(&roof);
}
