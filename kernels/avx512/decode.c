/* SPDX-License-Identifier: Apache-2.0
 *
 * One block of keys for some query rows, of which row r sees the first visible[r] keys: scores
 * (decode_k.c, decode_tiled_k.c), softmax, and weighted V (decode_v.c). Called by decode.c of the
 * parent folder. Rows go in panels of at most 4 that share the loads of K and V.
 */
#include "kernels/avx512/decode.h"

/* The maximum of the lanes of each vector, none of which is NaN. */
static inline __m128 max_of_each(const __m512 x[PANEL_ROWS])
{
    __m128 m[PANEL_ROWS];
    for (int r = 0; r < PANEL_ROWS; r++) {
        const __m256 half =
            _mm256_max_ps(_mm512_castps512_ps256(x[r]), _mm512_extractf32x8_ps(x[r], 1));
        m[r] = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    }
    _MM_TRANSPOSE4_PS(m[0], m[1], m[2], m[3]);
    return _mm_max_ps(_mm_max_ps(m[0], m[1]), _mm_max_ps(m[2], m[3]));
}

/* The weights of VECTOR keys, a row in each vector, as their lines of `weights`, added to the sums
 * of the rows. */
static inline __m128 store_weights(const __m512 p[PANEL_ROWS], float (*weights)[PANEL_ROWS],
                                   __m128 sum)
{
    const __m512 low_01 = _mm512_unpacklo_ps(p[0], p[1]), high_01 = _mm512_unpackhi_ps(p[0], p[1]);
    const __m512 low_23 = _mm512_unpacklo_ps(p[2], p[3]), high_23 = _mm512_unpackhi_ps(p[2], p[3]);
    /* Keys i, i + 4, i + 8 and i + 12, then each vector its half of two of them. */
    const __m512 key_0 = _mm512_shuffle_ps(low_01, low_23, 0x44);
    const __m512 key_1 = _mm512_shuffle_ps(low_01, low_23, 0xee);
    const __m512 key_2 = _mm512_shuffle_ps(high_01, high_23, 0x44);
    const __m512 key_3 = _mm512_shuffle_ps(high_01, high_23, 0xee);
    const __m512 first_01 = _mm512_shuffle_f32x4(key_0, key_1, 0x44);
    const __m512 first_23 = _mm512_shuffle_f32x4(key_2, key_3, 0x44);
    const __m512 last_01 = _mm512_shuffle_f32x4(key_0, key_1, 0xee);
    const __m512 last_23 = _mm512_shuffle_f32x4(key_2, key_3, 0xee);
    _mm512_store_ps(weights[0], _mm512_shuffle_f32x4(first_01, first_23, 0x88));
    _mm512_store_ps(weights[4], _mm512_shuffle_f32x4(first_01, first_23, 0xdd));
    _mm512_store_ps(weights[8], _mm512_shuffle_f32x4(last_01, last_23, 0x88));
    _mm512_store_ps(weights[12], _mm512_shuffle_f32x4(last_01, last_23, 0xdd));
    for (int i = 0; i < VECTOR; i++)
        sum = _mm_add_ps(sum, _mm_load_ps(weights[i]));
    return sum;
}

/* Scores to t, -inf where row r does not see the key; max[r] gets their maximum, lane by lane. */
static inline __attribute__((always_inline)) void
scale_scores(const struct panel *panel, struct scores *scores, float scale_log2,
             __m512 max[PANEL_ROWS], const int rows)
{
    for (int r = 0; r < PANEL_ROWS; r++)
        max[r] = minus_infinity();
    for (int key = 0; key < panel->most; key += VECTOR)
        for (int r = 0; r < rows; r++) {
            const __m512 t =
                _mm512_mask_mul_ps(minus_infinity(), first_mask(panel->visible[r] - key),
                                   _mm512_load_ps(scores->s[r] + key), _mm512_set1_ps(scale_log2));
            _mm512_store_ps(scores->s[r] + key, t);
            /* This order of operands drops a NaN. */
            max[r] = _mm512_max_ps(t, max[r]);
        }
}

