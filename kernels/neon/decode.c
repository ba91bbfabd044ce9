/* SPDX-License-Identifier: Apache-2.0
 *
 * One block of keys for some query rows, of which row r sees the first visible[r] keys: scores,
 * softmax and weighted V, for K and V of any type, which are widened as they are loaded. Called by
 * decode.c of the parent folder. Rows go in panels of at most 4 that share the loads of K and V;
 * types and rows, 3 of which are worked on as 4, are constants in all that is inlined.
 *
 * Scores: lanes are keys, K transposed in registers 4 keys x 4 d at a time so that a score stays
 * one chain over d. A tile is 16 keys for 1 or 2 rows, 8 for more. Registers: at most 8 sums, 4 of
 * q and 8 of K, 20 of 32. For 4 keys 4 d take 4 loads, 8 trn and 4 fmla per row.
 *
 * Weighted V: lanes are value columns, 8 vectors of them for 1 or 2 rows, 4 for more. Registers: at
 * most 16 sums, 1 of weights, V as it comes. A key takes a load per vector, an fmla per vector and
 * row.
 */
#include "neon.h"

enum {
    DECODE_PANEL = 4,
    MAX_GROUPS = 4,  /* of 4 keys, in a tile of scores */
    MAX_VECTORS = 8, /* of value columns, in a tile of weighted V */
};

/* Some query rows, with their part of the state. */
struct panel {
    const struct decode_block *block;
    const float *q[DECODE_PANEL]; /* past `rows` the last one again */
    int32_t visible[DECODE_PANEL];
    int rows;         /* <= DECODE_PANEL */
    int fewest, most; /* of visible */
    struct state st;
};

/* Weights of a panel: those of its rows for a key next to each other, 0 from visible[r] on. */
struct weights {
    float p[KEY_BLOCK][DECODE_PANEL];
};

static inline int computed_rows(const struct panel *panel)
{
    return panel->rows <= 2 ? panel->rows : DECODE_PANEL;
}

/* Where the 4 elements from `at` on have their scale: TYPE_I8 the index of it, TYPE_Q8_0 the bytes
 * to their block. */
static inline int64_t scale_place(const enum type type, int64_t group, int64_t at)
{
    if (type == TYPE_I8)
        return at / group;
    return type == TYPE_Q8_0 ? bytes_of(type, at / Q8_BLOCK * Q8_BLOCK) : 0;
}

/* Elements `at` on of a row, the first n of them, 1 <= n <= 4, times their scale; the others are 0.
 */
static inline __attribute__((always_inline)) float32x4_t
load_scaled(const enum type type, const struct key_row *row, int64_t at, int n, int64_t place)
{
    if (type == TYPE_I8)
        return vmulq_n_f32(load_as_f32(TYPE_I8, row->data, at, n), row->scales[place]);
    if (type == TYPE_Q8_0) {
        const char *const block = row->data + place;
        uint16_t bits;
        memcpy(&bits, block, sizeof bits);
        const float32x4_t scale = vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits)));
        return vmulq_f32(load_as_f32(TYPE_I8, block + sizeof bits, at % Q8_BLOCK, n), scale);
    }
    return load_as_f32(type, row->data, at, n);
}

/* n elements, 4 or 1, from d on for 4 * groups keys. */
static inline __attribute__((always_inline)) void
add_d(const enum type type, float32x4_t s[][MAX_GROUPS], const struct panel *panel,
      const struct key_row *key, int64_t d, const int n, const int groups, const int rows)
{
    const int64_t place = scale_place(type, panel->block->k.scale_group, d);
    float32x4_t q_4[DECODE_PANEL];
    for (int r = 0; r < rows; r++)
        q_4[r] = load_n(panel->q[r] + d, n);
    for (int group = 0; group < groups; group++) {
        float32x4_t k_t[4];
        for (int i = 0; i < 4; i++)
            k_t[i] = load_scaled(type, key + 4 * group + i, d, n, place);
        transpose(k_t);
        for (int i = 0; i < n; i++)
            for (int r = 0; r < rows; r++)
                s[r][group] = fma_lane(s[r][group], k_t[i], q_4[r], i);
    }
}

