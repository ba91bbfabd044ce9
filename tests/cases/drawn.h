/* SPDX-License-Identifier: Apache-2.0
 *
 * An attention call drawn from a number. The number decides shapes, types, tiles, pages, packed
 * sequences, options and their values, and threads. V of a key that no row of the KV head sees is
 * NaN or lies in unmapped memory. K of such a key is NaN or unmapped, too, unless the call returns
 * scores of all keys (ATTNKIT_WEIGHTS_CAPPED or ATTNKIT_WEIGHTS_SCALED). A number gives the same
 * call, bit for bit, on every machine.
 */
#ifndef ATTNKIT_TEST_DRAWN_H
#define ATTNKIT_TEST_DRAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/support/groups.h"
#include "tests/support/memory.h"

enum {
    DRAWN_BATCH = 3,   /* batch entries, at most */
    DRAWN_HEADS = 24,  /* query heads, at most */
    DRAWN_PIECES = 20, /* pieces of memory, at most */
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
    bool slots;  /* each row of K and V ends at an unmapped page of its own */
    bool tokens; /* K and V are [batch][key][head] */
    bool huge;   /* numbers of V have magnitudes up to 3e38, so that sums may overflow */
    int pieces;
    struct guarded piece[DRAWN_PIECES];
};

/* Draws a call whose tensors each end at an unmapped page. */
struct drawn *drawn_new(int number);
void drawn_free(struct drawn *c);

/* Draws the call of drawn_new(number), but with its keys in cells. The cells hold the keys in any
 * order, and some cells may be empty. Returns NULL if the call has tiles, pages or packed keys,
 * which cannot be combined with cells. */
struct drawn *drawn_in_cells(int number);

/* Draws a call with ATTNKIT_INTEGERS. Some of these calls have cells. */
struct drawn *drawn_with_integers(int number);

/* Draws a call with ATTNKIT_BF16_PRODUCTS, for odd numbers also with ATTNKIT_SHORT_WEIGHTS. Some of
 * these calls have cells. */
struct drawn *drawn_with_bf16_products(int number);

/* Replaces the lengths, offsets, running sums and key indices of the call by arrays of 32-bit
 * integers. An array stays as it is if one of its numbers does not fit 32 bits. Returns false if no
 * array was replaced. */
bool drawn_narrow(struct drawn *c);

/* Fills the outputs with a pattern. */
void drawn_clear(const struct drawn *c);

/* drawn_print prints the call of drawn_new(number), and drawn_print_call prints the call c. Both
 * functions print one line, a TAP comment. */
void drawn_print(int number);
void drawn_print_call(const struct drawn *c);

#endif
