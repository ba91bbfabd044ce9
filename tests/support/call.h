/* SPDX-License-Identifier: Apache-2.0
 *
 * A call small enough to work out its result by hand: dense f32 tensors of random numbers. Its
 * strides are explicit, so that a test can change a single stride. The file also has the main
 * function of these tests, which runs each promise on each instruction set.
 */
#ifndef ATTNKIT_TEST_CALL_H
#define ATTNKIT_TEST_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/support/groups.h"

/* A size of 0 stands for 1. */
struct shape {
    int64_t batch, kv_heads, group, q_len, kv_len, head_dim, value_dim;
};

/* The place of a row or of a score. */
struct at {
    int64_t b, h, i, j; /* batch entry, query head, row, key */
};

struct call {
    attnkit_attention_args args;
    struct groups groups;                   /* all groups of args */
    float *q, *k, *v, *out, *lse, *weights; /* the tensors of args, writable */
    int threads;                            /* 1 by default */
    void *owned[32];
    int owned_count;
};

struct call *call_new(struct shape shape);

/* Makes the same call with outputs of its own and the tensors of c, which must outlive the new
 * call. */
struct call *call_like(const struct call *c);

/* Makes a call of `count` rows of an entry from row `first` on, with the tensors of c, which must
 * outlive the new call. */
struct call *call_rows(const struct call *c, int64_t b, int64_t first, int64_t count);

void call_free(struct call *c);

/* Allocates zeros, aligned for any type, that are freed with the call. */
void *call_memory(struct call *c, size_t bytes);

/* Gives each batch entry a different offset, with which the last rows of a causal call see about
 * all keys. A second call changes nothing. */
void call_set_positions(struct call *c);

/* Asks for weights of a kind, and returns the memory that will hold them. */
float *call_set_weights(struct call *c, attnkit_weights_kind kind);

/* Stores K in tiles if `tiled`, and K and V in pages of page_size keys, or without pages if
 * page_size is 0. */
void call_store(struct call *c, bool tiled, int64_t page_size);

/* Runs on an instruction set; fails the test on any status but ATTNKIT_OK. */
void call_run(struct call *c, const char *isa);

float *call_q(const struct call *c, struct at at);
float *call_k(const struct call *c,
              struct at at); /* a row of K, of the KV head of at.h; not after call_store */
float *call_v(const struct call *c, struct at at);
float *call_out(const struct call *c, struct at at);
float *call_lse(const struct call *c, struct at at);

/* Returns whether a row of c and a row of d have the same bits of out and lse. */
bool call_same_row(const struct call *c, struct at at, const struct call *d, struct at there);
bool call_same(const struct call *c, const struct call *d);

/* Walks over the rows of a call: `for (struct at at = {0}; call_has(c, at); at = call_next(c,
 * at))`. */
bool call_has(const struct call *c, struct at at);
struct at call_next(const struct call *c, struct at at);

float float_of_bits(uint32_t bits);

struct CMUnitTest;

/* Runs every test once for each instruction set that can run here, or only for the instruction set
 * that the first argument names. The test's state is the name of the instruction set. */
int promises_main(const char *program, const struct CMUnitTest *promises, int count, int argc,
                  char **argv);

#endif
