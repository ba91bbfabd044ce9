/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the values in the arrays of a layer run: lengths, block tables, positions, cells. The
 * checks take some time for each batch entry, for each page that holds keys, and for each cell.
 * With a cache, the number of keys of each entry, new keys included, is written to the workspace,
 * where attention reads it.
 */
#include "dispatch/attention/bind_cells.h"
#include "dispatch/attention/run.h"
#include "dispatch/common/message.h"
#include "dispatch/layer/layer_plan.h"
#include "kernels/attention/cells.h"

static attnkit_status set_kv_lens(const struct layer_run *run, char *message)
{
    const struct layer_plan *const plan = run->plan;
    const struct ints cached = {run->memory[OWN_CACHED], plan->has.narrow_cached};
    const int64_t room = run->lengths.room;
    const int64_t more = plan->has.appends ? run->lengths.key_len : 0;
    for (int64_t b = 0; b < run->lengths.batch; b++) {
        const int64_t keys = int_at(cached, b);
        if (keys < 0 || keys > room || more > room - keys)
            return refuse(
                message, ATTNKIT_BAD_ARGUMENT,
                "cached[%lld] is %lld: must be at least 0, and with %lld new keys at most "
                "attention->kv_len (%lld)",
                (long long)b, (long long)keys, (long long)more, (long long)room);
        run->buffers.kv_lens[b] = keys + more;
    }
    return ATTNKIT_OK;
}

/* Checks positions. Rows of q and new keys have the same positions, so one check serves both.
 * Without positions, the numbers in `cached` are the positions. If the run has no positions, no
 * `cached` and no cu_seqlens_q, all batch entries are alike, and only one entry is checked. */
static attnkit_status check_positions(const struct layer_run *run, char *message)
{
    const struct ints starts = run->attention.q_starts;
    struct append entry = run->append_q;
    const int64_t entries = starts.data || entry.positions.data ? entry.batch : 1;
    attnkit_status status = ATTNKIT_OK;
    for (int64_t b = 0; status == ATTNKIT_OK && b < entries; b++) {
        if (starts.data)
            entry.len = int_at(starts, b + 1) - int_at(starts, b);
        status = attnkit_check_append_positions(&entry, run->plan->table_positions, b, message);
    }
    return status;
}

attnkit_status attnkit_bind_layer_cells(const struct layer_run *run, const attnkit_exec *exec,
                                        struct attention *a, char *message)
{
    char *const memory = attnkit_cells_of(&run->plan->attention, run->scratch, exec->thread);
    return attnkit_bind_cells(a, run->kernels, memory, message);
}

/* Checks cells on a copy of the run's struct attention. The function is not inlined, so that a
 * layer without cells does not pay for the copy. */
static __attribute__((noinline)) attnkit_status check_cells(const struct layer_run *run,
                                                            const attnkit_exec *exec, char *message)
{
    struct attention a = run->attention;
    return attnkit_bind_layer_cells(run, exec, &a, message);
}

attnkit_status attnkit_check_layer_arrays(const struct layer_run *run, const attnkit_exec *exec,
                                          char *message)
{
    const struct layer_options *const has = &run->plan->has;
    const struct attention *const a = &run->attention;
    attnkit_status status = has->has_cache ? set_kv_lens(run, message) : ATTNKIT_OK;
    if (status == ATTNKIT_OK)
        status = attnkit_check_attention_arrays(a, message);
    if (status == ATTNKIT_OK && has->rotates)
        status = check_positions(run, message);
    if (status == ATTNKIT_OK && has_cells(a) && a->batch > 0 && a->q_len > 0)
        status = check_cells(run, exec, message);
    return status;
}
