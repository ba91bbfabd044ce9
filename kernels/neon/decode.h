/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the decode tile share. decode.c calls the parts in order.
 */
#ifndef ATTNKIT_NEON_DECODE_H
#define ATTNKIT_NEON_DECODE_H

#include "kernels/neon/neon.h"
#include "kernels/vectors/decode/panel.h"

/* The scaled scores of a panel, for whole vectors of keys. The scores of row r are -inf from key
 * visible[r] on. */
struct scores {
    float s[PANEL_ROWS][KEY_BLOCK];
    float scale_log2;
};

/* Returns the place of the scale of the 4 elements from `at` on. For TYPE_I8 the place is the index
 * of the scale, for TYPE_Q8_0 the offset of the block in bytes. For other types the place is 0 and
 * is not used. */
static inline int64_t scale_place(const enum type type, int64_t group, int64_t at)
{
    if (type == TYPE_I8)
        return at / group;
    return type == TYPE_Q8_0 ? bytes_of(type, at / Q8_BLOCK * Q8_BLOCK) : 0;
}

/* Returns n elements of the row of a key as binary32, 1 <= n <= 4, from element `at` on, times
 * their scale. `place` is the scale_place of these elements. The other lanes of the result have no
 * meaning, because 0 times the scale may be NaN. */
static inline __attribute__((always_inline)) float32x4_t load_scaled(const enum type type,
                                                                     const struct key_rows *rows,
                                                                     int key, int64_t at, int n,
                                                                     int64_t place)
{
    const char *const row = rows->row[key];
    if (type == TYPE_I8)
        return vmulq_n_f32(load_as_f32(TYPE_I8, row, at, n), rows->scales[key][place]);
    if (type == TYPE_Q8_0) {
        const char *const block = row + place;
        uint16_t bits;
        memcpy(&bits, block, sizeof bits);
        const float32x4_t scale = vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits)));
        return vmulq_f32(load_as_f32(TYPE_I8, block + sizeof bits, at % Q8_BLOCK, n), scale);
    }
    return load_as_f32(type, row, at, n);
}

/* Stores the scores s of 4 keys, from key `first` on, times scale_log2. A key that row r does not
 * see gets -inf. */
static inline void store_scores(const struct panel *panel, int r, int first, float32x4_t s,
                                float scale_log2, struct scores *scores)
{
    const int32x4_t count = {0, 1, 2, 3};
    const int32x4_t key = vaddq_s32(vdupq_n_s32(first), count);
    const uint32x4_t seen = vcltq_s32(key, vdupq_n_s32(panel->visible[r]));
    const float32x4_t t = vbslq_f32(seen, vmulq_n_f32(s, scale_log2), vdupq_n_f32(-INFINITY));
    vst1q_f32(scores->s[r] + first, t);
}

/* Compute the scores of all keys that at least one row of the panel sees. */
void attnkit_neon_decode_k(const struct panel *panel, struct scores *scores);
void attnkit_neon_decode_tiled_k(const struct panel *panel, struct scores *scores);

/* Multiplies o of each row by the row's element of weights->rescale, and adds the weighted V. */
void attnkit_neon_decode_v(const struct panel *panel, const struct weights *weights);

#endif
