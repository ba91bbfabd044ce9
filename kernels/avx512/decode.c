/* SPDX-License-Identifier: Apache-2.0
 *
 * One block of keys for a few query rows: scores, softmax and weighted V in one go, with a line of
 * state per row. decode.c in the folder above calls it for every block.
 *
 * For the scores lanes are keys: K is transposed in registers, some dimensions of the block at a
 * time, into a buffer on the stack, so that every score stays one chain over d. For V lanes are
 * value columns. Both are the same sum of products, a tile of 4 rows x 2 vectors: 8 accumulators
 * and 2 vectors are 10 of 32 zmm; the transpose has 16 rows and as many in between.
 *
 * Each load of K serves all rows, each load of V those of a tile that see the same keys. Few rows
 * are bound by memory: V and the next keys are asked for while K is worked on, the next block while
 * V is (one row on Zen 4: 20 of 30 GB/s, without 8). Many rows are bound by FMA and the loads of
 * their broadcasts.
 */
#include <string.h>

#include "avx512.h"

enum {
    TILE_ROWS = 4,
    TILE_VECTORS = 2,
    TILE_WIDTH = TILE_VECTORS * VECTOR,
    KEY_PART = 32,  /* keys that are transposed at a time, a whole number of tiles */
    DIM_BLOCK = 32, /* and their dimensions */
    LINE = 16,      /* floats in a cache line */
};

/* Asks the L2 cache for a share of the columns of the first n rows: `part` of `parts`. A prefetch
 * never faults, so rows beyond the last may be asked for. Inlined always, because gcc drops calls
 * of a function that does nothing but prefetch. */
static inline __attribute__((always_inline)) void prefetch(struct rows rows, int n, int64_t part,
                                                           int64_t parts)
{
    const int64_t lines = (rows.dim + LINE - 1) / LINE;
    const int64_t share = (lines + parts - 1) / parts * LINE;
    for (int i = 0; i < n; i++)
        for (int64_t c = part * share; c < (part + 1) * share && c < rows.dim; c += LINE)
            _mm_prefetch((const char *)(row_at(rows, i) + c), _MM_HINT_T1);
}

/* acc[r][.] = chain over i < n of a[r][i] * b[i][.], going on from acc. Lines of b are `stride`
 * bytes apart; only their first `width` elements are read. */
static inline __attribute__((always_inline)) void
add_products(const float *const *a, const char *b, ptrdiff_t stride, int64_t width, int64_t n,
             __m512 acc[TILE_ROWS][TILE_VECTORS], const int rows)
{
    for (int64_t i = 0; i < n; i++) {
        const float *line = (const float *)(b + i * stride);
        __m512 x[TILE_VECTORS];
        for (int j = 0; j < TILE_VECTORS; j++)
            x[j] = load_first(line + j * VECTOR, width - j * VECTOR);
        for (int r = 0; r < rows; r++) {
            const __m512 factor = _mm512_set1_ps(a[r][i]);
            for (int j = 0; j < TILE_VECTORS; j++)
                acc[r][j] = _mm512_fmadd_ps(factor, x[j], acc[r][j]);
        }
    }
}

/* k_t[i][key] = k[key][d + i] for the dimensions of the block, as many as there are. Whole vectors
 * of keys are filled: what is missing repeats the last key. */
static void transpose_keys(struct rows k, int keys, int64_t d, float k_t[DIM_BLOCK][KEY_PART])
{
    for (int key = 0; key < keys; key += VECTOR) {
        const float *row[VECTOR];
        for (int j = 0; j < VECTOR; j++)
            row[j] = row_at(k, key + j < keys ? key + j : keys - 1) + d;
        for (int i = 0; i < DIM_BLOCK && d + i < k.dim; i += VECTOR) {
            __m512 r[VECTOR];
            for (int j = 0; j < VECTOR; j++)
                r[j] = load_first(row[j] + i, k.dim - d - i);
            transpose(r);
            for (int j = 0; j < VECTOR; j++)
                _mm512_store_ps(&k_t[i + j][key], r[j]);
        }
    }
}

