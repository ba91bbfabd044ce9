/* SPDX-License-Identifier: Apache-2.0
 *
 * The scores of decode where K lies in tiles: s[r][key] = chain over d of q[r][d] * k[key][d].
 * decode.c calls decode_tiled_k.
 *
 * Lanes are keys, in the order of memory. Each vector of element d is loaded and widened once, and
 * then multiplied by an FMA for each row. Registers: in a tile of 4 rows, 8 sums, 2 vectors of K,
 * their scales and a broadcast take 13 of 16 ymm. TYPE_Q8_0 also takes 2 vectors of `zero` and one
 * of not_finite, and so all 16. A tile of 2 rows has 4 vectors of K, and some of its scales are on
 * the stack. FMA or memory limits the speed. An element with a scale takes one more multiplication
 * or multiply-add.
 */
#include "kernels/avx2/decode.h"

enum {
    STEP = 8,        /* elements of d between prefetches */
    MAX_VECTORS = 4, /* vectors of keys in a tile of 1 or 2 rows */
};

/* The addresses of the next elements of a tile of K, and of their scales. */
struct k_tile {
    const char *k;
    const char *scales; /* only for TYPE_I8 */
};

static inline __attribute__((always_inline)) void find_tiles(const enum type type,
                                                             const struct panel *panel, int first,
                                                             struct k_tile tile[], const int tiles)
{
    const struct key_rows *const k = &panel->block->k;
    for (int i = 0; i < tiles; i++) {
        const int key = first + i * TILE_KEYS;
        tile[i].k = k->row[key];
        tile[i].scales = type == TYPE_I8 ? (const char *)k->scales[key] : NULL;
    }
}

/* The scales of the next elements, and for TYPE_Q8_0 the numbers that are subtracted after the
 * multiplication. */
struct tile_scales {
    __m256 of[MAX_VECTORS];
    __m256 zero[MAX_VECTORS];
    __m256 not_finite; /* a lane is NaN if one of its scales so far was not finite */
};

/* Loads the scales of the next group of elements. */
static inline __attribute__((always_inline)) void next_scales(const enum type type,
                                                              struct k_tile tile[],
                                                              struct tile_scales *scales,
                                                              const int vectors)
{
    const enum type scale_type = type == TYPE_I8 ? TYPE_F32 : TYPE_F16;
    for (int j = 0; j < vectors; j++) {
        const struct k_tile *const t = tile + j / TILE_VECTORS;
        scales->of[j] = load_as_f32(scale_type, type == TYPE_I8 ? t->scales : t->k,
                                    j % TILE_VECTORS * VECTOR, VECTOR);
        if (type == TYPE_Q8_0) {
            scales->zero[j] = _mm256_mul_ps(scales->of[j], _mm256_set1_ps(LARGE));
            scales->not_finite =
                _mm256_fmadd_ps(scales->of[j], _mm256_setzero_ps(), scales->not_finite);
        }
    }
    for (int i = 0; i < vectors / TILE_VECTORS; i++)
        if (type == TYPE_I8)
            tile[i].scales += TILE_KEYS * sizeof(float);
        else
            tile[i].k += bytes_of(scale_type, TILE_KEYS);
}

/* Adds q[r][d] * k[key][d] to the sums s, for each row r and each key of the vectors. `exact`
 * selects the conversion of TYPE_Q8_0 by add_large, which is exact only if all scales are finite.
 */
static inline __attribute__((always_inline)) void
add_element(const enum type type, const float *const q[], int64_t d, struct k_tile tile[],
            const struct tile_scales *scales, __m256 s[][MAX_VECTORS], const bool exact,
            const int vectors, const int rows)
{
    const bool scaled = type == TYPE_I8 || type == TYPE_Q8_0;
    const enum type stored = type == TYPE_Q8_0 ? TYPE_I8 : type;
    __m256 k[MAX_VECTORS];
    for (int j = 0; j < vectors; j++) {
        const char *const data = tile[j / TILE_VECTORS].k;
        const int in_tile = j % TILE_VECTORS * VECTOR;
        if (type == TYPE_Q8_0 && exact)
            k[j] = _mm256_fmsub_ps(add_large(data + in_tile), scales->of[j], scales->zero[j]);
        else if (scaled)
            k[j] = _mm256_mul_ps(load_bytes(data + in_tile, j), scales->of[j]);
        else
            k[j] = load_as_f32(type, data, in_tile, VECTOR);
    }
    for (int i = 0; i < vectors / TILE_VECTORS; i++)
        tile[i].k += bytes_of(stored, TILE_KEYS);
    for (int r = 0; r < rows; r++) {
        const __m256 q_d = _mm256_set1_ps(q[r][d]);
        for (int j = 0; j < vectors; j++)
            s[r][j] = multiply_add(q_d, k[j], s[r][j], rows * vectors >= LARGE_TILE);
    }
}

