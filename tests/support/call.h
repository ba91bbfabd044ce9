/* SPDX-License-Identifier: Apache-2.0
 *
 * A call small enough to say by hand what it gives: dense f32 tensors of random numbers, with
 * strides that are said, so that a test can change whatever it is about. And the programs that run
 * such tests, each promise on each instruction set.
 */
#ifndef ATTNKIT_TEST_CALL_H
#define ATTNKIT_TEST_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/support/groups.h"

/* What is 0 is 1. */
struct shape {
    int64_t batch, kv_heads, group, q_len, kv_len, head_dim, value_dim;
};

/* Of a row, or of a score. */
struct at {
    int64_t b, h, i, j; /* batch entry, query head, row, key */
};

struct call {
    attnkit_attention_args args;
    struct groups groups;                   /* of args, all of them */
    float *q, *k, *v, *out, *lse, *weights; /* as args has them, to be written to */
    int threads;                            /* 1 until it is changed */
    void *owned[32];
    int owned_count;
};

struct call *call_new(struct shape shape);

/* The same call with its own outputs, and the tensors of the other one, which must outlive it. */
struct call *call_like(const struct call *c);

/* `count` rows of an entry from row `first` on as a call of their own, with the tensors of the
 * other one, which must outlive it. */
struct call *call_rows(const struct call *c, int64_t b, int64_t first, int64_t count);

void call_free(struct call *c);

/* Zeros, aligned for anything, that are freed with the call. */
void *call_memory(struct call *c, size_t bytes);

/* Says positions: a different offset for each batch entry, such that the last rows see about all
 * keys of a causal call. Again, it changes nothing. */
void call_set_positions(struct call *c);

/* Asks for weights of a kind; returns where they will be. */
float *call_set_weights(struct call *c, attnkit_weights_kind kind);

/* K in tiles, and K and V in pages of so many keys, or in rows where that is 0. */
void call_store(struct call *c, bool tiled, int64_t page_size);

/* Runs on an instruction set; fails the test on any status but ATTNKIT_OK. */
void call_run(struct call *c, const char *isa);

float *call_q(const struct call *c, struct at at);
float *call_k(const struct call *c, struct at at); /* of the KV head of at.h; before call_store */
float *call_v(const struct call *c, struct at at);
float *call_out(const struct call *c, struct at at);
float *call_lse(const struct call *c, struct at at);

/* out and lse of a row of one call and of another, wherever it is there: the same bits. */
bool call_same_row(const struct call *c, struct at at, const struct call *d, struct at there);
bool call_same(const struct call *c, const struct call *d);

/* For each row of a call, in a loop: `for (struct at at = {0}; call_has(c, at); at = call_next(c,
 * at))`. */
bool call_has(const struct call *c, struct at at);
struct at call_next(const struct call *c, struct at at);

float float_of_bits(uint32_t bits);

struct CMUnitTest;

/* Runs every test with the name of each instruction set that can run as its state, or of the one
 * that is the first argument. */
int promises_main(const char *program, const struct CMUnitTest *promises, int count, int argc,
                  char **argv);

#endif
