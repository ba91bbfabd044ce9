/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints figures as text.
 */
#include "bench/report/report.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "bench/report/time_text.h"

enum { LINE = 512 };

static void speed_text(const struct result *result, char text[FIGURE])
{
    const struct work work = result->work;
    const double seconds = result->figures.seconds;
    if (work.flops > 0.0)
        snprintf(text, FIGURE, "%.1f GFLOP/s", work.flops / seconds * 1e-9);
    else if (work.bytes > 0.0)
        snprintf(text, FIGURE, "%.1f GB/s   ", work.bytes / seconds * 1e-9);
    else
        snprintf(text, FIGURE, "%.3f ns/element", seconds / work.elements * 1e9);
}

static void roof_text(const struct result *result, char text[FIGURE])
{
    text[0] = '\0';
    if (!isnan(result->figures.roof_pct))
        snprintf(text, FIGURE, "%.1f %%", result->figures.roof_pct);
}

/* Sets `text` to a note if the row's threads had their processors for less than 97 % of the time,
 * because other programs ran. Else sets `text` to "". */
static void disturbance_text(const struct row *row, const struct figures *figures,
                             char text[2 * FIGURE])
{
    const double share = figures->cpu_seconds / figures->seconds / row->threads;
    text[0] = '\0';
    if (share < 0.97)
        snprintf(text, 2 * FIGURE, "  disturbed: ran %.0f %% of the time", 100.0 * share);
}

static void line_text(const struct row *row, const struct result *result, char text[LINE])
{
    char time[FIGURE], speed[FIGURE], roof[FIGURE], disturbance[2 * FIGURE];
    if (result->problem[0]) {
        snprintf(text, LINE, "not measured: %s", result->problem);
        return;
    }
    time_text(result->figures.seconds, time);
    speed_text(result, speed);
    roof_text(result, roof);
    disturbance_text(row, &result->figures, disturbance);
    snprintf(text, LINE, "%9s  %16s  %8s%s", time, speed, roof, disturbance);
}

void report_progress(const struct row *row, const struct result *result, int name_width, int done,
                     int count)
{
    FILE *const file = isatty(STDOUT_FILENO) ? stdout : stderr;
    char text[LINE];
    line_text(row, result, text);
    fprintf(file, "[%d/%d] %-*s  %s\n", done, count, name_width, row->name, text);
    fflush(file);
}

void report_header(int name_width)
{
    printf("\n%-*s  %9s  %16s  %8s\n", name_width, "name", "time", "speed", "of roof");
}

void report_row(const struct row *row, const struct result *result, int name_width)
{
    char text[LINE];
    line_text(row, result, text);
    printf("%-*s  %s\n", name_width, row->name, text);
}