/* Weights from scores; the state's maximum and sum are moved on. */
static inline __attribute__((always_inline)) void
softmax_rows(const struct panel *panel, struct scores *scores, float scale_log2,
             struct weights *weights, const int rows)
{
    __m512 max[PANEL_ROWS];
    scale_scores(panel, scores, scale_log2, max, rows);
    float *const row_max = panel->block->st->row_max + panel->first;
    float *const row_sum = panel->block->st->row_sum + panel->first;
    const __m128 old_max = _mm_loadu_ps(row_max);
    const __m128 new_max = _mm_max_ps(_mm_ceil_ps(max_of_each(max)), old_max);
    const __m512 subtrahend = finite_max(_mm512_castps128_ps512(new_max));
    float subtract[VECTOR];
    _mm512_storeu_ps(subtract, subtrahend);
    __m128 sum = _mm_setzero_ps();
    struct ahead ahead = scores->v;
    for (int key = 0; key < panel->most; key += VECTOR) {
        __m512 p[PANEL_ROWS];
        ask_ahead(&ahead, false);
        for (int r = 0; r < rows; r++)
            p[r] = _mm512_sub_ps(_mm512_load_ps(scores->s[r] + key), _mm512_set1_ps(subtract[r]));
        exp2_vectors(p, rows);
        for (int r = rows; r < PANEL_ROWS; r++)
            p[r] = _mm512_setzero_ps();
        sum = store_weights(p, weights->p + key, sum);
    }
    const __m128 rescale =
        _mm512_castps512_ps128(exp2_v(_mm512_sub_ps(_mm512_castps128_ps512(old_max), subtrahend)));
    const __m128 old_sum = _mm_loadu_ps(row_sum);
    _mm_storeu_ps(row_sum, _mm_fmadd_ps(old_sum, rescale, sum));
    _mm_storeu_ps(row_max, new_max);
    _mm_store_ps(weights->rescale, rescale);
}

static __attribute__((noinline)) void softmax(const struct panel *panel, struct scores *scores,
                                              float scale_log2, struct weights *weights)
{
    switch (computed_rows(panel)) {
    case 1:
        softmax_rows(panel, scores, scale_log2, weights, 1);
        break;
    case 2:
        softmax_rows(panel, scores, scale_log2, weights, 2);
        break;
    default:
        softmax_rows(panel, scores, scale_log2, weights, PANEL_ROWS);
        break;
    }
}

/* The rows of a block from `first` on. */
static void begin_panel(struct panel *panel, const struct decode_block *block, int first, int rows)
{
    panel->block = block;
    panel->first = first;
    panel->rows = rows;
    panel->far = first == 0 && block->far;
    panel->fewest = panel->most = block->visible[first];
    for (int r = 0; r < PANEL_ROWS; r++) {
        const int row = first + (r < rows ? r : rows - 1), seen = block->visible[row];
        panel->q[r] = block->q[row];
        panel->visible[r] = seen;
        panel->fewest = seen < panel->fewest ? seen : panel->fewest;
        panel->most = seen > panel->most ? seen : panel->most;
    }
}

/* t in the place of scores, of the keys that each row sees. */
static void adjust_scores(const struct panel *panel, struct scores *scores)
{
    const struct decode_block *const block = panel->block;
    for (int r = 0; r < panel->rows; r++)
        attnkit_avx512_adjust(block->adjust, block->bias ? block->bias[panel->first + r] : NULL,
                              (size_t)panel->visible[r], scores->s[r]);
}

/* Weights times their factors, those that the row sees: the others are 0 as they are. */
static void keep_weights(const struct panel *panel, struct weights *weights)
{
    for (int r = 0; r < panel->rows; r++) {
        const float *const keep = panel->block->keep[panel->first + r];
        for (int key = 0; key < panel->visible[r]; key++)
            weights->p[key][r] *= keep[key];
    }
}

void attnkit_avx512_decode(const struct decode_block *block, int rows, float scale_log2)
{
    for (int first = 0; first < rows; first += PANEL_ROWS) {
        struct panel panel;
        struct scores scores;
        struct weights weights;
        begin_panel(&panel, block, first, rows - first < PANEL_ROWS ? rows - first : PANEL_ROWS);
        if (panel.most == 0)
            continue;
        if (block->k.tiled)
            attnkit_avx512_decode_tiled_k(&panel, &scores);
        else
            attnkit_avx512_decode_k(&panel, &scores);
        if (block->adjust)
            adjust_scores(&panel, &scores);
        softmax(&panel, &scores, block->adjust ? 1.0f : scale_log2, &weights);
        if (block->keep)
            keep_weights(&panel, &weights);
        attnkit_avx512_decode_v(&panel, &weights);
    }
}