/* t[r][key] for 4 * groups keys from `first` on: -inf where row r does not see the key. */
static inline __attribute__((always_inline)) void score_tile(const enum type type,
                                                             const struct panel *panel, int first,
                                                             float scale_log2, float t[][KEY_BLOCK],
                                                             const int groups, const int rows)
{
    const struct key_rows *const k = &panel->block->k;
    float32x4_t s[DECODE_PANEL][MAX_GROUPS];
    for (int r = 0; r < rows; r++)
        for (int group = 0; group < groups; group++)
            s[r][group] = vdupq_n_f32(0.0f);
    int64_t d = 0;
    for (; d + 4 <= k->dim; d += 4)
        add_d(type, s, panel, k->row + first, d, 4, groups, rows);
    for (; d < k->dim; d++)
        add_d(type, s, panel, k->row + first, d, 1, groups, rows);

    const int32x4_t count = {0, 1, 2, 3};
    for (int r = 0; r < rows; r++)
        for (int group = 0; group < groups; group++) {
            const int32x4_t key = vaddq_s32(vdupq_n_s32(first + 4 * group), count);
            const uint32x4_t seen = vcltq_s32(key, vdupq_n_s32(panel->visible[r]));
            const float32x4_t scaled = vmulq_n_f32(s[r][group], scale_log2);
            vst1q_f32(t[r] + first + 4 * group, vbslq_f32(seen, scaled, vdupq_n_f32(-INFINITY)));
        }
}

/* ceil of the maximum of t, in which NaN does not take part. */
static inline float ceil_max(const float *t, int keys)
{
    float32x4_t block_max = vdupq_n_f32(-INFINITY);
    for (int key = 0; key < keys; key += 4)
        block_max = vmaxnmq_f32(block_max, vld1q_f32(t + key));
    return ceilf(vmaxnmvq_f32(block_max));
}

/* t to weights, and the sum of each row's weights in its lane. A row's sum is a chain over the
 * keys: the lanes of that chain are the rows. A weight of 0 does not change it. */
static inline __attribute__((always_inline)) float32x4_t
exponentiate(float t[][KEY_BLOCK], int keys, float32x4_t subtrahend, struct weights *weights,
             const int rows)
{
    float subtract[DECODE_PANEL];
    vst1q_f32(subtract, subtrahend);
    float32x4_t sum = vdupq_n_f32(0.0f);
    for (int key = 0; key < keys; key += 4) {
        float32x4_t p[4];
        for (int r = 0; r < 4; r++)
            p[r] = r < rows ? exp2_v(vsubq_f32(vld1q_f32(t[r] + key), vdupq_n_f32(subtract[r])))
                            : vdupq_n_f32(0.0f);
        transpose(p);
        for (int i = 0; i < 4; i++) {
            vst1q_f32(weights->p[key + i], p[i]);
            sum = vaddq_f32(sum, p[i]);
        }
    }
    return sum;
}

/* Weights from t; the state's maximum and sum are moved on. Returns each row's rescaling. */
static inline __attribute__((always_inline)) float32x4_t
softmax(const struct panel *panel, float t[][KEY_BLOCK], struct weights *weights, const int rows)
{
    float block_max[DECODE_PANEL] = {0};
    for (int r = 0; r < rows; r++)
        block_max[r] = ceil_max(t[r], panel->most);
    const float32x4_t old_max = load_n(panel->st.row_max, rows);
    const float32x4_t new_max = vmaxnmq_f32(old_max, vld1q_f32(block_max));
    const float32x4_t subtrahend = finite_max(new_max);
    const float32x4_t sum = exponentiate(t, panel->most, subtrahend, weights, rows);
    const float32x4_t rescale = exp2_v(vsubq_f32(old_max, subtrahend));
    const float32x4_t row_sum = vfmaq_f32(sum, load_n(panel->st.row_sum, rows), rescale);
    store_n(panel->st.row_sum, row_sum, rows);
    store_n(panel->st.row_max, new_max, rows);
    return rescale;
}

/* `vectors` vectors of value columns from column c on, the last of n elements. A row leaves alone
 * the keys that only other rows see: 0 times their V might be NaN. */
