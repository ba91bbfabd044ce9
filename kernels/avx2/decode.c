/* SPDX-License-Identifier: Apache-2.0
 *
 * One block of keys for some query rows: scores (decode_k.c, decode_tiled_k.c), softmax, and
 * weighted V (decode_v.c). Row r sees the first visible[r] keys of the block. decode.c of
 * kernels/attention calls `decode`. Rows are split into panels of at most 4 rows. The rows of a
 * panel share the loads of K and V.
 */
#include "kernels/avx2/decode.h"

/* Returns, for each vector, the maximum of its lanes. No lane is NaN. */
static inline __m128 max_of_each(const __m256 x[PANEL_ROWS])
{
    __m128 m[PANEL_ROWS];
    for (int r = 0; r < PANEL_ROWS; r++)
        m[r] = _mm_max_ps(_mm256_castps256_ps128(x[r]), _mm256_extractf128_ps(x[r], 1));
    _MM_TRANSPOSE4_PS(m[0], m[1], m[2], m[3]);
    return _mm_max_ps(_mm_max_ps(m[0], m[1]), _mm_max_ps(m[2], m[3]));
}

/* Stores the weights of VECTOR keys in `weights`, transposed: p has a vector for each row, with a
 * lane for each key, and `weights` gets PANEL_ROWS numbers for each key. Lane r of `sum` is the sum
 * of row r. Returns `sum` plus these weights. */
static inline __m128 store_weights(__m256 p[PANEL_ROWS], float (*weights)[PANEL_ROWS], __m128 sum)
{
    const __m256 low_01 = _mm256_unpacklo_ps(p[0], p[1]), high_01 = _mm256_unpackhi_ps(p[0], p[1]);
    const __m256 low_23 = _mm256_unpacklo_ps(p[2], p[3]), high_23 = _mm256_unpackhi_ps(p[2], p[3]);
    const __m256 key[4] = {
        /* key[i] holds the weights of keys i and i + 4 */
        _mm256_shuffle_ps(low_01, low_23, 0x44), _mm256_shuffle_ps(low_01, low_23, 0xee),
        _mm256_shuffle_ps(high_01, high_23, 0x44), _mm256_shuffle_ps(high_01, high_23, 0xee)};
    for (int i = 0; i < VECTOR; i++) {
        const __m128 line =
            i < 4 ? _mm256_castps256_ps128(key[i % 4]) : _mm256_extractf128_ps(key[i % 4], 1);
        _mm_store_ps(weights[i], line);
        sum = _mm_add_ps(sum, line);
    }
    return sum;
}

/* Returns the scores of VECTOR keys times the factor, and -inf from key n on. */
static inline floats scale_first(const float *s, float factor, int n)
{
    const floats seen = _mm256_castsi256_ps(first_mask(n));
    return select_v(seen, load_aligned(s) * broadcast(factor), minus_infinity());
}

static inline floats from_four(__m128 x)
{
    return _mm256_castps128_ps256(x);
}

static inline __m128 first_four(floats x)
{
    return _mm256_castps256_ps128(x);
}

/* Returns no rows to prefetch, because V was prefetched while the scores were computed. */
static inline struct ahead ahead_in_softmax(const struct scores *scores)
{
    (void)scores;
    return (struct ahead){0};
}

static inline void prefetch_in_softmax(struct ahead *ahead)
{
    (void)ahead;
}

#include "kernels/vectors/decode/softmax.h"
/* Defines attnkit_avx2_decode. */
#include "kernels/vectors/decode/rows.h"

enum { MOST_APART = 16 }; /* most keys of a turn if rows of other heads lie between the tokens */

/* Returns whether to copy the rows of a turn before they are read. If all rows share one set of L1,
 * copies reduce the time of decoding with 16-bit types to 0.7 to 0.9. If rows share two sets,
 * copies cost more time than they save. Rows of TYPE_F32 are not copied here: decode_k copies rows
 * of K that share sets, and most cache lines of V are read only once. */
static inline bool gains_by_copied_turns(enum type type, ptrdiff_t stride)
{
    enum { SETS = 4096 }; /* bytes between cache lines of the same set of L1 */
    const bool is_half =
        (type == TYPE_F16 && is_built(TYPE_F16)) || (type == TYPE_BF16 && is_built(TYPE_BF16));
    return is_half && stride % SETS == 0;
}

/* Adds up the V of a turn. */
static inline void weigh_turn(const struct panel *panel, const struct weights *weights)
{
    if (panel->block->v.type == TYPE_F32)
        attnkit_avx2_decode_v_turn(panel, weights);
    else
        attnkit_avx2_decode_v(panel, weights);
}

/* Defines attnkit_avx2_decode_together. */
#include "kernels/vectors/decode/together.h"