/* The chains of a tile of scores go on over `dims` dimensions from d on, for `vectors` of keys. */
static inline __attribute__((always_inline)) void scores_tile(const float *const *q, int64_t d,
                                                              int64_t dims, const float *k_t,
                                                              float *s, const int rows,
                                                              const int vectors)
{
    __m512 acc[TILE_ROWS][TILE_VECTORS];
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            acc[r][j] = _mm512_load_ps(s + r * KEY_BLOCK + j * VECTOR);
    for (int64_t i = 0; i < dims; i++)
        for (int r = 0; r < rows; r++) {
            const __m512 q_d = _mm512_set1_ps(q[r][d + i]);
            for (int j = 0; j < vectors; j++)
                acc[r][j] = _mm512_fmadd_ps(q_d, _mm512_load_ps(k_t + i * KEY_PART + j * VECTOR),
                                            acc[r][j]);
        }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            _mm512_store_ps(s + r * KEY_BLOCK + j * VECTOR, acc[r][j]);
}

/* The same for up to TILE_ROWS rows and a tile of keys. */
static inline __attribute__((always_inline)) void scores_rows(int rows, const float *const *q,
                                                              int64_t d, int64_t dims,
                                                              const float *k_t, float *s,
                                                              const int vectors)
{
    switch (rows) {
    case 4:
        scores_tile(q, d, dims, k_t, s, 4, vectors);
        break;
    case 3:
        scores_tile(q, d, dims, k_t, s, 3, vectors);
        break;
    case 2:
        scores_tile(q, d, dims, k_t, s, 2, vectors);
        break;
    default:
        scores_tile(q, d, dims, k_t, s, 1, vectors);
    }
}

/* Scores of up to KEY_PART keys, from s on in each line, and something up to the end of the last
 * vector; meanwhile their V is asked for. */
static void scores_part(int rows, const float *const *q, struct rows k, struct rows v, int keys,
                        struct rows next_k, int next_keys, float *s)
{
    _Alignas(64) float k_t[DIM_BLOCK][KEY_PART];
    const int64_t dim_blocks = (k.dim + DIM_BLOCK - 1) / DIM_BLOCK;
    for (int r = 0; r < rows; r++)
        memset(s + r * KEY_BLOCK, 0, KEY_PART * sizeof *s);
    for (int64_t d = 0; d < k.dim; d += DIM_BLOCK) {
        const int64_t dims = k.dim - d < DIM_BLOCK ? k.dim - d : DIM_BLOCK;
        prefetch(v, keys, d / DIM_BLOCK, dim_blocks);
        prefetch(next_k, next_keys, d / DIM_BLOCK, dim_blocks);
        transpose_keys(k, keys, d, k_t);
        for (int r = 0; r < rows; r += TILE_ROWS) {
            const int left = rows - r < TILE_ROWS ? rows - r : TILE_ROWS;
            for (int key = 0; key < keys; key += TILE_WIDTH) {
                float *at = s + r * KEY_BLOCK + key;
                if (keys - key > VECTOR)
                    scores_rows(left, q + r, d, dims, k_t[0] + key, at, TILE_VECTORS);
                else
                    scores_rows(left, q + r, d, dims, k_t[0] + key, at, 1);
            }
        }
    }
}

/* Of `left` keys those in the next part. */
static int in_part(int left)
{
    return left < 0 ? 0 : left < KEY_PART ? left : KEY_PART;
}

static struct rows rows_from(struct rows rows, int first)
{
    return (struct rows){(const char *)row_at(rows, first), rows.stride, rows.dim};
}

/* s[r][key] for the first `keys` keys, a part at a time: its rows are walked through side by side,
 * and more of them than that are more streams than the hardware follows. */
