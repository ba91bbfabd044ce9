/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a planned append. All memory is checked and bound before anything is written. Then threads
 * share out the rows. The checks take some time for each batch entry and for each page that is
 * written.
 */
#include "dispatch/cache/append_plan.h"

#include "dispatch/cache/cache.h"
#include "dispatch/common/exec.h"
#include "dispatch/common/fp_modes.h"
#include "dispatch/common/message.h"
#include "dispatch/common/planned.h"

/* --------------------------------------------------------------------------------- memory */

static const char *const names[APPEND_TENSORS] = {
    [APPEND_DST] = "dst",
    [APPEND_SCALES] = "dst_scales",
    [APPEND_SRC] = "src",
    [APPEND_COS] = "rotation.cos",
    [APPEND_SIN] = "rotation.sin",
    [APPEND_STARTS] = "starts",
    [APPEND_LENS] = "lens",
    [APPEND_POSITIONS] = "positions",
    [APPEND_BLOCK_TABLE] = "block_table",
};

/* Sets `count` to the dimensions that tensor number `slot` of the plan has in a run. */
static void count_rows(const struct append_input *input, const struct tensor *t, int slot,
                       int64_t count[3])
{
    for (int i = 0; i < 3; i++)
        count[i] = t->count[i];
    switch (slot) {
    case APPEND_DST:
    case APPEND_SCALES:
        count[0] = t->paged ? t->count[0] : input->batch;
        break;
    case APPEND_SRC:
        count[0] = input->batch;
        count[2] = input->len;
        break;
    case APPEND_COS:
    case APPEND_SIN:
        break;
    default: /* arrays */
        count[2] = input->batch;
    }
}

/* Returns whether src and dst may be the same tensor: whether row i of src goes to row i of dst,
 * and both have the same type. */
static bool may_be_in_place(const struct append_plan *plan)
{
    const uint32_t elsewhere = 1u << APPEND_STARTS | 1u << APPEND_BLOCK_TABLE;
    return !(plan->given & elsewhere) && plan->a.src_type == plan->a.dst_type;
}

static attnkit_status bind_memory(const struct append_plan *plan, const struct append_input *input,
                                  struct append_memory *memory, char *message)
{
    const bool as_planned = input->batch == plan->a.batch && input->len == plan->a.len;
    attnkit_status status = ATTNKIT_OK;
    memory->count = 0;
    for (int slot = 0; status == ATTNKIT_OK && slot < APPEND_TENSORS; slot++) {
        const struct tensor *const t = &plan->tensors[slot];
        struct memory *const m = &memory->list[memory->count];
        if (!(plan->given >> slot & 1)) {
            status = attnkit_check_absent(names[slot], input->data[slot], message);
            continue;
        }
        memory->count++;
        if (as_planned) {
            status = attnkit_bind(m, t, input->data[slot], message);
        } else {
            int64_t count[3];
            count_rows(input, t, slot, count);
            status = attnkit_bind_part(m, t, count, input->data[slot], message);
        }
        if (slot == APPEND_SRC && may_be_in_place(plan))
            m->in_place = &memory->list[0];
    }
    if (status != ATTNKIT_OK)
        return status;
    return attnkit_check_overlaps(memory->list, memory->count, message);
}

static void set_problem(const struct append_plan *plan, const struct append_input *input,
                        struct append *a)
{
    const void *const *const data = input->data;
    *a = plan->a;
    a->batch = input->batch;
    a->len = input->len;
    a->dst = (char *)(uintptr_t)data[APPEND_DST];
    a->scales = (char *)(uintptr_t)data[APPEND_SCALES];
    a->src = data[APPEND_SRC];
    a->cos = data[APPEND_COS];
    a->sin = data[APPEND_SIN];
    a->starts.data = data[APPEND_STARTS];
    a->lens.data = data[APPEND_LENS];
    a->positions.data = data[APPEND_POSITIONS];
    a->pages.table = data[APPEND_BLOCK_TABLE];
}

/* ----------------------------------------------------------------------------------- rows */

