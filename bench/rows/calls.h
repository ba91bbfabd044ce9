/* SPDX-License-Identifier: Apache-2.0
 *
 * What the rows of whole public calls have in common: the threads that a call runs on, the roof it
 * is held against, and the memory that has to be there.
 */
#ifndef ATTNKIT_CALLS_H
#define ATTNKIT_CALLS_H

#include "bench/measure/pool.h"
#include "bench/rows/rows.h"

/* Sets of types. */
enum { F32 = 1 << ATTNKIT_F32, F16 = 1 << ATTNKIT_F16, BF16 = 1 << ATTNKIT_BF16 };
enum { I8 = 1 << ATTNKIT_I8, Q8_0 = 1 << ATTNKIT_Q8_0 };

/* Starts the row's threads, measures on them, and stops them; pool is NULL for one thread. */
void on_threads(const struct row *row, struct patience patience, struct result *result,
                void (*measure_it)(const struct row *row, struct pool *pool,
                                   struct patience patience, struct result *result));

/* How a row's calls are run; without the workspace. */
attnkit_exec exec_of(const struct row *row, struct pool *pool);

size_t whole_lines(size_t bytes); /* rounded up to cache lines */

/* `count` floats from a cache line on, in [-1, 1), to be freed; NULL: no memory. */
float *draw(size_t count, uint64_t seed);

/* Equal blocks one after the other, each from a cache line on; where they are to be cold so many
 * that no call finds in a cache what the one before has read. */
struct copies {
    char *memory; /* of all; whoever has them fills the first one */
    size_t bytes; /* of one */
    int64_t count, next;
};

/* Everything but the memory; of a row that may be warm there is one. */
struct copies copies_plan(const struct row *row, size_t bytes, bool cold);

/* Takes the memory, to be freed. False: there is none. */
bool copies_take(struct copies *copies);

/* Makes all others what the first one is. */
void copies_repeat(const struct copies *copies);

/* The one that the next call takes: another one each time. */
char *copies_next(struct copies *copies);

double copies_memory_bytes(const struct copies *copies);

/* Whether this machine has so many bytes. Linux promises more than it has, and kills who takes it
 * at its word. */
bool memory_has(double bytes);

/* How the call of a row is made, and where its result then is. */
struct row_call {
    void (*make)(void *arg);
    void *arg;
    void *out;
    size_t out_bytes;
};

/* Calls again and again; result->work says how much a call does. In attnkit-bench it is held
 * against the multiply-adds of its instruction set, or where it has no FLOPs against reading memory
 * (bench/measure); in a worker of attnkit-compare two builds are held against each other
 * (bench/worker). */
void measure_calls(const struct row *row, struct pool *pool, struct patience patience,
                   const struct row_call *call, struct result *result);

/* The work of a call that reads so many bytes which are in no cache: what bounds it, FLOPs or
 * bytes, the other one 0. The two roofs of a core meet at 5 to 10 FLOPs for a byte. */
struct work work_of(double flops, double bytes);

/* A row for each of the types, on each instruction set; plain C has only the small ones. */
struct workload {
    const char *shape;
    unsigned types;
    int threads;
    enum quick quick;
    bool small;
};

void add_workloads(struct row_list *rows, const struct workload *workloads, size_t count);

/* What measures a row, in the bench_*.c of its kind. */
void run_attention(const struct row *row, struct patience patience, struct result *result);
void run_linear(const struct row *row, struct patience patience, struct result *result);
void run_layer(const struct row *row, struct patience patience, struct result *result);
void run_append(const struct row *row, struct patience patience, struct result *result);

/* "prefill", "few" or "decode". */
const char *attention_family(const struct shape *shape);

#endif
