/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear maps in integers: the entries of struct matrix_integer_kernels that several instruction
 * sets share. A file of an instruction set or unit defines the shapes of the register tiles and
 * the names in the list below, and then includes this header.
 *   STEP             the number of inputs in a step
 *   input            the type of the integers to which x is rounded
 *   sums_v           the integer sums of VECTOR outputs, for ROWS_OF_SUMS rows
 *   words_v          the words of STEP inputs for VECTOR outputs
 *   round_block      rounds Q8_BLOCK inputs, sets the number with which the sums over these inputs
 *                    begin, and returns the scale. Writes STEP integers every ROWS_OF_SUMS * STEP
 *                    places
 *   begin_sums       returns the sums before the first step of a block
 *   make_step        makes the words of a step from the bytes of a packed tile
 *   store_words      stores words as add_stored reads them
 *   add_products     adds the products of words and STEP inputs of ROWS_OF_SUMS rows to sums
 *   add_stored       does the work of add_products for words in memory
 *   sums_as_floats   converts the sums of one of the ROWS_OF_SUMS rows to binary32. If `packed`,
 *                    add_products has made the sums, else add_stored
 *
 * A register tile for many rows has at most ROWS x WIDTH vectors. A register tile for few rows has
 * 1 x ONE_WIDTH or at most FEW_ROWS x FEW_WIDTH vectors. FEW_MOST is the largest number of rows
 * that few_product gets. ROWS_OF_SUMS is 1 or 2. If ROWS_OF_SUMS is 2, sums begin with 0, and ROWS
 * and FEW_ROWS are 2. If the number of rows is then odd, the last sums have only one row.
 * add_products and add_stored read other bytes in place of the second row. The values of these
 * bytes do not matter.
 *
 * The integer sums of a block stay in registers. The binary32 sums of a register tile stay in
 * registers, too, if there are enough registers. After the Q8_BLOCK / STEP steps of a block, a
 * vector of sums takes a conversion, a product of scales and an FMA.
 */
#ifndef ATTNKIT_VECTORS_INTEGER_PRODUCT_H
#define ATTNKIT_VECTORS_INTEGER_PRODUCT_H

#include "kernels/integers.h"
#include "kernels/linear/ahead.h"

enum {
    STEPS = Q8_BLOCK / STEP,
    /* Offsets and sizes in bytes. A block of x has the scales of ROW_GROUP rows, the numbers with
     * which the sums of these rows begin, and the integers. A block of words has scales and then
     * words. */
    X_BEGINNINGS = ROW_GROUP * sizeof(float),
    X_INTEGERS = 2 * X_BEGINNINGS,
    X_BLOCK = X_INTEGERS + ROW_GROUP * Q8_BLOCK * sizeof(input),
    WORDS = TILE_KEYS * sizeof(float),
    WORDS_BLOCK = WORDS + STEPS * TILE_VECTORS * sizeof(words_v),
    /* A block of a tile as packed: scales of 16 bits, then bytes. */
    TILE_BYTES = TILE_KEYS * sizeof(uint16_t),
    TILE_BLOCK = TILE_KEYS * Q8_BLOCK_BYTES,
    STEP_BYTES = STEP * TILE_KEYS,
    MOST_WIDTH = 4,    /* vectors of outputs of a register tile */
    TILES_AHEAD = 384, /* bytes: few_product prefetches six cache lines ahead in each tile */
};

/* ------------------------------------------------------------------------------- x and w */

/* Returns the place of the first integer of a row in the integers of a block. */
static inline int place_of_row(int row)
{
    return row / ROWS_OF_SUMS * ROWS_OF_SUMS * Q8_BLOCK + row % ROWS_OF_SUMS * STEP;
}

