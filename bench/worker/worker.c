/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker of this revision. It finds the row of the benches for the name of a point. The row
 * makes the call. `attnkit compare` also compiles this file, unchanged, with the rows of revisions
 * that have no worker (bench/compare/build/older.c).
 */
#include "bench/worker/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/rows/calls.h"
#include "bench/worker/memory.h"

enum { MAX_ISAS = 8 };

/* The call that is being set up: its memory, the user that measure_calls notifies, and a note for
 * the user. */
static const struct worker_memory *memory;
static const struct worker_user *user;
static const char *note;

/* ------------------------------------------------------------------------ the instruction sets */

/* Lists the instruction sets that can run here, by name only. Rows need nothing else. */
int attnkit_isas(const struct isa **list)
{
    static struct isa isas[MAX_ISAS];
    attnkit_isa_info info = {.size = sizeof info};
    int count = 0;
    for (int32_t i = 0; i < attnkit_isa_count() && count < MAX_ISAS; i++)
        if (attnkit_isa_get(i, &info, NULL) == ATTNKIT_OK && info.can_run)
            isas[count++] = (struct isa){.name = info.name};
    *list = isas;
    return count;
}

bool attnkit_isa_can_run(const struct isa *isa)
{
    return isa->name != NULL;
}

static const char *isa_name(int32_t index)
{
    const struct isa *isas;
    return index < attnkit_isas(&isas) ? isas[index].name : NULL;
}

static const struct isa *find_isa(const char *name)
{
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++)
        if (!strcmp(isas[i].name, name))
            return &isas[i];
    return NULL;
}

/* ------------------------------------------------------------------------------------ the row */

/* The parts of a point's name, as substrings of `text`. */
struct point_words {
    char text[ROW_NAME];
    char *family, *type, *isa, *shape;
    bool warm;
};

/* Removes the word `end` from the end of the text. Returns whether the text had this end. */
static bool take_end(char *text, const char *end)
{
    const size_t length = strlen(text), its = strlen(end);
    const bool found = length >= its && !strcmp(text + length - its, end);
    if (found)
        text[length - its] = '\0';
    return found;
}

static bool split(const char *point, struct point_words *words)
{
    char *rest = words->text;
    if (snprintf(words->text, sizeof words->text, "%s", point) >= (int)sizeof words->text)
        return false;
    words->warm = take_end(words->text, "/warm");
    words->family = strsep(&rest, "/");
    words->type = strsep(&rest, "/");
    words->isa = strsep(&rest, "/");
    words->shape = rest;
    return rest != NULL;
}

/* Turns an attention row into a row that appends its K. Returns false if the row is not
 * attention. */
static bool become_append(struct row *row)
{
    const bool ok = row->run == run_attention;
    row->run = run_append;
    return ok;
}

/* Returns whether the row belongs to the family. */
static bool has_family(const struct row *row, const char *family)
{
    const size_t length = strlen(family);
    return !strncmp(row->name, family, length) && row->name[length] == '/';
}

/* Adds the row of a shape. With /planned, the row is a run of a plan. If this revision has no
 * plans, the row is the single call instead, which a plan should beat. */
static bool add_row(struct row_list *rows, char *shape, const struct row *like)
{
    note = NULL;
    if (add_call_row(rows, shape, like))
        return true;
    note = "has no plans, and makes the single call";
    return take_end(shape, "/planned") && add_call_row(rows, shape, like);
}

/* Makes the row of a point. Returns false if the benches have no such row. */
static bool make_row(const char *point, struct row *row)
{
    struct point_words words;
    struct row_list rows = {0};
    struct row like = {.threads = 1};
    bool ok = split(point, &words) && types_parse(words.type, &like.type, &like.input) &&
              (like.isa = find_isa(words.isa)) && add_row(&rows, words.shape, &like) &&
              !rows.out_of_memory;
    if (ok) {
        *row = rows.list[0];
        row->warm = words.warm;
        ok = !strcmp(words.family, "append") ? become_append(row) : has_family(row, words.family);
    }
    free(rows.list);
    return ok;
}

/* ------------------------------------------------------------------------------------ the call */

/* Replaces copies_next of the rows (the linker's --wrap needs this name). Several loaded libraries
 * use the same operands in turn. *memory->turn counts the calls of all these libraries.
 * copies->next would count only the calls of one library. */
char *__wrap_copies_next(struct copies *copies);
char *__wrap_copies_next(struct copies *copies)
{
    return copies->memory + *memory->turn % (uint64_t)copies->count * copies->bytes;
}

/* Passes the call to the function `ready` of the user. A row calls measure_calls when its call is
 * set up. */
void measure_calls(const struct row *row, struct pool *pool, struct patience patience,
                   const struct row_call *call, struct result *result)
{
    (void)pool, (void)patience, (void)result;
    const struct worker_call ready = {
        call->make, call->arg, call->out, call->out_bytes, row->run != run_append, note};
    user->ready(user->self, &ready);
}

static void run(const char *point, const struct worker_memory *its_memory,
                const struct worker_user *its_user, char problem[WORKER_PROBLEM])
{
    static const struct patience none;
    struct result result = {0};
    struct row row;
    if (make_row(point, &row)) {
        memory = its_memory;
        user = its_user;
        memory_take_from(memory);
        row.run(&row, none, &result);
        memory_take_from(NULL);
    } else {
        row_fails(&result, "the benches of this revision have no such row");
    }
    snprintf(problem, WORKER_PROBLEM, "%s", result.problem);
}

const struct worker attnkit_worker = {
    .version = WORKER_VERSION,
    .library_version = attnkit_version,
    .isa = isa_name,
    .run = run,
};