static inline __attribute__((always_inline)) void
v_tile(const enum type type, const struct panel *panel, const struct weights *weights,
       float32x4_t rescale, int64_t c, const int vectors, const int n, const int rows)
{
    const struct key_rows *const v = &panel->block->v;
    int64_t place[MAX_VECTORS];
    float32x4_t sum[DECODE_PANEL][MAX_VECTORS];
    for (int i = 0; i < vectors; i++) {
        place[i] = scale_place(type, v->scale_group, c + 4 * i);
        for (int r = 0; r < rows; r++)
            sum[r][i] = vdupq_n_f32(0.0f);
    }
    for (int key = 0; key < panel->fewest; key++) {
        const float32x4_t p = vld1q_f32(weights->p[key]);
        for (int i = 0; i < vectors; i++) {
            const float32x4_t x = load_scaled(type, v->row + key, c + 4 * i, n, place[i]);
            for (int r = 0; r < rows; r++)
                sum[r][i] = fma_lane(sum[r][i], x, p, r);
        }
    }
    for (int key = panel->fewest; key < panel->most; key++) {
        const float32x4_t p = vld1q_f32(weights->p[key]);
        for (int r = 0; r < rows; r++)
            if (key < panel->visible[r])
                for (int i = 0; i < vectors; i++)
                    sum[r][i] = fma_lane(
                        sum[r][i], load_scaled(type, v->row + key, c + 4 * i, n, place[i]), p, r);
    }
    for (int r = 0; r < rows && r < panel->rows; r++)
        for (int i = 0; i < vectors; i++) {
            float *o = panel->st.out + r * v->dim + c + 4 * i;
            store_n(o, fma_lane(sum[r][i], load_n(o, n), rescale, r), n);
        }
}

static inline __attribute__((always_inline)) void weigh_columns(const enum type type,
                                                                const struct panel *panel,
                                                                const struct weights *weights,
                                                                float32x4_t rescale, const int rows)
{
    const int vectors = rows <= 2 ? MAX_VECTORS : MAX_VECTORS / 2;
    const int64_t dim = panel->block->v.dim;
    int64_t c = 0;
    for (; c + 4 * vectors <= dim; c += 4 * vectors)
        v_tile(type, panel, weights, rescale, c, vectors, 4, rows);
    for (; c < dim; c += 4)
        v_tile(type, panel, weights, rescale, c, 1, lanes_at(c, dim), rows);
}

static inline __attribute__((always_inline)) void score_keys(const enum type type,
                                                             const struct panel *panel,
                                                             float scale_log2, float t[][KEY_BLOCK],
                                                             const int rows)
{
    const int groups = rows <= 2 ? MAX_GROUPS : MAX_GROUPS / 2;
    for (int key = 0; key < panel->most; key += 4 * groups)
        score_tile(type, panel, key, scale_log2, t, groups, rows);
}

static inline __attribute__((always_inline)) void
score_type(const enum type type, const struct panel *panel, float scale_log2, float t[][KEY_BLOCK])
{
    switch (computed_rows(panel)) {
    case 1:
        score_keys(type, panel, scale_log2, t, 1);
        break;
    case 2:
        score_keys(type, panel, scale_log2, t, 2);
        break;
    default:
        score_keys(type, panel, scale_log2, t, DECODE_PANEL);
        break;
    }
}

static __attribute__((noinline)) void score_f32(const struct panel *panel, float scale_log2,
                                                float t[][KEY_BLOCK])
{
    score_type(TYPE_F32, panel, scale_log2, t);
}

static __attribute__((noinline)) void score_f16(const struct panel *panel, float scale_log2,
                                                float t[][KEY_BLOCK])
{
    score_type(TYPE_F16, panel, scale_log2, t);
}

static __attribute__((noinline)) void score_bf16(const struct panel *panel, float scale_log2,
                                                 float t[][KEY_BLOCK])
{
    score_type(TYPE_BF16, panel, scale_log2, t);
}

static __attribute__((noinline)) void score_i8(const struct panel *panel, float scale_log2,
                                               float t[][KEY_BLOCK])
{
    score_type(TYPE_I8, panel, scale_log2, t);
}

static __attribute__((noinline)) void score_q8_0(const struct panel *panel, float scale_log2,
                                                 float t[][KEY_BLOCK])
{
    score_type(TYPE_Q8_0, panel, scale_log2, t);
}

