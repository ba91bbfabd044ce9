/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the results of two calls.
 */
#include "bench/compare/measure/differ.h"

#include <math.h>
#include <string.h>

bool same_bits(const struct copied *base, const struct copied *head)
{
    return base->count == head->count && !memcmp(base->bytes, head->bytes, base->count);
}

double distance(const struct copied *base, const struct copied *head)
{
    const float *const a = base->bytes, *const b = head->bytes;
    double most = 0.0, largest = 0.0;
    if (base->count != head->count || !base->is_floats || !head->is_floats)
        return NAN;
    for (size_t i = 0; i < base->count / sizeof(float); i++) {
        const bool same = a[i] == b[i] || (isnan(a[i]) && isnan(b[i]));
        const double off = same ? 0.0 : fabs((double)a[i] - (double)b[i]);
        if (isnan(off))
            return NAN;
        most = fmax(most, off);
        largest = fmax(largest, isfinite(a[i]) ? fabs((double)a[i]) : 0.0);
    }
    return most > 0.0 ? most / largest : 0.0;
}
