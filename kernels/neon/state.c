/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens to a softmax state after its blocks: the state of a chunk is folded into the total,
 * l = fma(l, a, lc * b), o = fma(o, a, oc * b), and the total becomes the result, out = o / l + 0.
 * Called by prefill.c for panels, whose rows lie across the lanes, and by decode.c for rows with a
 * line each, whose factors are the same in all 4 lanes. Loads and stores bound the folding, fdiv
 * the finishing; registers are plenty.
 */
#include "kernels/neon/neon.h"

/* The new maximum, and the powers of two that total and chunk are multiplied by. */
struct factors {
    float32x4_t row_max, total, chunk;
};

static struct factors fold_factors(float32x4_t total_max, float32x4_t chunk_max)
{
    const float32x4_t new_max = vmaxnmq_f32(total_max, chunk_max);
    const float32x4_t subtrahend = finite_max(new_max);
    return (struct factors){new_max, exp2_v(vsubq_f32(total_max, subtrahend)),
                            exp2_v(vsubq_f32(chunk_max, subtrahend))};
}

static inline float32x4_t folded(float32x4_t total, float32x4_t chunk, struct factors by)
{
    return vfmaq_f32(vmulq_f32(chunk, by.chunk), total, by.total);
}

static float32x4_t log_sum_exp(float32x4_t row_max, float32x4_t row_sum)
{
    const float32x4_t low = vfmaq_n_f32(log_v(row_sum), row_max, LN2_LO);
    return vfmaq_n_f32(low, row_max, LN2_HI);
}

void attnkit_neon_fold(const struct state *total, const struct state *chunk, int lanes,
                       int64_t value_dim)
{
    for (int lane = 0; lane < lanes; lane += 4) {
        const struct factors by =
            fold_factors(vld1q_f32(total->row_max + lane), vld1q_f32(chunk->row_max + lane));
        const float32x4_t row_sum =
            folded(vld1q_f32(total->row_sum + lane), vld1q_f32(chunk->row_sum + lane), by);
        vst1q_f32(total->row_max + lane, by.row_max);
        vst1q_f32(total->row_sum + lane, row_sum);
        for (int64_t i = lane; i < value_dim * lanes; i += lanes)
            vst1q_f32(total->out + i,
                      folded(vld1q_f32(total->out + i), vld1q_f32(chunk->out + i), by));
    }
}

/* The first `rows` of 4 lanes, 1 <= rows <= 4; o and divisor are theirs. The lanes of the result
 * are 0 where a value of out is NaN or infinite. */
static uint32x4_t finish_lanes(const float *o, int lanes, float32x4_t divisor, int64_t value_dim,
                               int rows, float *const *out)
{
    uint32x4_t finite = vdupq_n_u32(UINT32_MAX);
    for (int64_t c = 0; c < value_dim; c += 4) {
        const int columns = lanes_at(c, value_dim);
        float32x4_t x[4];
        for (int i = 0; i < 4; i++) {
            x[i] =
                i < columns ? result(vld1q_f32(o + (c + i) * lanes), divisor) : vdupq_n_f32(0.0f);
            finite = vandq_u32(finite, vcaltq_f32(x[i], vdupq_n_f32(INFINITY)));
        }
        transpose(x);
        for (int row = 0; row < 4; row++)
            if (row < rows)
                store_n(out[row] + c, x[row], columns);
    }
    return finite;
}

/* Bit i of the result is set where lane i < rows is 0. */
static uint64_t zero_lanes(uint32x4_t x, int rows)
{
    uint32_t lane[4];
    vst1q_u32(lane, x);
    uint64_t bits = 0;
    for (int i = 0; i < rows; i++)
        bits |= (uint64_t)(lane[i] == 0) << i;
    return bits;
}

static void store_lse(float32x4_t x, int rows, float *const *lse)
{
    float lane[4];
    vst1q_f32(lane, x);
    for (int i = 0; i < rows; i++)
        *lse[i] = lane[i];
}

uint64_t attnkit_neon_finish(const struct state *st, int lanes, int64_t value_dim, int rows,
                             float *const *out, float *const *lse)
{
    uint64_t not_finite = 0;
    for (int lane = 0; lane < rows; lane += 4) {
        const int filled = lanes_at(lane, rows);
        const float32x4_t row_sum = vld1q_f32(st->row_sum + lane);
        const uint32x4_t finite =
            finish_lanes(st->out + lane, lanes, divisor_of(row_sum), value_dim, filled, out + lane);
        not_finite |= zero_lanes(finite, filled) << lane;
        if (lse)
            store_lse(log_sum_exp(vld1q_f32(st->row_max + lane), row_sum), filled, lse + lane);
    }
    return not_finite;
}

static void decode_fold_row(float *total, const float *chunk, int64_t value_dim, struct factors by)
{
    for (int64_t c = 0; c < value_dim; c += 4) {
        const int columns = lanes_at(c, value_dim);
        store_n(total + c, folded(load_n(total + c, columns), load_n(chunk + c, columns), by),
                columns);
    }
}

void attnkit_neon_decode_fold(const struct state *total, const struct state *chunk, int rows,
                              int64_t value_dim)
{
    for (int r = 0; r < rows; r++) {
        const struct factors by =
            fold_factors(vld1q_dup_f32(total->row_max + r), vld1q_dup_f32(chunk->row_max + r));
        const float32x4_t row_sum =
            folded(vld1q_dup_f32(total->row_sum + r), vld1q_dup_f32(chunk->row_sum + r), by);
        store_n(total->row_max + r, by.row_max, 1);
        store_n(total->row_sum + r, row_sum, 1);
        decode_fold_row(total->out + r * value_dim, chunk->out + r * value_dim, value_dim, by);
    }
}

static void decode_finish_row(const float *o, float32x4_t divisor, int64_t value_dim, float *out)
{
    for (int64_t c = 0; c < value_dim; c += 4) {
        const int columns = lanes_at(c, value_dim);
        store_n(out + c, result(load_n(o + c, columns), divisor), columns);
    }
}

void attnkit_neon_decode_finish(const struct state *st, int rows, int64_t value_dim,
                                float *const *out, float *const *lse)
{
    for (int r = 0; r < rows; r++) {
        const float32x4_t row_sum = vld1q_dup_f32(st->row_sum + r);
        decode_finish_row(st->out + r * value_dim, divisor_of(row_sum), value_dim, out[r]);
        if (lse)
            store_n(lse[r], log_sum_exp(vld1q_dup_f32(st->row_max + r), row_sum), 1);
    }
}

void attnkit_neon_part_state(const float *out, float l, int64_t value_dim, float *o)
{
    for (int64_t c = 0; c < value_dim; c += 4) {
        const int columns = lanes_at(c, value_dim);
        store_n(o + c, vmulq_n_f32(load_n(out + c, columns), l), columns);
    }
}
