/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a job as JSON.
 */
#include "bench/compare/report/results.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/cli/tool.h"
#include "bench/report/output.h"

/* Writes a quoted JSON string. The output is ASCII for any bytes of the text. */
static void put_string(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(file, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            fprintf(file, "\\u%04x", c);
        else
            fputc(c, file);
    }
    fputc('"', file);
}

static void put_named(FILE *file, const char *name, const char *text)
{
    fprintf(file, "\"%s\": ", name);
    put_string(file, text);
    fputs(", ", file);
}

/* Writes the fields of an estimate, without braces. */
static void put_estimate(FILE *file, const struct estimate *estimate)
{
    fprintf(file, "\"ratio\": %.6f, \"low\": %.6f, \"high\": %.6f, \"p\": %.6g, \"pairs\": %d",
            estimate->ratio, estimate->low, estimate->high, estimate->p, estimate->pairs);
}

static void put_times(FILE *file, const struct point *point)
{
    put_estimate(file, &point->head);
    fprintf(file, ", \"base_seconds\": %.9g, \"head_seconds\": %.9g", point->base_seconds,
            point->head_seconds);
    if (!point->aa.pairs)
        return;
    fputs(", \"aa\": {", file);
    put_estimate(file, &point->aa);
    fputs("}", file);
}

static void put_point(FILE *file, const struct judged *point)
{
    fputs("    {", file);
    put_named(file, "name", point->first->name);
    put_named(file, "verdict", point_verdict(point));
    if (point->first->note[0])
        put_named(file, "note", point->first->note);
    fprintf(file, "\"red\": %s, \"confirmed\": %s", point_is_red(point) ? "true" : "false",
            point_is_confirmed(point) ? "true" : "false");
    if (point->first->outcome == MEASURED) {
        fputs(", ", file);
        put_times(file, point->first);
    }
    if (point->second->wanted && point->second->outcome == MEASURED) {
        fputs(", \"again\": {", file);
        put_times(file, point->second);
        fputs("}", file);
    }
    fputs("}", file);
}

static void put_context(FILE *file, const struct job *job)
{
    static const char *const names[] = {"base", "head"};
    char cpu[CPUINFO_LINE];
    cpuinfo("model name", cpu);
    fputs("  \"context\": {", file);
    put_named(file, "cpu", cpu);
    put_named(file, "isa", job->shared->isa);
    put_named(file, "compiler", tool_compiler());
    for (int side = BASE; side <= HEAD; side++) {
        put_named(file, names[side], job->labels[side]);
        fprintf(file, "\"%s_version\": ", names[side]);
        put_string(file, job->shared->version[side]);
        fputs(", ", file);
    }
    fprintf(file, "\"core\": %d, \"seed\": %llu, \"seconds\": %.3f, \"aa\": {", job->shared->core,
            (unsigned long long)job->plan->seed, job->seconds);
    put_estimate(file, &job->control.pooled);
    fprintf(file, ", \"points\": %d, \"good\": %s}},\n", job->control.points,
            control_is_good(&job->control) ? "true" : "false");
}

bool results_write(const struct job *job, const char *name)
{
    FILE *const file = fopen(name, "w");
    if (!file)
        return complain("cannot write %s: %s", name, strerror(errno));
    fputs("{\n", file);
    put_context(file, job);
    fprintf(file, "  \"verdict\": \"%s\",\n  \"points\": [\n", verdict_text(job->verdict));
    for (int i = 0; i < job->shared->count; i++) {
        put_point(file, &job->points[i]);
        fputs(i + 1 < job->shared->count ? ",\n" : "\n", file);
    }
    fputs("  ]\n}\n", file);
    if (fclose(file))
        return complain("cannot write %s: %s", name, strerror(errno));
    return output_end("]\n}\n");
}
