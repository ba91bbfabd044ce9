/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of the benches: each has a name and a function that measures it. bench_*.c make them,
 * bench/measure/main.c runs those that were asked for.
 */
#ifndef ATTNKIT_ROWS_H
#define ATTNKIT_ROWS_H

#include "dispatch/cpu/isa.h"
#include "bench/measure/measure.h"
#include "bench/rows/shape.h"

enum { ROW_NAME = 192, ROW_PROBLEM = 320 };

/* What a call does; 0 where that says nothing of it. */
struct work {
    double flops;
    double bytes;     /* it reads */
    double elements;  /* it makes */
    double intensity; /* FLOPs for each byte of inputs and outputs, each moved once */
};

struct result {
    struct figures figures;
    struct work work;
    char problem[ROW_PROBLEM]; /* why there are no figures; else "" */
};

/* Which rows --quick has: none, those of the best instruction set, or also those of AVX2 and plain
 * C, which can be compared with most machines'. */
enum quick { NEVER_QUICK, BEST_IS_QUICK, QUICK };

struct row {
    char name[ROW_NAME];
    enum quick quick;
    const struct isa *isa; /* whose kernels or loops it runs */
    int threads;
    bool planned; /* of attention: a run of a plan */
    bool warm;    /* what it reads may be in a cache, where it fits */
    /* Measures, or writes result->problem. */
    void (*run)(const struct row *row, struct patience patience, struct result *result);
    struct shape shape;         /* of attention, of a layer */
    struct linear_shape linear; /* of a linear map */
    attnkit_type type;          /* of K and V, of matrices */
    int64_t number;             /* of a tile: the head dim; of a roof: the cache level, or 0 */
    const void *detail;         /* for run alone */
};

struct row_list {
    struct row *list;
    int count;
    bool out_of_memory;
};

/* The new row, zero but for its name; until the next call. */
__attribute__((format(printf, 2, 3))) struct row *rows_add(struct row_list *rows,
                                                           const char *format, ...);

/* Keeps the rows whose names the extended regular expression matches, all of them if it is NULL.
 * False: complained, it is none, or no row is left. */
bool rows_filter(struct row_list *rows, const char *expression);

void add_roof_rows(struct row_list *rows);
void add_attention_rows(struct row_list *rows);
void add_linear_rows(struct row_list *rows);
void add_layer_rows(struct row_list *rows);
void add_tile_rows(struct row_list *rows);

/* One of a public call with this shape, like another one in type, instruction set, threads and
 * quick. Behind the shape may be /planned, where it is one of attention, and /warm. False: that is
 * no shape. */
bool add_call_row(struct row_list *rows, const char *shape, const struct row *like);

/* Writes result->problem. */
__attribute__((format(printf, 2, 3))) void row_fails(struct result *result, const char *format,
                                                     ...);

#endif
