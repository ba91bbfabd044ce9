/* SPDX-License-Identifier: Apache-2.0
 *
 * The scores of decode where K lies in tiles: s[r][key] = chain over d of q[r][d] * k[key][d].
 * decode.c of this folder calls decode_tiled_k.
 *
 * Lanes are keys, in the order of memory. Element d of all keys of a tile takes one load, the
 * instructions that widen the elements, and an FMA for each row. Up to 4 tiles are read side by
 * side. Registers: at most 16 sums, 4 vectors of K, their scales and a broadcast take 25 of 32 zmm.
 * FMA or memory limits the speed. A quantised element takes one more multiplication, by its scale.
 */
#include "kernels/avx512/decode.h"

enum {
    STEP = 8,        /* elements of a row between prefetches */
    MAX_VECTORS = 4, /* most vectors of keys in a tile of scores */
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

/* Loads the scales that the keys of `vectors` vectors have for the next group of elements. Moves
 * the addresses in `tile` to what follows these scales. */
static inline __attribute__((always_inline)) void
next_scales(const enum type type, struct k_tile tile[], __m512 scale[], const int vectors)
{
    const enum type scale_type = type == TYPE_I8 ? TYPE_F32 : TYPE_F16;
    for (int j = 0; j < vectors; j++) {
        const struct k_tile *const t = tile + j / TILE_VECTORS;
        scale[j] = load_as_f32(scale_type, type == TYPE_I8 ? t->scales : t->k,
                               j % TILE_VECTORS * VECTOR, VECTOR);
    }
    for (int i = 0; i < vectors / TILE_VECTORS; i++)
        if (type == TYPE_I8)
            tile[i].scales += TILE_KEYS * sizeof(float);
        else
            tile[i].k += bytes_of(scale_type, TILE_KEYS);
}

/* Adds the products of element d of all keys. Moves the addresses in `tile` to the next element. */
static inline __attribute__((always_inline)) void
add_element(const enum type type, const float *const q[], int64_t d, struct k_tile tile[],
            const __m512 scale[], __m512 s[][MAX_VECTORS], const int vectors, const int rows)
{
    const bool scaled = type == TYPE_I8 || type == TYPE_Q8_0;
    const enum type stored = type == TYPE_Q8_0 ? TYPE_I8 : type;
    __m512 k[MAX_VECTORS];
    for (int j = 0; j < vectors; j++) {
        k[j] = load_as_f32(stored, tile[j / TILE_VECTORS].k, j % TILE_VECTORS * VECTOR, VECTOR);
        if (scaled)
            k[j] = _mm512_mul_ps(k[j], scale[j]);
    }
    for (int i = 0; i < vectors / TILE_VECTORS; i++)
        tile[i].k += bytes_of(stored, TILE_KEYS);
    for (int r = 0; r < rows; r++) {
        const __m512 q_d = _mm512_set1_ps(q[r][d]);
        for (int j = 0; j < vectors; j++)
            s[r][j] = _mm512_fmadd_ps(q_d, k[j], s[r][j]);
    }
}

/* Computes the scores of `vectors` vectors of keys from `first` on. */
static inline __attribute__((always_inline)) void
score_tiles(const enum type type, const struct panel *panel, int first, struct scores *scores,
            struct ahead *ahead, const int vectors, const int rows)
{
    const struct key_rows *const k = &panel->block->k;
    const int64_t group = type == TYPE_I8     ? k->scale_group
                          : type == TYPE_Q8_0 ? (int64_t)Q8_BLOCK
                                              : k->dim;
    struct k_tile tile[MAX_VECTORS / TILE_VECTORS];
    find_tiles(type, panel, first, tile, vectors / TILE_VECTORS);
    __m512 s[PANEL_ROWS][MAX_VECTORS], scale[MAX_VECTORS];
    for (int j = 0; j < vectors; j++) {
        scale[j] = _mm512_setzero_ps();
        for (int r = 0; r < rows; r++)
            s[r][j] = _mm512_setzero_ps();
    }
    for (int64_t d = 0; d < k->dim;) {
        const int64_t end = d + group;
        if (type == TYPE_I8 || type == TYPE_Q8_0)
            next_scales(type, tile, scale, vectors);
        for (; d + STEP <= end; d += STEP) {
            prefetch_ahead(ahead, false);
            for (int i = 0; i < STEP; i++)
                add_element(type, panel->q, d + i, tile, scale, s, vectors, rows);
        }
        for (; d < end; d++)
            add_element(type, panel->q, d, tile, scale, s, vectors, rows);
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            _mm512_store_ps(scores->s[r] + first + j * VECTOR, s[r][j]);
}

static inline __attribute__((always_inline)) void
score_keys(const enum type type, const struct panel *panel, struct scores *scores, const int rows)
{
    /* Elements of 16 bits come from memory faster if only 2 tiles are read at a time. With 3 or 4
     * rows, 2 tiles have enough sums to keep the FMA ports busy. */
    const int vectors = rows > 2 && (type == TYPE_F16 || type == TYPE_BF16) ? 2 : MAX_VECTORS;
    const int most_keys = vectors * VECTOR;
    const int64_t steps = (panel->block->k.dim + STEP - 1) / STEP;
    struct ahead ahead = v_ahead(panel, steps * ((panel->most + most_keys - 1) / most_keys));
    int key = 0;
    for (; key + most_keys - TILE_KEYS < panel->most; key += most_keys)
        score_tiles(type, panel, key, scores, &ahead, vectors, rows);
    for (; key < panel->most; key += TILE_KEYS)
        score_tiles(type, panel, key, scores, &ahead, TILE_VECTORS, rows);
    scores->v = ahead;
}

#include "kernels/vectors/decode/score_by_type.h"

void attnkit_avx512_decode_tiled_k(const struct panel *panel, struct scores *scores)
{
    score_keys_of_any_type(panel, scores);
}