/* Computes the scores of `vectors` vectors of keys from `first` on. Returns false if `exact` is set
 * and a scale of TYPE_Q8_0 is not finite. In this case the scores are wrong, and the caller has to
 * compute them again without `exact`. */
static inline __attribute__((always_inline)) bool
score_tiles(const enum type type, const struct panel *panel, int first, struct scores *scores,
            struct ahead *ahead, const bool exact, const int vectors, const int rows)
{
    const struct key_rows *const k = &panel->block->k;
    const int64_t group = type == TYPE_I8     ? k->scale_group
                          : type == TYPE_Q8_0 ? (int64_t)Q8_BLOCK
                                              : k->dim;
    struct k_tile tile[MAX_VECTORS / TILE_VECTORS];
    find_tiles(type, panel, first, tile, vectors / TILE_VECTORS);
    __m256 s[PANEL_ROWS][MAX_VECTORS];
    struct tile_scales scales;
    scales.not_finite = _mm256_setzero_ps();
    for (int j = 0; j < vectors; j++)
        for (int r = 0; r < rows; r++)
            s[r][j] = _mm256_setzero_ps();
    begin_tile(ahead);
    for (int64_t d = 0; d < k->dim;) {
        const int64_t end = d + group;
        if (type == TYPE_I8 || type == TYPE_Q8_0)
            next_scales(type, tile, &scales, vectors);
        for (; d + STEP <= end; d += STEP) {
            prefetch_ahead(ahead, type);
            for (int i = 0; i < STEP; i++)
                add_element(type, panel->q, d + i, tile, &scales, s, exact, vectors, rows);
        }
        /* For TYPE_Q8_0, `unbounded` does not hide the end of this loop, so the compiler can unroll
         * the loop. If the end were hidden, gcc would spill more registers in the loop above. */
        for (const int64_t rest = type == TYPE_Q8_0 ? end : unbounded(end); d < rest; d++)
            add_element(type, panel->q, d, tile, &scales, s, exact, vectors, rows);
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            _mm256_store_ps(scores->s[r] + first + j * VECTOR, s[r][j]);
    const __m256 is_nan = _mm256_cmp_ps(scales.not_finite, scales.not_finite, _CMP_UNORD_Q);
    return type != TYPE_Q8_0 || !exact || _mm256_movemask_ps(is_nan) == 0;
}

/* Computes the scores of TYPE_Q8_0 again, without add_large. Few calls have scales that are not
 * finite, so all numbers of rows share this code: 1 or 2 rows are computed as 4. */
static __attribute__((noinline)) void score_again(const struct panel *panel, struct scores *scores)
{
    struct ahead none = {0};
    for (int key = 0; key < panel->most; key += TILE_KEYS)
        score_tiles(TYPE_Q8_0, panel, key, scores, &none, false, TILE_VECTORS, PANEL_ROWS);
}

static inline __attribute__((always_inline)) void
score_keys(const enum type type, const struct panel *panel, struct scores *scores, const int rows)
{
    const int vectors = rows <= 2 ? MAX_VECTORS : 2;
    const int64_t steps = (panel->block->k.dim + STEP - 1) / STEP;
    struct ahead ahead =
        v_ahead(panel, (panel->most + vectors * VECTOR - 1) / (vectors * VECTOR), steps);
    bool exact = true;
    int key = 0;
    for (; key + (vectors - TILE_VECTORS) * VECTOR < panel->most; key += vectors * VECTOR)
        exact &= score_tiles(type, panel, key, scores, &ahead, true, vectors, rows);
    for (; vectors > TILE_VECTORS && key < panel->most; key += TILE_KEYS)
        exact &= score_tiles(type, panel, key, scores, &ahead, true, TILE_VECTORS, rows);
    if (!exact)
        score_again(panel, scores);
}

#include "kernels/vectors/decode/score_by_type.h"

void attnkit_avx2_decode_tiled_k(const struct panel *panel, struct scores *scores)
{
    score_keys_of_any_type(panel, scores);
}