/* Checks that the rows of entry b fit into src and dst. */
static attnkit_status check_rows(const struct append *a, int64_t capacity, int64_t b, char *message)
{
    const int64_t len = append_len(a, b), start = append_start(a, b);
    if (len < 0 || len > a->len)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "lens[%lld] is %lld: must be between 0 and len (%lld)", (long long)b,
                      (long long)len, (long long)a->len);
    if (start < 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "starts[%lld] is %lld: must be at least 0",
                      (long long)b, (long long)start);
    if (start > capacity || len > capacity - start)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "capacity is %lld: batch entry %lld has %lld rows from row %lld on",
                      (long long)capacity, (long long)b, (long long)len, (long long)start);
    return ATTNKIT_OK;
}

attnkit_status attnkit_check_append_positions(const struct append *a, int64_t table_positions,
                                              int64_t b, char *message)
{
    const int64_t len = append_len(a, b), position = append_position(a, b);
    int64_t end;
    if (position < 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "positions[%lld] is %lld: must be at least 0",
                      (long long)b, (long long)position);
    if (__builtin_add_overflow(position, len, &end))
        return refuse(
            message, ATTNKIT_OVERFLOW,
            "positions[%lld] is %lld: must be at most 2^63 - 1 minus the number of rows (%lld)",
            (long long)b, (long long)position, (long long)len);
    if (a->cos && len > 0 && end > table_positions)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "rotation.table_positions is %lld: batch entry %lld has %lld rows from "
                      "position %lld on",
                      (long long)table_positions, (long long)b, (long long)len,
                      (long long)position);
    return ATTNKIT_OK;
}

/* Returns the number of entries to check. Without arrays all entries are alike, so checking one
 * entry is enough.
 */
static int64_t entries_to_check(const struct append *a)
{
    const bool differ = a->starts.data || a->lens.data || a->positions.data || a->pages.table;
    return differ ? a->batch : 1;
}

/* Checks that the rows of every entry fit into dst, its pages and the tables of cos and sin. */
static attnkit_status check_entries(const struct append_plan *plan, const struct append *a,
                                    char *message)
{
    const int64_t entries = entries_to_check(a);
    attnkit_status status = ATTNKIT_OK;
    for (int64_t b = 0; status == ATTNKIT_OK && b < entries; b++) {
        status = check_rows(a, plan->capacity, b, message);
        if (status == ATTNKIT_OK && a->pairs > 0)
            status = attnkit_check_append_positions(a, plan->table_positions, b, message);
        if (status != ATTNKIT_OK)
            break;
        const int64_t start = append_start(a, b);
        status = attnkit_check_page_table(&a->pages, b, start, start + append_len(a, b), message);
    }
    return status;
}

attnkit_status attnkit_append_bind(const struct append_plan *plan, const struct append_input *input,
                                   struct append *a, struct append_memory *memory, char *message)
{
    const attnkit_status status = bind_memory(plan, input, memory, message);
    if (status != ATTNKIT_OK)
        return status;
    set_problem(plan, input, a);
    return check_entries(plan, a, message);
}

/* --------------------------------------------------------------------------------- shares */

/* The work that threads share. */
struct append_work {
    const struct append *a;
    const struct kernels *kernels;
    int64_t rows;   /* rows of all batch entries */
    int64_t shares; /* number of shares; some shares may have no rows */
    char *scratch;  /* [shares][scratch_size] */
    size_t scratch_size;
};

static int64_t count_all_rows(const struct append *a)
{
    int64_t rows = 0;
    if (!a->lens.data)
        return a->batch * a->len;
    for (int64_t b = 0; b < a->batch; b++)
        rows += append_len(a, b);
    return rows;
}

static void run_share(void *arg, int64_t share)
{
    const struct append_work *work = arg;
    if (share < 0 || share >= work->shares)
        return;
    const fp_modes callers = fp_modes_begin();
    attnkit_append_rows(work->a, work->kernels, first_of_share(work->rows, work->shares, share),
                        first_of_share(work->rows, work->shares, share + 1),
                        work->scratch + (size_t)share * work->scratch_size);
    fp_modes_end(callers);
}

void attnkit_append_execute(const struct append *a, size_t scratch_size,
                            const struct kernels *kernels, const attnkit_exec *exec, char *scratch)
{
    const int64_t most = a->batch * a->len;
    struct append_work work = {
        .a = a,
        .kernels = kernels,
        .rows = count_all_rows(a),
        .shares = exec->threads < most ? exec->threads : most,
        .scratch = scratch,
        .scratch_size = scratch_size,
    };
    attnkit_run_tasks(exec, work.shares, run_share, &work);
}