static void scores(int rows, const float *const *q, struct rows k, struct rows v, int keys,
                   float (*s)[KEY_BLOCK])
{
    for (int key = 0; key < keys; key += KEY_PART) {
        const int next = key + KEY_PART;
        scores_part(rows, q, rows_from(k, key), rows_from(v, key), in_part(keys - key),
                    rows_from(k, next < keys ? next : key), in_part(keys - next), s[0] + key);
    }
}

/* t in place of the scores of a row, -inf from `visible` on; returns their maximum. */
static float scale(float *s, int keys, int32_t visible, float scale_log2)
{
    const __m512 factor = _mm512_set1_ps(scale_log2);
    __m512 max = minus_infinity();
    for (int key = 0; key < keys; key += VECTOR) {
        const __m512 t = _mm512_mask_mul_ps(minus_infinity(), first_mask(visible - key),
                                            _mm512_load_ps(s + key), factor);
        _mm512_store_ps(s + key, t);
        /* This order of operands drops a NaN in t. */
        max = _mm512_max_ps(t, max);
    }
    return _mm512_reduce_max_ps(max);
}

/* The weights of a row in place of t. */
static void weights(float *s, int keys, float subtrahend)
{
    for (int key = 0; key < keys; key += VECTOR) {
        const __m512 t = _mm512_load_ps(s + key);
        _mm512_store_ps(s + key, exp2_v(_mm512_sub_ps(t, _mm512_set1_ps(subtrahend))));
    }
}

/* The chain over keys of the weights of up to 16 rows, each in a lane. Weights of keys that a row
 * does not see are +0, which changes no sum. */
static __m512 weight_sums(int rows, float (*p)[KEY_BLOCK], int keys)
{
    __m512 sum = _mm512_setzero_ps();
    for (int key = 0; key < keys; key += VECTOR) {
        __m512 r[VECTOR];
        for (int i = 0; i < VECTOR; i++)
            r[i] = _mm512_load_ps(&p[i < rows ? i : 0][key]);
        transpose(r);
        for (int i = 0; i < VECTOR; i++)
            sum = _mm512_add_ps(sum, r[i]);
    }
    return sum;
}

/* Scores to weights for up to 16 rows, and M and l of their states moved on. */
static void softmax(int rows, float (*s)[KEY_BLOCK], int keys, const int32_t *visible,
                    float scale_log2, float *row_max, float *row_sum, float *rescale)
{
    float block_max[VECTOR] = {0}, subtrahend[VECTOR];
    for (int r = 0; r < rows; r++)
        block_max[r] = scale(s[r], keys, visible[r], scale_log2);
    const __m512 old_max = load_first(row_max, rows);
    const __m512 new_max = _mm512_max_ps(ceil_v(_mm512_loadu_ps(block_max)), old_max);
    _mm512_storeu_ps(subtrahend, finite_max(new_max));
    for (int r = 0; r < rows; r++)
        weights(s[r], keys, subtrahend[r]);

    const __m512 factor = exp2_v(_mm512_sub_ps(old_max, _mm512_loadu_ps(subtrahend)));
    const __m512 sum = weight_sums(rows, s, keys);
    store_first(row_max, rows, new_max);
    store_first(row_sum, rows, _mm512_fmadd_ps(load_first(row_sum, rows), factor, sum));
    store_first(rescale, rows, factor);
}

/* o = fma(o, rescale, chain over keys of p * v) for a tile of rows and the first `width` columns
 * at o and v. */
static inline __attribute__((always_inline)) void
weighted_tile(float (*p)[KEY_BLOCK], int keys, const float *rescale, const char *v,
              ptrdiff_t v_stride, float *o, int64_t o_stride, int64_t width, const int rows)
{
    const float *a[TILE_ROWS];
    __m512 acc[TILE_ROWS][TILE_VECTORS];
    for (int r = 0; r < rows; r++) {
        a[r] = p[r];
        for (int j = 0; j < TILE_VECTORS; j++)
            acc[r][j] = _mm512_setzero_ps();
    }
    add_products(a, v, v_stride, width, keys, acc, rows);
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < TILE_VECTORS; j++) {
            float *at = o + r * o_stride + j * VECTOR;
            const __m512 old = load_first(at, width - j * VECTOR);
            store_first(at, width - j * VECTOR,
                        _mm512_fmadd_ps(old, _mm512_set1_ps(rescale[r]), acc[r][j]));
        }
}

