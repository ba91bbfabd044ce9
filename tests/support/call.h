/* SPDX-License-Identifier: Apache-2.0
 *
 * A small call on dense f32 tensors of random numbers. A test itself can compute the result of such
 * a call. The strides are explicit, so that a test can change a single stride. promises_main is a
 * main function that runs each test on each instruction set.
 */
#ifndef ATTNKIT_TEST_CALL_H
#define ATTNKIT_TEST_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/support/groups.h"

/* The dims of a call. A dim of 0 stands for 1. */
struct shape {
    int64_t batch, kv_heads, group, q_len, kv_len, head_dim, value_dim;
};

/* The indices of a row, or of a score. */
struct at {
    int64_t b, h, i, j; /* batch entry, query head, row, key */
};

/* A call. `q`, `k` and `v` are the tensors that call_new makes. call_like, call_rows and call_store
 * do not change these three addresses. `out`, `lse` and `weights` are the call's own outputs.
 * `weights` is NULL if the call has no weights. */
struct call {
    attnkit_attention_args args;
    struct groups groups;                   /* all groups of args */
    float *q, *k, *v, *out, *lse, *weights; /* writable */
    int threads;                            /* 1 by default */
    void *owned[32];
    int owned_count;
};

struct call *call_new(struct shape shape);

/* Makes a copy of the call c. The copy has its own outputs and the inputs of c, so c must outlive
 * the copy. */
struct call *call_like(const struct call *c);

/* Makes a call of rows first .. first + count - 1 of batch entry b of c. The new call has its own
 * outputs and the inputs of c, so c must outlive the new call. If c has q_offsets, the rows keep
 * their positions. Without q_offsets, the positions may change. */
struct call *call_rows(const struct call *c, int64_t b, int64_t first, int64_t count);

void call_free(struct call *c);

/* Allocates zeroed memory, aligned for any type. call_free frees it. */
void *call_memory(struct call *c, size_t bytes);

/* Gives each batch entry a q_offset of its own, so that the last rows of a causal call see nearly
 * all keys. Changes nothing if the call has q_offsets already. */
void call_set_positions(struct call *c);

/* Asks for weights of a kind. Returns the memory that call_run fills with the weights. */
float *call_set_weights(struct call *c, attnkit_weights_kind kind);

/* Stores K and V of the call anew, in pages of page_size keys, or without pages if page_size is 0.
 * If `tiled`, K is stored in tiles. */
void call_store(struct call *c, bool tiled, int64_t page_size);

/* Runs the call on an instruction set. Fails the test on any status but ATTNKIT_OK. */
void call_run(struct call *c, const char *isa);

float *call_q(const struct call *c, struct at at);

/* Return the row of key at.j of the KV head of at.h, in K or in V. After call_store, the call no
 * longer reads these rows. */
float *call_k(const struct call *c, struct at at);
float *call_v(const struct call *c, struct at at);

float *call_out(const struct call *c, struct at at);
float *call_lse(const struct call *c, struct at at);

/* Returns whether a row of c and a row of d have the same bits of out and lse. */
bool call_same_row(const struct call *c, struct at at, const struct call *d, struct at there);
bool call_same(const struct call *c, const struct call *d);

/* Iterate over the rows of a call: `for (struct at at = {0}; call_has(c, at); at = call_next(c,
 * at))`. */
bool call_has(const struct call *c, struct at at);
struct at call_next(const struct call *c, struct at at);

float float_of_bits(uint32_t bits);

struct CMUnitTest;

/* Runs every test once for each instruction set that can run here, or only for the instruction set
 * that the first argument names. If the library also has other kernels than the scalar kernels, a
 * sampled run (sample.h) leaves out the scalar kernels. A test gets the name of the instruction set
 * as its state. Returns the exit status of the program. */
int promises_main(const char *program, const struct CMUnitTest *promises, int count, int argc,
                  char **argv);

#endif
