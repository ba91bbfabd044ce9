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

/* The number of elements is a multiple of MAX_VECTOR, so that tiles of V have 2 or 4 vectors. If
 * the rows of a token have fewer than 512 bytes, turns take 1.1 to 1.5 of the time of one head
 * after the other (Zen 3). Rows of more than MOST_TURN_BYTES were not measured. On a Zen 4, AVX2
 * with 2 or 3 heads in turns of 64 keys took 1.02 to 1.07 of the time, but a Zen 4 has AVX-512.
 *
 * Rows of TYPE_Q8_0 take more arithmetic for a byte, so memory limits their speed less. Therefore
 * they take no turns with gaps (0.95 to 1.14 of the time on a Zen 3), at most 4 query rows with
 * fewer than 128 elements (8 rows: 1.03), and else at most 8 query rows (12 rows: 1.0 to 1.04). */
int attnkit_avx2_together_rows(enum type type, int64_t dim, int heads, bool gaps)
{
    const int64_t bytes = bytes_of(type, dim);
    const bool gains = takes_turns(type) && dim % MAX_VECTOR == 0 && bytes <= MOST_TURN_BYTES &&
                       heads * bytes >= 512;
    if (!gains || (type == TYPE_Q8_0 && gaps))
        return 0;
    return type != TYPE_Q8_0 ? TOGETHER_ROWS : dim < 128 ? PANEL_ROWS : 2 * PANEL_ROWS;
}

enum { FEWEST_KEYS = 16 /* in a turn: one tile of K */ };
_Static_assert(KEY_BLOCK % (4 * FEWEST_KEYS) == 0, "turns make up a block");

/* Returns the fewest keys of a turn. Turns of fewer keys take longer, because each turn begins
 * tiles of K and V, and a tile of V loads and stores its sums. */
static inline int fewest_keys(enum type type)
{
    if (type == TYPE_Q8_0)
        return 4 * FEWEST_KEYS;
    return type == TYPE_F32 ? FEWEST_KEYS : 2 * FEWEST_KEYS;
}

/* Returns the number of keys of a turn: 64, but fewer if their rows of all heads would have more
 * than 32 KiB, and at least fewest_keys. With more keys, L2 loses some of the rows that have been
 * prefetched for the next turn. On a Zen 3, 8 heads with rows of 128 elements take 0.85 (f32, 16
 * keys) or 0.93 (f16, bf16, 32 keys) of the time with twice as many keys (bench/README.md). If
 * there are other bytes between the rows of two tokens, for example rows of other heads, turns of
 * FEWEST_KEYS are best for all types but TYPE_Q8_0, which takes no such turns. */
static inline int turn_keys(const struct heads_block *b)
{
    enum { L2_SHARE = 1 << 15 };
    const int64_t token = b->heads * bytes_of(b->type, b->dim);
    const ptrdiff_t apart = b->k.stride < 0 ? -b->k.stride : b->k.stride;
    if (apart > token)
        return FEWEST_KEYS;
    int keys = 4 * FEWEST_KEYS;
    while (keys > fewest_keys(b->type) && keys * token > L2_SHARE)
        keys /= 2;
    return keys;
}

/* Adds up the V of a turn. */
static inline void weigh_turn(const struct panel *panel, const struct weights *weights)
{
    if (panel->block->v.type == TYPE_F32)
        attnkit_avx2_decode_v_turn(panel, weights);
    else
        attnkit_avx2_decode_v(panel, weights);
}

enum { ASKS_IN_SOFTMAX = 0 };

/* The softmax of AVX2 prefetches nothing. */
static inline void ask_in_softmax(struct scores *scores, const struct turn *turn)
{
    (void)scores;
    (void)turn;
}

/* Defines attnkit_avx2_decode_together. */
#include "kernels/vectors/decode/together.h"