static void score(const struct panel *panel, float scale_log2, float t[][KEY_BLOCK])
{
    switch (panel->block->k.type) {
    case TYPE_F32:
        score_f32(panel, scale_log2, t);
        break;
    case TYPE_F16:
        score_f16(panel, scale_log2, t);
        break;
    case TYPE_BF16:
        score_bf16(panel, scale_log2, t);
        break;
    case TYPE_I8:
        score_i8(panel, scale_log2, t);
        break;
    case TYPE_Q8_0:
        score_q8_0(panel, scale_log2, t);
        break;
    }
}

static inline __attribute__((always_inline)) void weigh_type(const enum type type,
                                                             const struct panel *panel,
                                                             const struct weights *weights,
                                                             float32x4_t rescale)
{
    switch (computed_rows(panel)) {
    case 1:
        weigh_columns(type, panel, weights, rescale, 1);
        break;
    case 2:
        weigh_columns(type, panel, weights, rescale, 2);
        break;
    default:
        weigh_columns(type, panel, weights, rescale, DECODE_PANEL);
        break;
    }
}

static __attribute__((noinline)) void weigh_f32(const struct panel *panel,
                                                const struct weights *weights, float32x4_t rescale)
{
    weigh_type(TYPE_F32, panel, weights, rescale);
}

static __attribute__((noinline)) void weigh_f16(const struct panel *panel,
                                                const struct weights *weights, float32x4_t rescale)
{
    weigh_type(TYPE_F16, panel, weights, rescale);
}

static __attribute__((noinline)) void weigh_bf16(const struct panel *panel,
                                                 const struct weights *weights, float32x4_t rescale)
{
    weigh_type(TYPE_BF16, panel, weights, rescale);
}

static __attribute__((noinline)) void weigh_i8(const struct panel *panel,
                                               const struct weights *weights, float32x4_t rescale)
{
    weigh_type(TYPE_I8, panel, weights, rescale);
}

static __attribute__((noinline)) void weigh_q8_0(const struct panel *panel,
                                                 const struct weights *weights, float32x4_t rescale)
{
    weigh_type(TYPE_Q8_0, panel, weights, rescale);
}

static void weigh(const struct panel *panel, const struct weights *weights, float32x4_t rescale)
{
    switch (panel->block->v.type) {
    case TYPE_F32:
        weigh_f32(panel, weights, rescale);
        break;
    case TYPE_F16:
        weigh_f16(panel, weights, rescale);
        break;
    case TYPE_BF16:
        weigh_bf16(panel, weights, rescale);
        break;
    case TYPE_I8:
        weigh_i8(panel, weights, rescale);
        break;
    case TYPE_Q8_0:
        weigh_q8_0(panel, weights, rescale);
        break;
    }
}

static __attribute__((noinline)) float32x4_t
softmax_rows(const struct panel *panel, float t[][KEY_BLOCK], struct weights *weights)
{
    switch (computed_rows(panel)) {
    case 1:
        return softmax(panel, t, weights, 1);
    case 2:
        return softmax(panel, t, weights, 2);
    default:
        return softmax(panel, t, weights, DECODE_PANEL);
    }
}

/* The rows of a block from `first` on. */
static void begin_panel(struct panel *panel, const struct decode_block *block, int first, int rows)
{
    panel->block = block;
    panel->rows = rows;
    panel->st = (struct state){block->st->row_max + first, block->st->row_sum + first,
                               block->st->out + first * block->v.dim};
    panel->fewest = panel->most = block->visible[first];
    for (int r = 0; r < DECODE_PANEL; r++) {
        const int row = first + (r < rows ? r : rows - 1), seen = block->visible[row];
        panel->q[r] = block->q[row];
        panel->visible[r] = seen;
        panel->fewest = seen < panel->fewest ? seen : panel->fewest;
        panel->most = seen > panel->most ? seen : panel->most;
    }
}

void attnkit_neon_decode(const struct decode_block *block, int rows, float scale_log2)
{
    for (int first = 0; first < rows; first += DECODE_PANEL) {
        struct panel panel;
        float t[DECODE_PANEL][KEY_BLOCK];
        struct weights weights;
        begin_panel(&panel, block, first, lanes_at(first, rows));
        if (panel.most == 0)
            continue;
        score(&panel, scale_log2, t);
        const float32x4_t rescale = softmax_rows(&panel, t, &weights);
        weigh(&panel, &weights, rescale);
    }
}
