/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of the benches. A row has a name and a function that measures it. The functions add_*
 * add rows to a list, and bench/measure/main.c runs the chosen rows.
 */
#ifndef ATTNKIT_ROWS_H
#define ATTNKIT_ROWS_H

#include "dispatch/cpu/isa.h"
#include "bench/measure/measure.h"
#include "bench/rows/shape.h"

enum { ROW_NAME = 192, ROW_PROBLEM = 320 };

/* The work of a call. A field that does not characterise the call is 0. */
struct work {
    double flops;
    double bytes;     /* bytes read */
    double elements;  /* elements of the result */
    double intensity; /* FLOPs per byte of inputs and outputs, each moved once */
};

struct result {
    struct figures figures;
    struct work work;
    char problem[ROW_PROBLEM]; /* the reason why there are no figures, or "" */
};

/* The instruction sets for which --quick has a row: none, only the best instruction set, or also
 * AVX2 and scalar, which most machines have. */
enum quick { NEVER_QUICK, BEST_IS_QUICK, QUICK };

struct row {
    char name[ROW_NAME];
    enum quick quick;
    const struct isa *isa; /* instruction set of its kernels or loops */
    int threads;
    bool planned; /* attention: a run of a plan */
    bool warm;    /* the data that the call reads may be in a cache */
    /* Measures the row, or sets result->problem. */
    void (*run)(const struct row *row, struct patience patience, struct result *result);
    struct shape shape;         /* attention, layer */
    struct linear_shape linear; /* linear map */
    attnkit_type type;          /* type of K and V, or of matrices */
    attnkit_type input;         /* type of q, or of x: f32 or bf16 */
    int64_t number;             /* tile: head dim or inputs; roof: cache level, 0 for memory */
    const void *detail;         /* only for `run` */
};

struct row_list {
    struct row *list;
    int count;
    bool out_of_memory;
};

/* Adds a row with this name and one thread. The row's other fields are 0. The returned pointer is
 * valid until the next call. If there is no memory, sets rows->out_of_memory and returns a row that
 * is not in the list. */
__attribute__((format(printf, 2, 3))) struct row *rows_add(struct row_list *rows,
                                                           const char *format, ...);

/* Keeps the rows whose names match the extended regular expression, or all rows if `expression` is
 * NULL. Prints an error and returns false if the expression is invalid or no row is left. */
bool rows_filter(struct row_list *rows, const char *expression);

void add_roof_rows(struct row_list *rows);
void add_attention_rows(struct row_list *rows);
void add_linear_rows(struct row_list *rows);
void add_layer_rows(struct row_list *rows);
void add_tile_rows(struct row_list *rows);

/* Adds a row for a public call with this shape. The row takes its type, input, instruction set,
 * threads and quick from `like`. `shape` is the text of a shape (bench/rows/shape.h). After the
 * shape, the text may have /planned (attention only), and then /warm. Returns false for any other
 * text. */
bool add_call_row(struct row_list *rows, const char *shape, const struct row *like);

/* Sets result->problem. */
__attribute__((format(printf, 2, 3))) void row_fails(struct result *result, const char *format,
                                                     ...);

#endif
