/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear maps in integers for the units of NEON that multiply bytes. One SDOT adds four products to
 * the sum of each of 4 outputs. Bytes 0 to 7 of a vector of x belong to a row, bytes 8 to 15 to the
 * next row, so that two rows share a load of x.
 */
#ifndef ATTNKIT_NEON_DOT_H
#define ATTNKIT_NEON_DOT_H

enum { ROWS_OF_SUMS = 2 };

#include "kernels/neon/integers/bytes.h"

/* Sums of 4 outputs and two rows. After add_products, part[r] has the sums of row r. */
typedef struct {
    int32x4_t part[ROWS_OF_SUMS];
} sums_v;

static inline sums_v begin_sums(int32_t beginning)
{
    (void)beginning; /* always 0 */
    return (sums_v){{vdupq_n_s32(0), vdupq_n_s32(0)}};
}

static inline words_v load_words(const char *from)
{
    const int8_t *const bytes = (const int8_t *)from;
    return (words_v){{vld1q_s8(bytes), vld1q_s8(bytes + 16)}};
}

static inline __attribute__((always_inline)) sums_v add_products(sums_v sum, words_v w,
                                                                 const int8_t *x)
{
    const int8x16_t n = vld1q_s8(x);
    sum.part[0] = vdotq_laneq_s32(sum.part[0], w.val[0], n, 0);
    sum.part[0] = vdotq_laneq_s32(sum.part[0], w.val[1], n, 1);
    sum.part[1] = vdotq_laneq_s32(sum.part[1], w.val[0], n, 2);
    sum.part[1] = vdotq_laneq_s32(sum.part[1], w.val[1], n, 3);
    return sum;
}

#endif