static void round_rows(const float *const *x, int rows, int64_t n, void *blocks)
{
    char *block = blocks;
    for (int64_t d = 0; d < n; d += Q8_BLOCK, block += X_BLOCK) {
        float *const scale = (float *)(void *)block;
        int32_t *const beginning = (int32_t *)(void *)(block + X_BEGINNINGS);
        input *const integers = (input *)(void *)(block + X_INTEGERS);
        for (int i = 0; i < rows; i++)
            scale[i] = round_block(x[i] + d, integers + place_of_row(i), &beginning[i]);
    }
}

static void make_words(const void *tile, int64_t n, void *words)
{
    const char *from = tile;
    char *to = words;
    for (int64_t d = 0; d < n; d += Q8_BLOCK, from += TILE_BLOCK, to += WORDS_BLOCK) {
        floats scale[TILE_VECTORS];
        load_line(TYPE_F16, from, scale);
        for (int j = 0; j < TILE_VECTORS; j++)
            store_aligned((float *)(void *)to + j * VECTOR, scale[j]);
        for (int s = 0; s < STEPS; s++) {
            words_v w[TILE_VECTORS];
            make_step(from + TILE_BYTES + s * STEP_BYTES, w);
            for (int j = 0; j < TILE_VECTORS; j++)
                store_words(to + WORDS + (s * TILE_VECTORS + j) * (int)sizeof(words_v), w[j]);
        }
    }
}

/* ------------------------------------------------------------------------ register tiles */

/* The addresses from which a register tile reads. `scales` and `integers` are the addresses of the
 * scale and of the integers of the register tile's first row, in a block of the group of rows.
 * `tile` has the address of a block in each tile of the matrix that the register tile reads. */
struct reader {
    const char *scales, *integers;
    const char *tile[MOST_WIDTH];
};

/* Loads the scales of a block of each tile. The tiles are packed tiles if `packed`, else words that
 * make_words has made. */
static inline __attribute__((always_inline)) void load_tile_scales(const struct reader *r,
                                                                   floats scale[MOST_WIDTH],
                                                                   const int vectors,
                                                                   const bool packed)
{
    for (int j = 0; j < vectors; j += TILE_VECTORS)
        load_line(packed ? TYPE_F16 : TYPE_F32, r->tile[j / TILE_VECTORS], scale + j);
}

/* Makes the words of a step from packed tiles. Prefetches the bytes that lie TILES_AHEAD bytes
 * further on in these tiles. */
static inline __attribute__((always_inline)) void
make_steps(const struct reader *r, int s, words_v w[MOST_WIDTH], const int vectors)
{
    for (int j = 0; j < vectors; j += TILE_VECTORS) {
        const char *const tile = r->tile[j / TILE_VECTORS];
        for (int line = s * STEP_BYTES / CACHE_LINE; line < (s + 1) * STEP_BYTES / CACHE_LINE;
             line++)
            __builtin_prefetch(tile + line * CACHE_LINE + TILES_AHEAD, 0, 3);
        make_step(tile + TILE_BYTES + s * STEP_BYTES, w + j);
    }
}

/* Returns the stored words of a step for vector j of a register tile. */
static inline const char *stored_words(const struct reader *r, int s, int j)
{
    return r->tile[j / TILE_VECTORS] + WORDS +
           (s * TILE_VECTORS + j % TILE_VECTORS) * (int)sizeof(words_v);
}