static inline __attribute__((always_inline)) void
weighted_rows(int rows, float (*p)[KEY_BLOCK], int keys, const float *rescale, const char *v,
              ptrdiff_t v_stride, float *o, int64_t o_stride, int64_t width)
{
    switch (rows) {
    case 4:
        weighted_tile(p, keys, rescale, v, v_stride, o, o_stride, width, 4);
        break;
    case 3:
        weighted_tile(p, keys, rescale, v, v_stride, o, o_stride, width, 3);
        break;
    case 2:
        weighted_tile(p, keys, rescale, v, v_stride, o, o_stride, width, 2);
        break;
    default:
        weighted_tile(p, keys, rescale, v, v_stride, o, o_stride, width, 1);
    }
}

/* How many of the next rows see as many keys as the first: a tile of them. */
static int same_visible(const int32_t *visible, int rows)
{
    int same = 1;
    while (same < rows && same < TILE_ROWS && visible[same] == visible[0])
        same++;
    return same;
}

/* The weights times V for every row, a tile of columns at a time; meanwhile the keys of the next
 * block are asked for. */
static void weighted_v(int rows, float (*p)[KEY_BLOCK], const int32_t *visible,
                       const float *rescale, struct rows v, float *o, struct rows next_k,
                       int next_keys)
{
    const int64_t tiles = (v.dim + TILE_WIDTH - 1) / TILE_WIDTH;
    for (int64_t c = 0; c < v.dim; c += TILE_WIDTH) {
        prefetch(next_k, next_keys, c / TILE_WIDTH, tiles);
        const char *columns = v.first + c * (int64_t)sizeof(float);
        for (int r = 0, same; r < rows; r += same) {
            same = same_visible(visible + r, rows - r);
            float *at = o + r * v.dim + c;
            if (visible[r] == 0)
                continue;
            if (v.dim - c >= TILE_WIDTH)
                weighted_rows(same, p + r, visible[r], rescale + r, columns, v.stride, at, v.dim,
                              TILE_WIDTH);
            else
                weighted_rows(same, p + r, visible[r], rescale + r, columns, v.stride, at, v.dim,
                              v.dim - c);
        }
    }
}

/* Where the keys of the next block would lie: an address to prefetch, perhaps of nothing. */
static struct rows next_block(struct rows k)
{
    const uintptr_t first = (uintptr_t)k.first + KEY_BLOCK * (uintptr_t)k.stride;
    return (struct rows){(const char *)first, k.stride, k.dim};
}

void attnkit_avx512_decode(int rows, const float *const *q, const int32_t *visible, struct rows k,
                           struct rows v, float scale_log2, struct state st)
{
    _Alignas(64) float s[DECODE_ROWS][KEY_BLOCK]; /* scores, then weights */
    float rescale[DECODE_ROWS];
    int keys = 0;
    for (int r = 0; r < rows; r++)
        keys = visible[r] > keys ? visible[r] : keys;
    if (keys == 0)
        return;

    scores(rows, q, k, v, keys, s);
    for (int r = 0; r < rows; r += VECTOR)
        softmax(rows - r < VECTOR ? rows - r : VECTOR, s + r, keys, visible + r, scale_log2,
                st.row_max + r, st.row_sum + r, rescale + r);
    /* Most blocks that are full have one after them. */
    const int next_keys = keys == KEY_BLOCK ? KEY_PART : 0;
    weighted_v(rows, s, visible, rescale, v, st.out, next_block(k), next_keys);
}
