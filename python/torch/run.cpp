// SPDX-License-Identifier: Apache-2.0
//
// Describes the tensors of a call, and runs the call by a plan that this thread keeps, on the
// threads that torch has for its own ops.
#include "python/torch/run.h"

#include <atomic>
#include <algorithm>

namespace attnkit_torch
{

using attnkit_python::description;

namespace
{

// Calls with at most this many multiply-adds are faster on a single thread. They take at most some
// tens of microseconds.
constexpr double few_products = 1 << 20;

std::atomic<int64_t> count;

struct job {
    void (*task)(void *arg, int64_t i);
    void *arg;
};

void run_tasks(int64_t begin, int64_t end, void *arg)
{
    const job &work = *(const job *)arg;
    for (int64_t i = begin; i < end; i++)
        work.task(work.arg, i);
}

// The status of torch's parallel_for in this thread's call. If the status is not 0, some tasks may
// not have run.
thread_local int32_t tasks_status;

// Is the parallel_for of attnkit_exec.
void parallel_for(void *, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    job work{task, arg};
    const int32_t status = torch.parallel_for(0, n, 1, run_tasks, &work);
    if (status != 0)
        tasks_status = status;
}

int64_t threads_for(const attnkit_attention_args &args)
{
    const double products = (double)args.batch * (double)args.q_heads * (double)args.q_len *
                            (double)args.kv_len * (double)(args.head_dim + args.value_dim);
    uint32_t threads = 1;
    if (products > few_products)
        expect(torch.get_num_threads(&threads));
    return std::max<int64_t>(threads, 1);
}

void expect_shapes(const view &q, const view &k, const view &v)
{
    for (const view *one : {&q, &k, &v})
        if (one->ndim != 4)
            refuse("q, k and v must be [batch, heads, rows, elements]");
    expect_float(q, "q");
    expect_float(k, "k");
    expect_float(v, "v");
    if (k.shape[0] != q.shape[0] || k.shape[3] != q.shape[3])
        refuse("k has the shape " + shape_text(k) +
               ": must have the batch and the elements of q, " + shape_text(q));
    for (int d = 0; d < 3; d++)
        if (v.shape[d] != k.shape[d])
            refuse("v has the shape " + shape_text(v) +
                   ": must have the batch, heads and rows of k, " + shape_text(k));
    if (v.shape[3] == 0)
        refuse("v has rows of no element");
}

tensor empty_dense(int ndim, const int64_t *shape, int32_t dtype)
{
    int64_t strides[most_dims];
    int64_t next = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        strides[d] = next;
        next *= std::max<int64_t>(shape[d], 1);
    }
    return empty(ndim, shape, strides, dtype);
}

// Returns a tensor of this shape that lies in memory as [shape[0]][shape[2]][shape[1]][shape[3]].
tensor empty_rows_first(const int64_t *shape, int32_t dtype)
{
    const int64_t head = std::max<int64_t>(shape[3], 1),
                  row = head * std::max<int64_t>(shape[1], 1);
    const int64_t strides[4] = {row * std::max<int64_t>(shape[2], 1), head, row, 1};
    return empty(4, shape, strides, dtype);
}

void allocate_out(description &d, tensors &t, const view &q)
{
    int32_t dtype;
    expect(torch.get_dtype(t.q.get(), &dtype));
    const int64_t shape[4] = {q.shape[0], q.shape[1], q.shape[2], d.args.value_dim};
    if (t.has_rows_first)
        t.out = empty_rows_first(shape, dtype);
    else if (d.args.value_dim == q.shape[3])
        t.out = empty_like(t.q.get(), q);
    else
        t.out = empty_dense(4, shape, dtype);
    view out = read(t.out.get(), "out");
    if (!has_rows(out)) {
        t.given = std::move(t.out);
        t.out = empty_dense(4, shape, dtype);
        out = read(t.out.get(), "out");
    }
    d.args.out = describe(out);
}

void allocate_lse(description &d, tensors &t, const int64_t *shape, lse_layout layout)
{
    if (layout == HEADS_FIRST) {
        t.lse = empty_dense(3, shape, torch.dtype_float32());
    } else {
        const int64_t strides[3] = {std::max<int64_t>(shape[1] * shape[2], 1), 1,
                                    std::max<int64_t>(shape[1], 1)};
        t.lse = empty(3, shape, strides, torch.dtype_float32());
    }
    d.args.lse = describe(read(t.lse.get(), "lse"));
}

} // namespace

void describe_tensors(description &d, tensors &t, lse_layout layout)
{
    const view q = read(t.q.get(), "q");
    const view k = read_rows(t.k, "k");
    const view v = read_rows(t.v, "v");
    expect_shapes(q, k, v);
    attnkit_attention_args_init(&d.args);
    d.args.batch = q.shape[0];
    d.args.q_heads = q.shape[1];
    d.args.q_len = q.shape[2];
    d.args.head_dim = q.shape[3];
    d.args.kv_heads = k.shape[1];
    d.args.kv_len = k.shape[2];
    d.args.value_dim = v.shape[3];
    allocate_out(d, t, q);
    allocate_lse(d, t, q.shape, layout);
    d.args.q = describe(read_rows(t.q, "q"));
    d.args.k = describe(k);
    d.args.v = describe(v);
}

void run(description &d)
{
    d.threads = threads_for(d.args);
    tasks_status = 0;
    try {
        attnkit_python::run_without_lock(d, d.threads > 1 ? parallel_for : nullptr);
    } catch (const attnkit_python::refused &error) {
        refuse(error.text);
    }
    expect(tasks_status);
    count++;
}

tensor result(tensors &t)
{
    if (!t.given)
        return std::move(t.out);
    word stack[3] = {word_of(std::move(t.given)), word_of(std::move(t.out)), 0};
    call("aten::copy_", stack);
    return take_tensor(stack[0]);
}

int64_t runs()
{
    return count;
}

} // namespace attnkit_torch
