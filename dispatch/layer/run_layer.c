/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the parts of a layer one after the other. Threads share out each part. They begin a part
 * only after all threads have finished the part before it. Only the mean of weights may still be
 * unfinished when the next part begins, because no later part reads the mean. Everything has been
 * checked before, so nothing can fail here.
 */
#include "dispatch/attention/run.h"
#include "dispatch/common/exec.h"
#include "dispatch/common/fp_modes.h"
#include "dispatch/layer/layer_plan.h"
#include "dispatch/linear/matrix.h"
#include "kernels/attention/cells.h"

/* A run and its threads. */
struct crew {
    const struct layer_run *run;
    const attnkit_exec *exec;
};

/* Waits until all threads have finished a part. A parallel-for needs no barrier, because it returns
 * only after all threads have finished. */
static void meet(const struct crew *crew)
{
    if (crew->exec->threads > 1 && !crew->exec->parallel_for)
        crew->exec->barrier(crew->exec->pool);
}

/* --- Linear maps ------------------------------------------------------------------------------ */

/* Rows of batch entries. Steps from one entry or row to the next are in bytes. */
struct rows_of_entries {
    char *data;
    int64_t entry_step, row_step;
};

/* Runs a linear map on the rows of all entries, in one piece if all rows are equally far apart,
 * else one entry after the other. */
static void map(const struct crew *crew, enum projection projection, struct rows_of_entries x,
                struct rows_of_entries y, int64_t entries, int64_t rows)
{
    const struct layer_run *const run = crew->run;
    const struct planned_map *const planned = &run->plan->maps[projection];
    const struct projection_shape *const p = &run->plan->layer.projection[projection];
    const char *const packed = run->memory[OWN_PACKED];
    struct linear l = planned->l;
    int64_t blocks = entries;
    l.w = packed + p->w;
    l.bias = p->has_bias ? (const float *)(packed + p->bias) : NULL;
    l.rows = rows;
    l.x_stride = x.row_step;
    l.y_stride = y.row_step;
    if (rows == 1) {
        l.rows = entries;
        l.x_stride = x.entry_step;
        l.y_stride = y.entry_step;
        blocks = 1;
    } else if (rows == 0 || entries <= 1 ||
               (x.entry_step == rows * x.row_step && y.entry_step == rows * y.row_step)) {
        l.rows = rows * entries;
        blocks = 1;
    }
    for (int64_t i = 0; i < blocks; i++) {
        l.x = x.data + i * x.entry_step;
        l.y = y.data + i * y.entry_step;
        if (l.rows > 0)
            attnkit_linear_execute(&l, planned->scratch_size, run->kernels, crew->exec,
                                   run->scratch);
        meet(crew); /* all pieces share one workspace */
    }
}

static struct rows_of_entries own_rows(const struct layer_run *run, enum own_tensor which)
{
    const struct tensor *const t = &run->plan->own[which];
    return (struct rows_of_entries){(char *)run->memory[which], t->stride[0], t->stride[2]};
}

static struct rows_of_entries buffer_rows(float *data, int64_t rows, int64_t dim)
{
    const int64_t row = dim * (int64_t)sizeof *data;
    return (struct rows_of_entries){(char *)data, rows * row, row};
}

static void map_q(const struct crew *crew)
{
    const struct layer_run *const run = crew->run;
    const struct layer_lengths *const l = &run->lengths;
    const int64_t dim = run->plan->layer.projection[Q].out_dim;
    map(crew, Q, own_rows(run, OWN_X), buffer_rows(run->buffers.q_raw, l->q_len, dim),
        run->plan->has.packed_q ? 1 : l->batch, l->q_len);
}

static void map_keys(const struct crew *crew, enum projection projection, float *to)
{
    const struct layer_run *const run = crew->run;
    const struct layer_options *const has = &run->plan->has;
    const struct layer_lengths *const l = &run->lengths;
    const int64_t dim = run->plan->layer.projection[projection].out_dim;
    enum own_tensor from = has->has_key ? OWN_KEY : OWN_X;
    if (projection == V && has->has_value)
        from = OWN_VALUE;
    map(crew, projection, own_rows(run, from), buffer_rows(to, l->key_len, dim),
        has->packed_keys ? 1 : l->batch, l->key_len);
}

static void map_out(const struct crew *crew)
{
    const struct layer_run *const run = crew->run;
    const struct layer_lengths *const l = &run->lengths;
    const int64_t dim = run->plan->layer.projection[O].in_dim;
    map(crew, O, buffer_rows(run->buffers.result, l->q_len, dim), own_rows(run, OWN_OUT),
        run->plan->has.packed_q ? 1 : l->batch, l->q_len);
}

/* --- Appends ---------------------------------------------------------------------------------- */

