/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads and memory for rows of public calls. The file also adds these rows to the list.
 */
#include "bench/rows/calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/random.h"
#include "tests/support/units.h"
#include "bench/measure/caches.h"

void on_threads(const struct row *row, struct patience patience, struct result *result,
                void (*measure_it)(const struct row *row, struct pool *pool,
                                   struct patience patience, struct result *result))
{
    if (row->threads > pool_processors()) {
        row_fails(result, "needs %d processors, but this process may use %d", row->threads,
                  pool_processors());
        return;
    }
    enable_units();
    struct pool *const pool = row->threads > 1 ? pool_start(row->threads) : NULL;
    if (row->threads > 1 && !pool)
        row_fails(result, "cannot start %d threads", row->threads);
    else
        measure_it(row, pool, patience, result);
    if (pool)
        pool_stop(pool);
}

attnkit_exec exec_of(const struct row *row, struct pool *pool)
{
    return (attnkit_exec){
        .size = sizeof(attnkit_exec),
        .isa = row->isa->name,
        .threads = row->threads,
        .parallel_for = pool ? pool_for : NULL,
        .pool = pool,
    };
}

/* ------------------------------------------------------------------------------- the memory */

size_t whole_lines(size_t bytes)
{
    const size_t line = 64;
    return (bytes + line - 1) / line * line;
}

float *draw(size_t count, uint64_t seed)
{
    float *floats = aligned_alloc(64, whole_lines(count * sizeof(float)));
    for (size_t i = 0; floats && i < count; i++)
        floats[i] = random_uniform(&seed);
    return floats;
}

void *draw_input(attnkit_type type, size_t count, uint64_t seed)
{
    float *const floats = draw(count, seed);
    if (type != ATTNKIT_BF16 || !floats)
        return floats;
    uint16_t *const upper = aligned_alloc(64, whole_lines(count * sizeof *upper));
    for (size_t i = 0; upper && i < count; i++)
        memcpy(&upper[i], (const char *)&floats[i] + sizeof *upper, sizeof *upper);
    free(floats);
    return upper;
}

struct copies copies_plan(const struct row *row, size_t bytes, bool cold)
{
    struct copies copies = {.bytes = whole_lines(bytes), .count = 1};
    if (cold && !row->warm && bytes > 0)
        copies.count += (int64_t)((level_buffer(0) - 1) / copies.bytes);
    return copies;
}

bool copies_take(struct copies *copies)
{
    copies->memory = aligned_alloc(64, copies->bytes * (size_t)copies->count);
    return copies->memory != NULL;
}

void copies_repeat(const struct copies *copies)
{
    for (int64_t i = 1; i < copies->count; i++)
        memcpy(copies->memory + (size_t)i * copies->bytes, copies->memory, copies->bytes);
}

char *copies_next(struct copies *copies)
{
    char *const copy = copies->memory + (size_t)copies->next * copies->bytes;
    copies->next = copies->next + 1 < copies->count ? copies->next + 1 : 0;
    return copy;
}

double copies_memory_bytes(const struct copies *copies)
{
    return (double)copies->bytes * (double)copies->count;
}

bool memory_has(double bytes)
{
    return bytes < 0.75 * (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

/* ---------------------------------------------------------------------------------- the rows */

struct work work_of(double flops, double bytes)
{
    const double flops_for_a_byte = 8.0;
    if (flops < flops_for_a_byte * bytes)
        return (struct work){.bytes = bytes};
    return (struct work){.flops = flops};
}

/* Copies the text without /planned and /warm to `shape`, and sets row->planned and row->warm.
 * Returns false if anything else follows the shape, or if the shape is too long. */
static bool take_words(const char *text, char shape[SHAPE_TEXT], struct row *row)
{
    const char *rest = strchr(text, '/');
    const size_t length = rest ? (size_t)(rest - text) : strlen(text);
    rest = rest ? rest : "";
    row->planned = !strncmp(rest, "/planned", 8);
    rest += row->planned ? 8 : 0;
    row->warm = !strcmp(rest, "/warm");
    if (length >= SHAPE_TEXT || (*rest && !row->warm))
        return false;
    memcpy(shape, text, length);
    shape[length] = '\0';
    return true;
}

/* Sets the row's fields that follow from its shape: the shape itself and the function that measures
 * the row. Also sets *family, and sets `text` to the shortest form of the shape. Returns false if
 * `shape` does not describe a shape. */
static bool complete(const char *shape, struct row *row, const char **family, char text[SHAPE_TEXT])
{
    if (linear_shape_parse(shape, &row->linear)) {
        row->run = run_linear;
        *family = "linear";
        linear_shape_text(&row->linear, text);
        return true;
    }
    if (!shape_parse(shape, &row->shape))
        return false;
    const bool is_layer = row->shape.d_model > 0;
    row->run = is_layer ? run_layer : run_attention;
    *family = is_layer ? "layer" : attention_family(&row->shape);
    shape_text(&row->shape, text);
    return true;
}

bool add_call_row(struct row_list *rows, const char *shape, const struct row *like)
{
    char alone[SHAPE_TEXT], text[SHAPE_TEXT], threads[16] = "";
    const char *family;
    struct row made = *like;
    if (!take_words(shape, alone, &made) || !complete(alone, &made, &family, text) ||
        (made.planned && made.run != run_attention))
        return false;
    if (like->threads > 1)
        snprintf(threads, sizeof threads, "/t%d", like->threads);
    struct row *row = rows_add(rows, "%s/%s%s/%s/%s%s%s%s", family, input_text(like->input),
                               type_text(like->type), like->isa->name, text,
                               made.planned ? "/planned" : "", made.warm ? "/warm" : "", threads);
    memcpy(made.name, row->name, sizeof made.name);
    *row = made;
    return true;
}

static void add_workload(struct row_list *rows, const struct workload *workload,
                         const struct isa *isa)
{
    struct row like = {.isa = isa, .threads = workload->threads, .quick = workload->quick};
    for (like.type = ATTNKIT_F32; like.type <= ATTNKIT_Q8_0; like.type++)
        if (workload->types & 1u << like.type && !add_call_row(rows, workload->shape, &like))
            abort();
    like.type = like.input = ATTNKIT_BF16;
    if (workload->types & BF16_BF16 && !add_call_row(rows, workload->shape, &like))
        abort();
}

void add_workloads(struct row_list *rows, const struct workload *workloads, size_t count)
{
    const struct isa *isas;
    for (int i = attnkit_isas(&isas) - 1; i >= 0; i--) {
        const bool scalar = !strcmp(isas[i].name, "scalar");
        for (size_t w = 0; attnkit_isa_can_run(&isas[i]) && w < count; w++)
            if (!scalar || workloads[w].small)
                add_workload(rows, &workloads[w], &isas[i]);
    }
}
