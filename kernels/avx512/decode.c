/* SPDX-License-Identifier: Apache-2.0
 *
 * One block of keys for some query rows: scores (decode_k.c, decode_tiled_k.c), softmax, and
 * weighted V (decode_v.c). Row r sees the first visible[r] keys of the block. decode.c of
 * kernels/attention calls `decode`. Rows are split into panels of at most 4 rows. The rows of a
 * panel share the loads of K and V. decode_together computes a block of several heads, which take
 * turns (kernels/vectors/decode/together.h).
 */
#include "kernels/avx512/decode.h"

/* Returns, for each vector, the maximum of its lanes. No lane is NaN. */
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

/* Stores the weights of VECTOR keys in `weights`, transposed: p has a vector of keys for each row,
 * and `weights` gets PANEL_ROWS numbers for each key. Lane r of `sum` is the sum of row r. Returns
 * `sum` plus these weights. */
static inline __m128 store_weights(const __m512 p[PANEL_ROWS], float (*weights)[PANEL_ROWS],
                                   __m128 sum)
{
    const __m512 low_01 = _mm512_unpacklo_ps(p[0], p[1]), high_01 = _mm512_unpackhi_ps(p[0], p[1]);
    const __m512 low_23 = _mm512_unpacklo_ps(p[2], p[3]), high_23 = _mm512_unpackhi_ps(p[2], p[3]);
    /* key_i holds the weights of keys i, i + 4, i + 8 and i + 12. first_ij holds the weights of the
     * first two keys of key_i and of key_j. last_ij holds the weights of the last two keys of key_i
     * and of key_j. */
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

/* Returns the scores of VECTOR keys times the factor, and -inf from key n on. */
static inline floats scale_first(const float *s, float factor, int n)
{
    return _mm512_mask_mul_ps(minus_infinity(), first_mask(n), load_aligned(s), broadcast(factor));
}

static inline floats from_four(__m128 x)
{
    return _mm512_castps128_ps512(x);
}

static inline __m128 first_four(floats x)
{
    return _mm512_castps512_ps128(x);
}

/* Returns the rows of V that were not prefetched while the scores were computed, or the pieces of
 * memory of a turn (ask_in_softmax). */
static inline struct ahead ahead_in_softmax(const struct scores *scores)
{
    return scores->v;
}

static inline __attribute__((always_inline)) void prefetch_in_softmax(struct ahead *ahead)
{
    prefetch_ahead(ahead, false);
}

#include "kernels/vectors/decode/softmax.h"
/* Defines attnkit_avx512_decode. */
#include "kernels/vectors/decode/rows.h"

/* Rows of TYPE_F32 of at most 64 elements save no time. With longer rows than MOST_TURN_BYTES, the
 * rows that the heads read in a turn and the rows that are prefetched meanwhile would take too much
 * of L2. */
int attnkit_avx512_together_rows(enum type type, int64_t dim, int heads, bool gaps)
{
    (void)heads;
    (void)gaps;
    const bool gains = takes_turns(type) && bytes_of(type, dim) <= MOST_TURN_BYTES &&
                       (type != TYPE_F32 || dim > 64);
    return gains ? PANEL_ROWS : 0;
}

/* Returns the number of keys of a turn: 8 to 16 KiB of rows for each head, or the whole block if
 * the block has less. With fewer keys, the tiles of K begin too often. With more keys, memory is
 * read less in order. */
static inline int turn_keys(const struct heads_block *b)
{
    const int64_t bytes = bytes_of(b->type, b->dim);
    const int keys = bytes > 256 ? 32 : bytes > 128 ? 64 : KEY_BLOCK;
    _Static_assert(32 % (2 * VECTOR) == 0, "tiles of K in a turn have two vectors of keys");
    return keys;
}

/* Adds up the V of a turn. */
static inline void weigh_turn(const struct panel *panel, const struct weights *weights)
{
    attnkit_avx512_decode_v(panel, weights);
}

enum { ASKS_IN_SOFTMAX = 1 };

/* Lets the next softmax prefetch the pieces of memory of a turn. Each softmax between turns begins
 * with a call of this function, so that no softmax uses pieces of an earlier one. */
static inline void ask_in_softmax(struct scores *scores, const struct turn *turn)
{
    scores->v = ask_in_turn(turn, KEY_BLOCK / VECTOR);
}

/* Defines attnkit_avx512_decode_together. */
#include "kernels/vectors/decode/together.h"