/* Returns the append for entry b of packed sequences. Both src and dst lie in the workspace. */
static struct append packed_entry(const struct layer_run *run, const struct append *all, int64_t b)
{
    const struct ints starts = run->attention.q_starts;
    struct append entry = *all;
    const int64_t first = int_at(starts, b);
    entry.batch = 1;
    entry.len = int_at(starts, b + 1) - first;
    entry.src += first * all->src_stride.row;
    entry.dst += first * all->dst_stride.row;
    if (all->positions.data)
        entry.positions.data = (const char *)all->positions.data + b * int_bytes(all->positions);
    return entry;
}

static void append(const struct crew *crew, const struct planned_append *planned,
                   const struct append *all, bool by_entry)
{
    const struct layer_run *const run = crew->run;
    const size_t bytes = planned->scratch_size;
    if (!by_entry) {
        attnkit_append_execute(all, bytes, run->kernels, crew->exec, run->scratch);
        meet(crew);
        return;
    }
    for (int64_t b = 0; b < run->lengths.batch; b++) {
        const struct append entry = packed_entry(run, all, b);
        attnkit_append_execute(&entry, bytes, run->kernels, crew->exec, run->scratch);
        meet(crew);
    }
}

static void project(const struct crew *crew)
{
    const struct layer_run *const run = crew->run;
    const struct layer_plan *const plan = run->plan;
    const struct layer_options *const has = &plan->has;
    map_q(crew);
    if (has->projects_keys) {
        map_keys(crew, K, run->buffers.k_raw);
        map_keys(crew, V, run->buffers.v);
    }
    if (has->rotates)
        append(crew, &plan->append_q, &run->append_q, has->packed_q);
    if (attnkit_appends_keys(has))
        append(crew, &plan->append_k, &run->append_k, has->packed_q);
    if (has->appends)
        append(crew, &plan->append_v, &run->append_v, false);
}

/* --- Attention -------------------------------------------------------------------------------- */

static void attend_to(const struct crew *crew, const struct attention *a)
{
    const struct layer_run *const run = crew->run;
    struct attention_run attention;
    attnkit_set_attention_run(&run->plan->attention, a, run->kernels, crew->exec->threads,
                              run->scratch, &attention);
    attnkit_run_attention(&attention, crew->exec);
}

/* Runs attention with cells. Makes the table of cells again, because other parts of the layer have
 * used its memory since the check. The function is not inlined, so that a layer without cells needs
 * no stack for the copy of run->attention. */
static __attribute__((noinline)) void attend_to_cells(const struct crew *crew)
{
    struct attention a = crew->run->attention;
    (void)attnkit_bind_layer_cells(crew->run, crew->exec, &a, NULL);
    attend_to(crew, &a);
}

static void attend(const struct crew *crew)
{
    const struct attention *const a = &crew->run->attention;
    if (a->batch == 0 || a->q_len == 0)
        return;
    if (has_cells(a))
        attend_to_cells(crew);
    else
        attend_to(crew, a);
    meet(crew);
}

/* Computes a row of mean_weights. Row i belongs to query row i % q_len of batch entry i / q_len.
 * Each element is the sum of the weights of all heads, in the order of the heads, divided by the
 * number of heads. */
static void average_row(const struct layer_run *run, int64_t row)
{
    const struct attention *const a = &run->attention;
    const int64_t entry = row / a->q_len, position = row % a->q_len;
    const struct strides in = a->extras.weights_stride;
    const struct strides out = strides_of(&run->plan->own[OWN_MEAN]);
    const struct rows heads = {
        .first = (const char *)a->extras.weights + entry * in.batch + position * in.row,
        .stride = in.head,
        .dim = a->kv_len,
    };
    char *const mean = (char *)run->memory[OWN_MEAN] + entry * out.batch + position * out.row;
    run->kernels->mean(&heads, run->plan->layer.q_heads, (float *)mean);
}

/* Computes a thread's share of the rows of mean_weights. Running a share again gives the same
 * result. */
static void average(void *arg, int64_t thread)
{
    const struct crew *const crew = arg;
    const int64_t threads = crew->exec->threads, rows = crew->run->lengths.q_rows;
    if (thread < 0 || thread >= threads)
        return;
    const fp_modes callers = fp_modes_begin();
    const int64_t end = first_of_share(rows, threads, thread + 1);
    for (int64_t row = first_of_share(rows, threads, thread); row < end; row++)
        average_row(crew->run, row);
    fp_modes_end(callers);
}

void attnkit_run_layer(const struct layer_run *run, const attnkit_exec *exec)
{
    struct crew crew = {run, exec};
    project(&crew);
    attend(&crew);
    if (run->plan->has.has_mean && run->lengths.room > 0)
        attnkit_run_tasks(exec, exec->threads, average, &crew);
    map_out(&crew);
}
