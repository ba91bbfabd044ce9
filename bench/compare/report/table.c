/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints points and verdicts as text.
 */
#include "bench/compare/report/table.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench/report/time_text.h"

enum { LINE = 1024 };

static void figures_text(const struct point *point, char text[LINE])
{
    const struct estimate *const head = &point->head;
    char base_time[FIGURE], head_time[FIGURE];
    time_text(point->base_seconds, base_time);
    time_text(point->head_seconds, head_time);
    snprintf(text, LINE, "%9s  %9s  %.4f [%.4f, %.4f]  %7.1g  %5d", base_time, head_time,
             head->ratio, head->low, head->high, head->p, head->pairs);
}

void table_progress(const struct point *point, int done, int count, int name_width)
{
    FILE *const file = isatty(STDOUT_FILENO) ? stdout : stderr;
    char text[LINE];
    if (point->outcome == MEASURED)
        figures_text(point, text);
    else
        snprintf(text, sizeof text, "%s", point->note);
    fprintf(file, "[%d/%d] %-*s  %s\n", done, count, name_width, point->name, text);
    fflush(file);
}

static void print_point(const struct judged *judged, int name_width)
{
    const struct point *const point = judged->first;
    const char *const verdict = point_verdict(judged);
    const char *confirmed = "";
    char text[LINE];
    if (!strcmp(verdict, "slower"))
        confirmed = point_is_confirmed(judged) ? ", confirmed" : ", not confirmed";
    if (point->outcome != MEASURED) {
        printf("%-*s  %s: %s\n", name_width, point->name, verdict, point->note);
        return;
    }
    figures_text(point, text);
    printf("%-*s  %s  %s%s%s%s\n", name_width, point->name, text, verdict, confirmed,
           point->note[0] ? ", " : "", point->note);
    if (!judged->second->wanted || judged->second->outcome != MEASURED)
        return;
    figures_text(judged->second, text);
    printf("%-*s  %s\n", name_width, "  again, libraries loaded in the other order", text);
}

static int count_verdicts(const struct job *job, const char *verdict)
{
    int count = 0;
    for (int i = 0; i < job->shared->count; i++)
        count += !strcmp(point_verdict(&job->points[i]), verdict);
    return count;
}

static int count_red(const struct job *job)
{
    int count = 0;
    for (int i = 0; i < job->shared->count; i++)
        count += point_is_red(&job->points[i]);
    return count;
}

static int longest_name(const struct shared *shared)
{
    int longest = 0;
    for (int i = 0; i < shared->count; i++) {
        const int length = (int)strlen(shared->points[FIRST][i].name);
        longest = length > longest ? length : longest;
    }
    return longest;
}

const char *verdict_text(enum verdict verdict)
{
    static const char *const words[] = {
        [GREEN] = "green", [RED] = "red", [INCONCLUSIVE] = "inconclusive"};
    return words[verdict];
}

static void print_control(const struct control *control)
{
    const struct estimate *const pooled = &control->pooled;
    if (pooled->pairs == 0)
        puts("BASE against itself was not measured");
    else
        printf("BASE against itself: %.4f [%.4f, %.4f], %d pairs of %d points%s\n", pooled->ratio,
               pooled->low, pooled->high, pooled->pairs, control->points,
               control_is_good(control) ? "" : ": timings on this machine are too noisy now");
}

void table_print(const struct job *job)
{
    const struct shared *const shared = job->shared;
    const int width = longest_name(shared);
    printf("\nBASE: %s\nHEAD: %s\n\n", job->labels[BASE], job->labels[HEAD]);
    printf("%-*s  %9s  %9s  %-23s  %7s  %5s\n", width, "name", "BASE", "HEAD", "HEAD / BASE [95 %]",
           "p", "pairs");
    for (int i = 0; i < shared->count; i++)
        print_point(&job->points[i], width);
    putchar('\n');
    print_control(&job->control);
    printf("%s: %d points in %.0f s, of which %d red, %d faster, %d slower, %d unclear\n",
           verdict_text(job->verdict), shared->count, job->seconds, count_red(job),
           count_verdicts(job, "faster"), count_verdicts(job, "slower"),
           count_verdicts(job, "unclear"));
}
