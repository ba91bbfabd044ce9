/* SPDX-License-Identifier: Apache-2.0
 *
 * Some rows of the benches measure whole public calls. All these rows share the functions of this
 * file: for threads, for operands in memory, and for the choice of a roof.
 */
#ifndef ATTNKIT_CALLS_H
#define ATTNKIT_CALLS_H

#include "bench/measure/pool.h"
#include "bench/rows/rows.h"

/* Each type is a bit, so that a set of types is a sum. */
enum { F32 = 1 << ATTNKIT_F32, F16 = 1 << ATTNKIT_F16, BF16 = 1 << ATTNKIT_BF16 };
enum {
    BF16_BF16 = 1 << 30 /* attention: q, K and V are bf16; linear map: x and matrix are bf16 */
};
enum { I8 = 1 << ATTNKIT_I8, Q8_0 = 1 << ATTNKIT_Q8_0 };

/* Starts the row's threads, calls measure_it, and stops the threads. pool is NULL for one thread.
 * If the machine has too few processors, or if the threads cannot be started, only sets
 * result->problem. */
void on_threads(const struct row *row, struct patience patience, struct result *result,
                void (*measure_it)(const struct row *row, struct pool *pool,
                                   struct patience patience, struct result *result));

/* Returns the attnkit_exec of a row's calls, without a workspace. */
attnkit_exec exec_of(const struct row *row, struct pool *pool);

size_t whole_lines(size_t bytes); /* rounded up to cache lines */

/* Returns `count` random floats in [-1, 1), aligned to a cache line. The caller frees them. Returns
 * NULL if there is no memory. */
float *draw(size_t count, uint64_t seed);

/* Like draw, but returns elements of `type`, which is f32 or bf16. */
void *draw_input(attnkit_type type, size_t count, uint64_t seed);

/* Copies of some memory, one after the other, each aligned to a cache line. If calls must not find
 * their copies in a cache, there are so many copies that each copy has left the caches before its
 * next use. */
struct copies {
    char *memory;        /* all copies; the user fills the first copy */
    size_t bytes;        /* bytes of a copy, a multiple of a cache line */
    int64_t count, next; /* number of copies; index of the copy for the next call */
};

/* Returns copies that have no memory yet. `cold` means that calls must not find their copies in a
 * cache. There is a single copy if `cold` is false, or if the row is warm. */
struct copies copies_plan(const struct row *row, size_t bytes, bool cold);

/* Allocates the memory, which the caller frees. Returns false if there is no memory. */
bool copies_take(struct copies *copies);

/* Copies the first copy to all other copies. */
void copies_repeat(const struct copies *copies);

/* Returns the copy for the next call. The copies take turns. */
char *copies_next(struct copies *copies);

double copies_memory_bytes(const struct copies *copies);

/* Returns whether `bytes` bytes are less than three quarters of this machine's memory. The check is
 * needed because Linux lets a program allocate more memory than the machine has, and kills the
 * program when it uses this memory. */
bool memory_has(double bytes);

/* The call of a row, and its result. */
struct row_call {
    void (*make)(void *arg);
    void *arg;
    void *out;
    size_t out_bytes;
};

/* A row calls measure_calls when its call is set up. measure_calls has three definitions. In
 * attnkit-bench (measure_calls.c), measure_calls makes the call again and again, and compares the
 * speed of the call with the roof. The row must have set result->work. The roof is the
 * multiply-adds of the instruction set or, if result->work.flops is 0, the reads of memory. In a
 * worker (worker.c), measure_calls hands the call to attnkit-compare, which compares two builds. In
 * attnkit-counts (counts.c), measure_calls makes the call twice, and callgrind counts the second
 * call. */
void measure_calls(const struct row *row, struct pool *pool, struct patience patience,
                   const struct row_call *call, struct result *result);

/* Returns the work of a call that computes `flops` FLOPs and reads `bytes` bytes from memory. Below
 * 8 FLOPs per byte, reading bounds the call, and only work.bytes is set. Else only work.flops is
 * set. The two roofs of a core meet at 5 to 10 FLOPs per byte. */
struct work work_of(double flops, double bytes);

/* A workload has a row for each of its types on each instruction set that can run. scalar has only
 * the small workloads. */
struct workload {
    const char *shape;
    unsigned types;
    int threads;
    enum quick quick;
    bool small;
};

void add_workloads(struct row_list *rows, const struct workload *workloads, size_t count);

/* Functions that measure a row, in bench_*.c. */
void run_attention(const struct row *row, struct patience patience, struct result *result);
void run_linear(const struct row *row, struct patience patience, struct result *result);
void run_layer(const struct row *row, struct patience patience, struct result *result);
void run_append(const struct row *row, struct patience patience, struct result *result);

/* Returns "prefill", "few" or "decode". */
const char *attention_family(const struct shape *shape);

#endif
