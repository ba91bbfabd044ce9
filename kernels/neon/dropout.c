/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout: the factors of weights, from the random words of Philox. In calls with dropout, mask.c
 * of kernels/attention calls keep_line for a query row and a block of keys. The pipes that execute
 * products and shuffles limit the speed: a round of 4 counters takes 8 of these instructions.
 */
#include "kernels/neon/neon.h"
#include "kernels/philox.h"

enum {
    COUNTERS = VECTOR, /* counters in a vector */
    TOGETHER = 4,      /* vectors that are computed together, to hide the latency of products */
};

/* The products of the elements of a vector and a factor: the low and the high 32 bits of each
 * product. */
struct product_halves {
    uint32x4_t low, high;
};

static inline struct product_halves products(uint32x4_t x, uint32_t factor)
{
    const uint32x4_t first = vreinterpretq_u32_u64(vmull_n_u32(vget_low_u32(x), factor));
    const uint32x4_t second = vreinterpretq_u32_u64(vmull_high_n_u32(x, factor));
    return (struct product_halves){vuzp1q_u32(first, second), vuzp2q_u32(first, second)};
}

/* Words 0 to 3 of some counters. */
struct words {
    uint32x4_t c[PHILOX_WORDS];
};

static inline struct words begin(const struct philox_start *start, uint32x4_t c0)
{
    const struct product_halves product_0 = products(c0, PHILOX_0);
    const struct product_halves product_1 =
        products(veorq_u32(product_0.high, vdupq_n_u32(start->first_2)), PHILOX_1);
    return (struct words){{veorq_u32(product_1.high, vdupq_n_u32(start->second_0)), product_1.low,
                           veorq_u32(product_0.low, vdupq_n_u32(start->second_2)),
                           vdupq_n_u32(start->second_3)}};
}

static inline struct words next(struct words w, uint32_t key_0, uint32_t key_1)
{
    const struct product_halves product_0 = products(w.c[0], PHILOX_0);
    const struct product_halves product_1 = products(w.c[2], PHILOX_1);
    return (struct words){
        {veorq_u32(veorq_u32(product_1.high, w.c[1]), vdupq_n_u32(key_0)), product_1.low,
         veorq_u32(veorq_u32(product_0.high, w.c[3]), vdupq_n_u32(key_1)), product_0.low}};
}

/* Stores the factors for the keys of a vector of counters. Key 4 i + j has word j of counter i. */
static inline void store(struct words w, const struct keep_line *what, float *line)
{
    const uint32x4_t most_dropped = vdupq_n_u32((uint32_t)(what->dropped - 1));
    const uint32x4_t factor = vreinterpretq_u32_f32(vdupq_n_f32(what->factor));
    uint32x4x4_t kept;
    for (int j = 0; j < PHILOX_WORDS; j++)
        kept.val[j] = vandq_u32(vcgtq_u32(w.c[j], most_dropped), factor);
    const float32x4x4_t factors = {
        {vreinterpretq_f32_u32(kept.val[0]), vreinterpretq_f32_u32(kept.val[1]),
         vreinterpretq_f32_u32(kept.val[2]), vreinterpretq_f32_u32(kept.val[3])}};
    vst4q_f32(line, factors);
}

void attnkit_neon_keep_line(const struct keep_line *what, float *line)
{
    static const uint32_t order[COUNTERS] = {0, 1, 2, 3};
    const struct philox_start start = philox_start(what);
    for (int i = 0; i < PHILOX_COUNTERS; i += TOGETHER * COUNTERS) {
        struct words w[TOGETHER];
        for (int j = 0; j < TOGETHER; j++) {
            const uint32_t first = start.word_0 + (uint32_t)(i + j * COUNTERS);
            w[j] = begin(&start, vaddq_u32(vdupq_n_u32(first), vld1q_u32(order)));
        }
        uint32_t key_0 = start.key_0, key_1 = start.key_1;
        for (int round = 0; round < PHILOX_ROUNDS; round++) {
            for (int j = 0; j < TOGETHER; j++)
                w[j] = next(w[j], key_0, key_1);
            key_0 += PHILOX_KEY_0;
            key_1 += PHILOX_KEY_1;
        }
        for (int j = 0; j < TOGETHER; j++)
            store(w[j], what, line + (i + j * COUNTERS) * PHILOX_WORDS);
    }
}