/* Adds the products of a block to the sums of a register tile. */
static inline __attribute__((always_inline)) void add_block(const struct reader *r,
                                                            floats y[][MOST_WIDTH], const int rows,
                                                            const int vectors, const bool packed)
{
    const float *const x_scale = (const float *)(const void *)r->scales;
    const int32_t *const beginning = (const int32_t *)(const void *)(r->scales + X_BEGINNINGS);
    const input *const x = (const input *)(const void *)r->integers;
    sums_v sum[ROW_GROUP][MOST_WIDTH];
    floats scale[MOST_WIDTH];
    for (int i = 0; i < rows; i += ROWS_OF_SUMS)
        for (int j = 0; j < vectors; j++)
            sum[i][j] = begin_sums(beginning[i]);
#pragma GCC unroll 4
    for (int s = 0; s < STEPS; s++) {
        words_v w[MOST_WIDTH];
        if (packed)
            make_steps(r, s, w, vectors);
        for (int i = 0; i < rows; i += ROWS_OF_SUMS)
            for (int j = 0; j < vectors; j++) {
                const input *const x_s = x + i * Q8_BLOCK + s * STEP * ROWS_OF_SUMS;
                sum[i][j] = packed ? add_products(sum[i][j], w[j], x_s)
                                   : add_stored(sum[i][j], stored_words(r, s, j), x_s);
            }
    }
    load_tile_scales(r, scale, vectors, packed);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++) {
            const int first = i / ROWS_OF_SUMS * ROWS_OF_SUMS;
            const floats n = sums_as_floats(sum[first][j], i - first, packed);
            y[i][j] = fma_v(n, broadcast_from(x_scale + i) * scale[j], y[i][j]);
        }
}

/* The place of a register tile. `first` is the index of its first row in the product, and `lane` is
 * the index of the same row in the group of rows. `out` is its first output. */
struct product_place {
    int first, lane;
    int64_t out;
};

static inline const char *row_of(const void *y, ptrdiff_t stride, const struct product_place *at,
                                 int row)
{
    return (const char *)y + (at->first + row) * stride + at->out * (int64_t)sizeof(float);
}

static inline __attribute__((always_inline)) void begin_tile(const struct integer_product *p,
                                                             const struct product_place *at,
                                                             floats y[][MOST_WIDTH], const int rows,
                                                             const int vectors)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++) {
            const int64_t left = p->outs - at->out - j * VECTOR;
            y[i][j] = broadcast(0.0f);
            if (p->sums && left > 0)
                y[i][j] = load_first(
                    (const float *)row_of(p->sums, p->sums_stride, at, i) + j * VECTOR, left);
        }
}

static inline __attribute__((always_inline)) void end_tile(const struct integer_product *p,
                                                           const struct product_place *at,
                                                           floats y[][MOST_WIDTH], const int rows,
                                                           const int vectors)
{
    for (int j = 0; j < vectors; j++) {
        const int64_t out = at->out + j * VECTOR, left = p->outs - out;
        if (left <= 0)
            break;
        for (int i = 0; i < rows; i++) {
            if (p->bias)
                y[i][j] = y[i][j] + load_first(p->bias + out, left);
            store_first((float *)(uintptr_t)row_of(p->y, p->y_stride, at, i) + j * VECTOR, left,
                        plain_nan(y[i][j]));
        }
    }
}

/* Computes a register tile. `group` has the blocks of the group of rows. */
static inline __attribute__((always_inline)) void
product_tile(const struct integer_product *p, const char *group, const struct product_place *at,
             struct requests *requests, const int rows, const int vectors, const bool packed)
{
    const int64_t last = (p->outs - 1) / TILE_KEYS;
    floats y[ROW_GROUP][MOST_WIDTH];
    struct reader r = {
        .scales = group + at->lane * (int)sizeof(float),
        .integers = group + X_INTEGERS + place_of_row(at->lane) * (int)sizeof(input),
    };
    for (int j = 0; j < vectors; j += TILE_VECTORS) {
        const int64_t tile = (at->out + j * VECTOR) / TILE_KEYS;
        r.tile[j / TILE_VECTORS] = p->w + (tile < last ? tile : last) * p->tile_step;
    }
    begin_tile(p, at, y, rows, vectors);
    for (int64_t d = 0; d < p->dim; d += Q8_BLOCK) {
        if (!packed)
            prefetch_matrix(requests);
        add_block(&r, y, rows, vectors, packed);
        r.scales += X_BLOCK;
        r.integers += X_BLOCK;
        for (int j = 0; j < vectors; j += TILE_VECTORS)
            r.tile[j / TILE_VECTORS] += packed ? TILE_BLOCK : WORDS_BLOCK;
    }
    end_tile(p, at, y, rows, vectors);
}

