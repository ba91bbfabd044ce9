/* SPDX-License-Identifier: Apache-2.0
 *
 * An attention call drawn from a number: shapes, types, tiles, pages, packed sequences; a choice of
 * all options and their values; threads. Keys that no row of a KV head sees are NaN in K and V, or
 * in unmapped memory. A number has the same bits on every machine.
 */
#ifndef ATTNKIT_TEST_DRAWN_H
#define ATTNKIT_TEST_DRAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/support/groups.h"
#include "tests/support/memory.h"

enum {
    DRAWN_BATCH = 3,  /* batch entries, at most */
    DRAWN_HEADS = 24, /* query heads, at most */
    DRAWN_PIECES = 20,
};

/* A call and its memory. */
struct drawn {
    attnkit_attention_args args;
    struct groups groups;
    char *out; /* the outputs of args */
    float *lse, *weights;
    size_t out_bytes, lse_bytes, weights_bytes; /* weights_bytes is 0 without weights */
    int threads;

    uint64_t random;
    int64_t kv_lens[DRAWN_BATCH], q_offsets[DRAWN_BATCH];
    int64_t cu_seqlens_q[DRAWN_BATCH + 1], cu_seqlens_kv[DRAWN_BATCH + 1];
    uint64_t seeds[DRAWN_BATCH];
    float slopes[DRAWN_HEADS], sinks[DRAWN_HEADS], bias_scales[DRAWN_HEADS];
    bool slots;  /* each row of K and V is a page of its own */
    bool tokens; /* K and V are [batch][key][head] */
    int pieces;
    struct guarded piece[DRAWN_PIECES];
};

/* Draws a call whose tensors each end at an unmapped page. */
struct drawn *drawn_new(int number);
void drawn_free(struct drawn *c);

/* Draws the same call with its keys in cells of any order, some of them empty. Returns NULL if the
 * call has tiles, pages or packed keys, which cannot be combined with cells. */
struct drawn *drawn_in_cells(int number);

/* Gives the call integers of 32 bits in place of 64. Returns false if the call has no integers, or
 * if they do not fit. */
bool drawn_narrow(struct drawn *c);

/* Fills the outputs with a pattern. */
void drawn_clear(const struct drawn *c);

/* Prints the call in a line, as a comment of TAP. */
void drawn_print(int number);
void drawn_print_call(const struct drawn *c);

#endif
