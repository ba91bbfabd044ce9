/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a planned linear map. The memory of the map is checked and bound. Then threads share out the
 * parts of the map evenly (attnkit_linear_parts). In a parallel-for, a thread that has finished its
 * own parts takes parts of other threads (work stealing).
 */
#include "dispatch/linear/linear_plan.h"

#include "dispatch/common/exec.h"
#include "dispatch/common/fp_modes.h"
#include "dispatch/common/planned.h"
#include "dispatch/common/queue.h"
#include "dispatch/linear/matrix.h"

attnkit_status attnkit_linear_bind(const struct linear_plan *plan, const attnkit_linear_data *data,
                                   struct linear *l, struct memory memory[LINEAR_TENSORS],
                                   char *message)
{
    const struct tensor *const t = plan->tensors;
    attnkit_status status =
        attnkit_bind_rows(&memory[LINEAR_Y], &t[LINEAR_Y], data->rows, data->y, message);
    if (status == ATTNKIT_OK)
        status = attnkit_bind_rows(&memory[LINEAR_X], &t[LINEAR_X], data->rows, data->x, message);
    if (status == ATTNKIT_OK)
        status = attnkit_bind(&memory[LINEAR_W], &t[LINEAR_W], data->w, message);
    if (status == ATTNKIT_OK && !plan->has_bias)
        status = attnkit_check_absent("bias", data->bias, message);
    if (status == ATTNKIT_OK)
        status = attnkit_bind(&memory[LINEAR_BIAS], &t[LINEAR_BIAS], data->bias, message);
    if (status != ATTNKIT_OK)
        return status;
    *l = plan->l;
    l->rows = data->rows;
    l->x = data->x;
    l->w = data->w;
    l->bias = data->bias;
    l->y = data->y;
    return attnkit_check_overlaps(memory, LINEAR_TENSORS, message);
}

/* -------------------------------------------------------------------------------- the parts */

/* The work that threads share. */
struct linear_work {
    const struct linear *l;
    const struct kernels *kernels;
    int64_t parts, shares;
    struct queue *queues; /* [shares]; NULL: no work stealing */
    char *scratch;        /* scratch_size bytes for each share */
    size_t scratch_size;
};

/* The parts of a thread, without work stealing. */
struct parts {
    int64_t next, end;
};

static int64_t next_part(void *arg)
{
    struct parts *const parts = arg;
    return parts->next < parts->end ? parts->next++ : -1;
}

/* The queues from which a thread of a parallel-for takes parts. The thread begins with its own
 * queue and goes on to the queues after it. Queue 0 follows the last queue. `at` is the queue from
 * which the thread takes now. `tried` is the number of queues on which the thread has given up. */
struct taking {
    struct queue *queues;
    int64_t count, at, tried;
    int64_t least; /* a thread takes a part from queue `at` only if the queue has at least this many
                    * parts */
    int64_t least_of_others; /* `least` before the first part from a queue of another thread */
};

static int64_t take_part(void *arg)
{
    struct taking *const t = arg;
    for (; t->tried < t->count; t->tried++) {
        struct queue *const queue = &t->queues[t->at];
        if (queue->end - atomic_load(&queue->next) >= t->least) {
            const int64_t part = atomic_fetch_add(&queue->next, 1);
            t->least = 1;
            if (part < queue->end)
                return part;
        }
        t->at = (t->at + 1) % t->count;
        t->least = t->least_of_others;
    }
    return -1;
}

static struct parts parts_of(const struct linear_work *work, int64_t share)
{
    return (struct parts){first_of_share(work->parts, work->shares, share),
                          first_of_share(work->parts, work->shares, share + 1)};
}

static void begin_queues(const struct linear_work *work)
{
    for (int64_t i = 0; i < work->shares; i++) {
        const struct parts parts = parts_of(work, i);
        atomic_init(&work->queues[i].next, parts.next);
        work->queues[i].end = parts.end;
    }
}

static void run_share(void *arg, int64_t share)
{
    const struct linear_work *work = arg;
    if (share < 0 || share >= work->shares)
        return;
    char *const scratch = work->scratch + (size_t)share * work->scratch_size;
    const fp_modes callers = fp_modes_begin();
    if (work->queues) {
        struct taking taking = {
            .queues = work->queues,
            .count = work->shares,
            .at = share,
            .least = 1,
            .least_of_others = 1 + attnkit_linear_parts_of_change(work->l, work->kernels),
        };
        attnkit_linear_run_parts(work->l, work->kernels, take_part, &taking, scratch);
    } else {
        struct parts parts = parts_of(work, share);
        attnkit_linear_run_parts(work->l, work->kernels, next_part, &parts, scratch);
    }
    fp_modes_end(callers);
}

void attnkit_linear_execute(const struct linear *l, size_t scratch_size,
                            const struct kernels *kernels, const attnkit_exec *exec, char *scratch)
{
    const int64_t parts = attnkit_linear_parts(l, kernels);
    struct linear_work work = {
        .l = l,
        .kernels = kernels,
        .parts = parts,
        .shares = exec->threads < parts ? exec->threads : parts,
        .scratch = scratch + (size_t)exec->threads * sizeof(struct queue),
        .scratch_size = scratch_size,
    };
    if (exec->parallel_for && work.shares > 1) {
        work.queues = (struct queue *)(void *)scratch;
        begin_queues(&work);
    }
    attnkit_run_tasks(exec, work.shares, run_share, &work);
}
