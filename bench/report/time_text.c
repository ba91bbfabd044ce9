/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes times as text.
 */
#include "bench/report/time_text.h"

#include <stdio.h>

void time_text(double seconds, char text[FIGURE])
{
    static const char *const units[] = {"ns", "us", "ms", "s "};
    int unit = 0;
    double value = seconds * 1e9;
    for (; value >= 999.5 && unit < 3; unit++)
        value /= 1000.0;
    snprintf(text, FIGURE, "%.*f %s",
             value < 9.995   ? 2
             : value < 99.95 ? 1
                             : 0,
             value, units[unit]);
}
