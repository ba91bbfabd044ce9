/* SPDX-License-Identifier: Apache-2.0
 *
 * The scores of decode where K lies in tiles: t[r][key] = scale_log2 * (chain over d of q[r][d] *
 * k[key][d]). decode.c calls decode_tiled_k. The type and the number of rows are constants of the
 * inlined functions.
 *
 * Lanes are keys, in the order of memory. Element d of all keys of a tile is 4 vectors, which are
 * loaded and widened. Each vector then takes an fmla for each row. A load of q serves 4 elements.
 * For a single row and K of binary32, 2 tiles are read side by side, because 4 sums are too few to
 * hide the latency of fmla. For the other types of K, widening limits the speed. Registers: at most
 * 16 sums, 4 vectors of q, 4 of K and their scales take 28 of 32.
 */
#include "kernels/neon/decode.h"
#include "kernels/vectors/tile_reader.h"

enum {
    MAX_TILES = 2,
};

/* Makes the compiler finish the sums s before it loads the next element of the tile's keys. Without
 * this empty asm statement, compilers load further elements early, and 16 sums leave no registers
 * for these elements. */
static inline __attribute__((always_inline)) void add_first(struct tile_reader *tile,
                                                            float32x4_t s[TILE_VECTORS])
{
    __asm__("" : "+r"(tile->data), "+w"(s[0]), "+w"(s[1]), "+w"(s[2]), "+w"(s[3]));
}

/* Adds the products of the next element of q and of K to the sums s. The element of query row r is
 * lane `lane` of q_4[r]. */
static inline __attribute__((always_inline)) void
add_line(const enum type type, const float32x4_t q_4[], const int lane, struct tile_reader tile[],
         float32x4_t s[][MAX_TILES][TILE_VECTORS], const int tiles, const int rows)
{
    for (int at = 0; at < tiles; at++) {
        float32x4_t k[TILE_VECTORS];
        next_line(type, &tile[at], k);
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < TILE_VECTORS; j++)
                s[r][at][j] = fma_lane(s[r][at][j], k[j], q_4[r], lane);
        if (rows == PANEL_ROWS)
            for (int r = 0; r < rows; r++)
                add_first(&tile[at], s[r][at]);
    }
}

/* Adds the products of n elements of q and K, 4 or 1, from element d on. The function has no loop
 * over elements, because gcc would not always unroll such a loop. */
static inline __attribute__((always_inline)) void add_d(const enum type type,
                                                        const struct panel *panel, int64_t d,
                                                        const int n, struct tile_reader tile[],
                                                        float32x4_t s[][MAX_TILES][TILE_VECTORS],
                                                        const int tiles, const int rows)
{
    float32x4_t q_4[PANEL_ROWS];
    for (int r = 0; r < rows; r++)
        q_4[r] = load_first(panel->q[r] + d, n);
    add_line(type, q_4, 0, tile, s, tiles, rows);
    if (n == 1)
        return;
    add_line(type, q_4, 1, tile, s, tiles, rows);
    add_line(type, q_4, 2, tile, s, tiles, rows);
    add_line(type, q_4, 3, tile, s, tiles, rows);
}

static inline __attribute__((always_inline)) void
begin_tiles(const enum type type, const struct panel *panel, int first, struct tile_reader tile[],
            float32x4_t s[][MAX_TILES][TILE_VECTORS], const int tiles, const int rows)
{
    const struct key_rows *const k = &panel->block->k;
    for (int at = 0; at < tiles; at++) {
        tile[at] = read_tile(type, k, first + at * TILE_KEYS);
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < TILE_VECTORS; j++)
                s[r][at][j] = vdupq_n_f32(0.0f);
    }
}

/* Computes the scores of the keys of `tiles` tiles from key `first` on. */
static inline __attribute__((always_inline)) void score_tiles(const enum type type,
                                                              const struct panel *panel, int first,
                                                              struct scores *scores,
                                                              const int tiles, const int rows)
{
    const struct key_rows *const k = &panel->block->k;
    struct tile_reader tile[MAX_TILES];
    float32x4_t s[PANEL_ROWS][MAX_TILES][TILE_VECTORS];
    begin_tiles(type, panel, first, tile, s, tiles, rows);
    for (int64_t d = 0; d < k->dim;) {
        const int64_t end =
            is_scaled(type) ? d + elements_of_scale(type, k->scale_group, k->dim) : k->dim;
        for (int at = 0; at < tiles; at++)
            next_scales(type, &tile[at]);
        for (; d + 4 <= end; d += 4)
            add_d(type, panel, d, 4, tile, s, tiles, rows);
        for (; d < end; d++)
            add_d(type, panel, d, 1, tile, s, tiles, rows);
    }
    const float scale_log2 = scores->scale_log2;
    for (int at = 0; at < tiles; at++)
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < TILE_VECTORS; j++)
                store_scores(panel, r, first + at * TILE_KEYS + j * VECTOR, s[r][at][j], scale_log2,
                             scores);
}

static inline __attribute__((always_inline)) void score_keys(const enum type type,
                                                             const struct panel *panel,

                                                             struct scores *scores, const int rows)
{
    int key = 0;
    for (; type == TYPE_F32 && rows == 1 && key + TILE_KEYS < panel->most; key += 2 * TILE_KEYS)
        score_tiles(type, panel, key, scores, 2, rows);
    for (; key < panel->most; key += TILE_KEYS)
        score_tiles(type, panel, key, scores, 1, rows);
}

#include "kernels/vectors/decode/score_by_type.h"

void attnkit_neon_decode_tiled_k(const struct panel *panel, struct scores *scores)
{
    score_keys_of_any_type(panel, scores);
}
