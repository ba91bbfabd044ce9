/* SPDX-License-Identifier: Apache-2.0
 *
 * One block of keys for some query rows, of which row r sees the first visible[r] keys: scores,
 * softmax and weighted V in one go. Called by decode.c of the parent folder. Rows go in panels of
 * at most 4 that share the loads of K and V; their number is a constant in all that is inlined.
 *
 * Scores: lanes are keys, K transposed in registers 16 keys x 16 d at a time so that a score stays
 * one chain over d. A tile is two vectors of keys for 1 or 2 rows, so that their chains do not
 * leave the FMA ports waiting, else one. 16 of K, 16 in between and at most 4 sums are more than 32
 * zmm: some wait on the stack. For 16 keys 16 d take 16 loads, 64 shuffles, and 16 FMA per row,
 * whose broadcasts are part of them.
 *
 * Weighted V: lanes are value columns, 4 vectors of them. At most 16 sums, 4 weights and 1 of V are
 * 21 of 32 zmm.
 *
 * Few rows are bound by memory: V and the next keys are asked for while K is worked on. More rows
 * are bound by FMA and shuffles.
 */
#include <stdbool.h>

#include "avx512.h"

enum {
    PANEL_ROWS = 4,
    MAX_TILE = 2,        /* vectors of keys in a tile of scores */
    MAX_COLUMNS = 4,     /* vectors of value columns in a tile of weighted V */
    KEYS_AHEAD = 2 * 16, /* from the keys that are worked on to those that are asked for */
};

/* Some query rows of a block, r < rows <= PANEL_ROWS. Filled in place, and only pointed to: copies
 * of what has just been stored in pieces would wait for it. */
struct panel {
    const struct decode_block *block;
    const float *const *q;
    const int32_t *visible;
    int first;        /* row of the block */
    int fewest, most; /* of visible */
};

/* Weights of a panel, those of its rows for a key next to each other, 0 from visible[r] on, and
 * what o is multiplied by. */
struct weights {
    _Alignas(64) float p[KEY_BLOCK][PANEL_ROWS];
    float rescale[PANEL_ROWS];
};

/* The chains of a tile of scores go on over the first `left` of VECTOR dimensions from d on. */
static inline __attribute__((always_inline)) void
add_dims(__m512 s[][MAX_TILE], const float *const *q, const float *const *key, int64_t d,
         int64_t left, const int vectors, const int rows)
{
    for (int j = 0; j < vectors; j++) {
        __m512 k_t[VECTOR];
        for (int i = 0; i < VECTOR; i++)
            k_t[i] = load_first(key[j * VECTOR + i] + d, left);
        transpose(k_t);
        for (int i = 0; i < VECTOR && i < left; i++)
            for (int r = 0; r < rows; r++)
                s[r][j] = _mm512_fmadd_ps(_mm512_set1_ps(q[r][d + i]), k_t[i], s[r][j]);
    }
}

/* What softmax needs of the scores: t[r][key], -inf where row r does not see the key, and their
 * maxima, those of the lanes of max[r]. */
struct scores {
    _Alignas(64) float t[PANEL_ROWS][KEY_BLOCK];
    __m512 max[PANEL_ROWS];
};

static inline __attribute__((always_inline)) void
store_scores(struct scores *scores, const struct panel *panel, int first, __m512 s[][MAX_TILE],
             float scale_log2, const int vectors, const int rows)
{
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++) {
            const int at = first + j * VECTOR;
            const __mmask16 seen = first_mask(panel->visible[r] - at);
            const __m512 t =
                _mm512_mask_mul_ps(minus_infinity(), seen, s[r][j], _mm512_set1_ps(scale_log2));
            _mm512_store_ps(scores->t[r] + at, t);
            /* This order of operands drops a NaN. */
            scores->max[r] = _mm512_max_ps(t, scores->max[r]);
        }
}

/* The scores of `vectors` vectors of keys from `first` on. Keys that no row sees stand for the last
 * one that is seen, so that they may be loaded. */
static inline __attribute__((always_inline)) void score_tile(struct scores *scores,
                                                             const struct panel *panel, int first,
                                                             float scale_log2, const int vectors,
                                                             const int rows)
{
    const struct rows k = panel->block->k, v = panel->block->v;
    const bool prefetching = panel->first == 0 && panel->block->prefetch;
    const float *key[MAX_TILE * VECTOR];
    __m512 s[PANEL_ROWS][MAX_TILE];
    for (int i = 0; i < vectors * VECTOR; i++)
        key[i] = row_at(k, first + i < panel->most ? first + i : panel->most - 1);
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            s[r][j] = _mm512_setzero_ps();
    int64_t d = 0;
    for (; d + VECTOR <= k.dim; d += VECTOR) {
        if (prefetching && d % LINE == 0) {
            prefetch(v, first, d, vectors * VECTOR);
            prefetch(k, first + KEYS_AHEAD, d, vectors * VECTOR);
        }
        add_dims(s, panel->q, key, d, VECTOR, vectors, rows);
    }
    if (d < k.dim)
        add_dims(s, panel->q, key, d, k.dim - d, vectors, rows);
    store_scores(scores, panel, first, s, scale_log2, vectors, rows);
}

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

