/* SPDX-License-Identifier: Apache-2.0
 *
 * One block of keys for some query rows, of which row r sees the first visible[r] keys: scores,
 * softmax and weighted V in one go. Called by decode.c of the parent folder. Rows go in panels of
 * at most 4 that share the loads of K and V; their number is a constant in all that is inlined.
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

/* Some query rows, r < rows <= DECODE_PANEL, with their part of the state. */
struct panel {
    const float *const *q;
    const int32_t *visible;
    int fewest, most; /* of visible */
    struct state st;
};

/* Weights of a panel: those of its rows for a key next to each other, 0 from visible[r] on. */
struct weights {
    float p[KEY_BLOCK][DECODE_PANEL];
};

/* n elements, 4 or 1, from d on for 4 * groups keys. */
static inline __attribute__((always_inline)) void
add_d(float32x4_t s[][MAX_GROUPS], const float *const *q, const float *const *k, int64_t d,
      const int n, const int groups, const int rows)
{
    float32x4_t q_4[DECODE_PANEL];
    for (int r = 0; r < rows; r++)
        q_4[r] = load_n(q[r] + d, n);
    for (int group = 0; group < groups; group++) {
        float32x4_t k_t[4];
        for (int key = 0; key < 4; key++)
            k_t[key] = load_n(k[4 * group + key] + d, n);
        transpose(k_t);
        for (int i = 0; i < n; i++)
            for (int r = 0; r < rows; r++)
                s[r][group] = fma_lane(s[r][group], k_t[i], q_4[r], i);
    }
}

/* t[r][key] for 4 * groups keys from `first` on: -inf where row r does not see the key. Keys that
 * no row sees stand for the last one that is seen, so that they may be loaded. */
static inline __attribute__((always_inline)) void score_tile(const struct panel *panel,
                                                             struct rows k, int first,
                                                             float scale_log2, float t[][KEY_BLOCK],
                                                             const int groups, const int rows)
{
    const float *q[DECODE_PANEL], *key_row[4 * MAX_GROUPS];
    float32x4_t s[DECODE_PANEL][MAX_GROUPS];
    for (int key = 0; key < 4 * groups; key++)
        key_row[key] = row_at(k, first + key < panel->most ? first + key : panel->most - 1);
    for (int r = 0; r < rows; r++) {
        q[r] = panel->q[r];
        for (int group = 0; group < groups; group++)
            s[r][group] = vdupq_n_f32(0.0f);
    }
    int64_t d = 0;
    for (; d + 4 <= k.dim; d += 4)
        add_d(s, q, key_row, d, 4, groups, rows);
    for (; d < k.dim; d++)
        add_d(s, q, key_row, d, 1, groups, rows);

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

/* `vectors` vectors of value columns from column c on, the last of n floats. A row leaves alone the
 * keys that only other rows see: 0 times their V might be NaN. */
static inline __attribute__((always_inline)) void
v_tile(const struct panel *panel, const struct weights *weights, float32x4_t rescale, struct rows v,
       int64_t c, const int vectors, const int n, const int rows)
{
    float32x4_t sum[DECODE_PANEL][MAX_VECTORS];
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < vectors; i++)
            sum[r][i] = vdupq_n_f32(0.0f);
    for (int key = 0; key < panel->fewest; key++) {
        const float32x4_t p = vld1q_f32(weights->p[key]);
        for (int i = 0; i < vectors; i++) {
            const float32x4_t x = load_n(row_at(v, key) + c + 4 * i, n);
            for (int r = 0; r < rows; r++)
                sum[r][i] = fma_lane(sum[r][i], x, p, r);
        }
    }
    for (int key = panel->fewest; key < panel->most; key++) {
        const float32x4_t p = vld1q_f32(weights->p[key]);
        for (int r = 0; r < rows; r++)
            if (key < panel->visible[r])
                for (int i = 0; i < vectors; i++)
                    sum[r][i] = fma_lane(sum[r][i], load_n(row_at(v, key) + c + 4 * i, n), p, r);
    }
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < vectors; i++) {
            float *o = panel->st.out + r * v.dim + c + 4 * i;
            store_n(o, fma_lane(sum[r][i], load_n(o, n), rescale, r), n);
        }
}

static inline __attribute__((always_inline)) void weighted_v(const struct panel *panel,
                                                             const struct weights *weights,
                                                             float32x4_t rescale, struct rows v,
                                                             const int rows)
{
    const int vectors = rows <= 2 ? MAX_VECTORS : MAX_VECTORS / 2;
    int64_t c = 0;
    for (; c + 4 * vectors <= v.dim; c += 4 * vectors)
        v_tile(panel, weights, rescale, v, c, vectors, 4, rows);
    for (; c < v.dim; c += 4)
        v_tile(panel, weights, rescale, v, c, 1, lanes_at(c, v.dim), rows);
}

static inline __attribute__((always_inline)) void decode_panel(const struct panel *panel,
                                                               struct rows k, struct rows v,
                                                               float scale_log2, const int rows)
{
    float t[DECODE_PANEL][KEY_BLOCK];
    struct weights weights;
    const int groups = rows <= 2 ? MAX_GROUPS : MAX_GROUPS / 2;
    for (int key = 0; key < panel->most; key += 4 * groups)
        score_tile(panel, k, key, scale_log2, t, groups, rows);
    const float32x4_t rescale = softmax(panel, t, &weights, rows);
    weighted_v(panel, &weights, rescale, v, rows);
}

static void choose_rows(const struct panel *panel, struct rows k, struct rows v, float scale_log2,
                        int rows)
{
    switch (rows) {
    case 1:
        decode_panel(panel, k, v, scale_log2, 1);
        break;
    case 2:
        decode_panel(panel, k, v, scale_log2, 2);
        break;
    case 3:
        decode_panel(panel, k, v, scale_log2, 3);
        break;
    default:
        decode_panel(panel, k, v, scale_log2, 4);
        break;
    }
}

void attnkit_neon_decode(const struct decode_block *block, int rows, float scale_log2)
{
    for (int first = 0; first < rows; first += DECODE_PANEL) {
        const int panel_rows = lanes_at(first, rows);
        struct panel panel = {
            .q = block->q + first,
            .visible = block->visible + first,
            .fewest = block->visible[first],
            .most = block->visible[first],
            .st = {block->st->row_max + first, block->st->row_sum + first,
                   block->st->out + first * block->v.dim},
        };
        for (int r = 1; r < panel_rows; r++) {
            const int seen = panel.visible[r];
            panel.fewest = seen < panel.fewest ? seen : panel.fewest;
            panel.most = seen > panel.most ? seen : panel.most;
        }
        choose_rows(&panel, block->k, block->v, scale_log2, panel_rows);
    }
}