/* Computes all outputs of `rows` rows. */
static inline __attribute__((always_inline)) void
product_rows(const struct integer_product *p, const char *group, struct product_place at,
             struct requests *requests, const int rows, const int vectors, const bool packed)
{
    for (at.out = 0; at.out < p->outs; at.out += vectors * VECTOR)
        product_tile(p, group, &at, requests, rows, vectors, packed);
}

/* ------------------------------------------------------------------------------- products */

static inline __attribute__((always_inline)) void many_rows(const struct integer_product *p,
                                                            const char *group,
                                                            const struct product_place *at,
                                                            struct requests *requests, int rows)
{
    if (rows == ROWS)
        product_tile(p, group, at, requests, ROWS, WIDTH, false);
    else if (ROWS > 7 && rows == 7)
        product_tile(p, group, at, requests, 7, WIDTH, false);
    else if (ROWS > 6 && rows == 6)
        product_tile(p, group, at, requests, 6, WIDTH, false);
    else if (ROWS > 5 && rows == 5)
        product_tile(p, group, at, requests, 5, WIDTH, false);
    else if (ROWS > 4 && rows == 4)
        product_tile(p, group, at, requests, 4, WIDTH, false);
    else if (ROWS > 3 && rows == 3)
        product_tile(p, group, at, requests, 3, WIDTH, false);
    else if (ROWS > 2 && rows == 2)
        product_tile(p, group, at, requests, 2, WIDTH, false);
    else
        product_tile(p, group, at, requests, 1, WIDTH, false);
}

static struct requests requests_of_product(const struct integer_product *p)
{
    int64_t row_tiles = 0;
    for (int i = 0, height; i < p->rows; i += height) {
        height = tile_height(p->rows - i, ROW_GROUP);
        row_tiles += (height - 1) / ROWS + 1;
    }
    const int64_t tiles = (p->outs - 1) / (WIDTH * VECTOR) + 1;
    return requests_of(&p->ahead, row_tiles * tiles * (p->dim / Q8_BLOCK));
}

/* The outer loop is over outputs, so that the words of a register tile stay in L1. */
static void product(const struct integer_product *p)
{
    struct requests requests = requests_of_product(p);
    for (int64_t out = 0; out < p->outs; out += WIDTH * VECTOR) {
        const char *group = p->x;
        for (int i = 0, height; i < p->rows; i += height, group += p->x_step) {
            height = tile_height(p->rows - i, ROW_GROUP);
            for (int lane = 0, rows; lane < height; lane += rows) {
                const struct product_place at = {i + lane, lane, out};
                rows = tile_height(height - lane, ROWS);
                many_rows(p, group, &at, &requests, rows);
            }
        }
    }
}

static void few_product(const struct integer_product *p)
{
    const char *group = p->x;
    for (int i = 0, height; i < p->rows; i += height, group += p->x_step) {
        height = tile_height(p->rows - i, ROW_GROUP);
        for (int lane = 0, rows; lane < height; lane += rows) {
            const struct product_place at = {i + lane, lane, 0};
            rows = tile_height(height - lane, FEW_ROWS);
            if (rows == FEW_ROWS)
                product_rows(p, group, at, NULL, FEW_ROWS, FEW_WIDTH, true);
            else if (FEW_ROWS > 3 && rows == 3)
                product_rows(p, group, at, NULL, 3, FEW_WIDTH, true);
            else if (FEW_ROWS > 2 && rows == 2)
                product_rows(p, group, at, NULL, 2, FEW_WIDTH, true);
            else
                product_rows(p, group, at, NULL, 1, ONE_WIDTH, true);
        }
    }
}

#endif