/* Weights from scores; the state's maximum and sum are moved on. */
static inline __attribute__((always_inline)) void softmax(const struct panel *panel,
                                                          const struct scores *scores,
                                                          struct weights *weights, const int rows)
{
    float *const row_max = panel->block->st->row_max + panel->first;
    float *const row_sum = panel->block->st->row_sum + panel->first;
    const __m128 old_max = _mm_loadu_ps(row_max);
    const __m128 new_max = _mm_max_ps(_mm_ceil_ps(max_of_each(scores->max)), old_max);
    const __m512 subtrahend = finite_max(_mm512_castps128_ps512(new_max));
    float subtract[VECTOR];
    _mm512_storeu_ps(subtract, subtrahend);
    __m128 sum = _mm_setzero_ps();
    for (int key = 0; key < panel->most; key += VECTOR) {
        __m512 p[PANEL_ROWS];
        for (int r = 0; r < rows; r++)
            p[r] = _mm512_sub_ps(_mm512_load_ps(scores->t[r] + key), _mm512_set1_ps(subtract[r]));
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

/* `vectors` vectors of value columns from column c on, the last of `width` floats. A row leaves
 * alone the keys that only other rows see: 0 times their V might be NaN. */
static inline __attribute__((always_inline)) void v_tile(const struct panel *panel,
                                                         const struct weights *weights, int64_t c,
                                                         int64_t width, const int vectors,
                                                         const int rows)
{
    const struct rows v = panel->block->v;
    __m512 sum[PANEL_ROWS][MAX_COLUMNS];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            sum[r][j] = _mm512_setzero_ps();
    for (int key = 0; key < panel->fewest; key++) {
        const float *values = row_at(v, key) + c;
        __m512 p[PANEL_ROWS];
        for (int r = 0; r < rows; r++)
            p[r] = _mm512_set1_ps(weights->p[key][r]);
        for (int j = 0; j < vectors; j++) {
            const __m512 x = load_first(values + j * VECTOR, width);
            for (int r = 0; r < rows; r++)
                sum[r][j] = _mm512_fmadd_ps(p[r], x, sum[r][j]);
        }
    }
    for (int key = panel->fewest; key < panel->most; key++)
        for (int r = 0; r < rows; r++)
            if (key < panel->visible[r])
                for (int j = 0; j < vectors; j++)
                    sum[r][j] = _mm512_fmadd_ps(_mm512_set1_ps(weights->p[key][r]),
                                                load_first(row_at(v, key) + c + j * VECTOR, width),
                                                sum[r][j]);
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++) {
            float *o = panel->block->st->out + (panel->first + r) * v.dim + c + j * VECTOR;
            const __m512 factor = _mm512_set1_ps(weights->rescale[r]);
            store_first(o, width, _mm512_fmadd_ps(load_first(o, width), factor, sum[r][j]));
        }
}

static inline __attribute__((always_inline)) void
weighted_v(const struct panel *panel, const struct weights *weights, const int rows)
{
    const int vectors = MAX_COLUMNS;
    const int64_t dim = panel->block->v.dim;
    int64_t c = 0;
    for (; c + vectors * VECTOR <= dim; c += vectors * VECTOR)
        v_tile(panel, weights, c, VECTOR, vectors, rows);
    for (; c + VECTOR <= dim; c += VECTOR)
        v_tile(panel, weights, c, VECTOR, 1, rows);
    if (c < dim)
        v_tile(panel, weights, c, dim - c, 1, rows);
}

static inline __attribute__((always_inline)) void
score_rows(struct scores *scores, const struct panel *panel, float scale_log2, const int rows)
{
    for (int r = 0; r < PANEL_ROWS; r++)
        scores->max[r] = minus_infinity();
    int key = 0;
    for (; rows <= 2 && key + VECTOR < panel->most; key += 2 * VECTOR)
        score_tile(scores, panel, key, scale_log2, 2, rows);
    for (; key < panel->most; key += VECTOR)
        score_tile(scores, panel, key, scale_log2, 1, rows);
}

static inline __attribute__((always_inline)) void attend(const struct panel *panel,
                                                         float scale_log2, const int rows)
{
    struct scores scores;
    struct weights weights;
    score_rows(&scores, panel, scale_log2, rows);
    softmax(panel, &scores, &weights, rows);
    weighted_v(panel, &weights, rows);
}

/* The rows of a block from `first` on. */
static void begin_panel(struct panel *panel, const struct decode_block *block, int first, int rows)
{
    panel->block = block;
    panel->q = block->q + first;
    panel->visible = block->visible + first;
    panel->first = first;
    panel->fewest = panel->most = panel->visible[0];
    for (int r = 1; r < rows; r++) {
        const int seen = panel->visible[r];
        panel->fewest = seen < panel->fewest ? seen : panel->fewest;
        panel->most = seen > panel->most ? seen : panel->most;
    }
}

void attnkit_avx512_decode(const struct decode_block *block, int rows, float scale_log2)
{
    for (int first = 0; first < rows; first += PANEL_ROWS) {
        const int panel_rows = rows - first < PANEL_ROWS ? rows - first : PANEL_ROWS;
        struct panel panel;
        begin_panel(&panel, block, first, panel_rows);
        if (panel.most == 0)
            continue;
        switch (panel_rows) {
        case 1:
            attend(&panel, scale_log2, 1);
            break;
        case 2:
            attend(&panel, scale_log2, 2);
            break;
        case 3:
            attend(&panel, scale_log2, 3);
            break;
        default:
            attend(&panel, scale_log2, 4);
        }
    }
}
