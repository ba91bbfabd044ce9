/* SPDX-License-Identifier: Apache-2.0
 *
 * y[i][o] = chain over d of x[i][d] * w[d][o], then + bias[o]: lanes are outputs, x is broadcast
 * from where it lies. linear.c calls it for every panel of outputs and cut of the inputs.
 *
 * Tile of 6 rows x 2 vectors, a tile of the matrix: 12 accumulators, 2 of w and 1 broadcast are 15
 * of 16 ymm. Per d it has 12 FMA, bound by the FMA ports at 6 cycles, and 8 loads. A product of few
 * rows reads each tile once, as fast as memory gives it.
 */
#include "avx2.h"

enum {
    ROWS = 6,      /* of a register tile */
    PACE = 32,     /* inputs after which more of what is ahead is asked for */
    FEW_ROWS = 4,  /* of one of few rows */
    FEW_TILES = 4, /* tiles of the matrix that one row reads side by side */
    AHEAD = 2048,  /* bytes by which few rows are ahead of a tile where few are side by side */
};

static inline __m256 with_bias(__m256 y, const float *bias, int64_t out, int64_t outs)
{
    return bias ? _mm256_add_ps(y, load_first(bias + out, outs - out)) : y;
}

/* The chains as they stand before this part, of all outputs of a tile or of the first `outs`. */
static inline __attribute__((always_inline)) void load_sums(const struct product *p, int first,
                                                            int64_t out, int64_t outs,
                                                            const int rows,
                                                            __m256 acc[ROWS][TILE_VECTORS])
{
    const char *sums = (const char *)(p->sums + out) + first * p->sums_stride;
    for (int i = 0; i < rows; i++, sums += p->sums_stride)
        for (int j = 0; j < TILE_VECTORS; j++)
            acc[i][j] = load_first((const float *)sums + j * VECTOR, outs - j * VECTOR);
}

static inline __attribute__((always_inline)) void
add_bias(const float *bias, int64_t outs, const int rows, __m256 acc[ROWS][TILE_VECTORS])
{
    for (int j = 0; j < TILE_VECTORS; j++) {
        const __m256 b = load_first(bias + j * VECTOR, outs - j * VECTOR);
        for (int i = 0; i < rows; i++)
            acc[i][j] = _mm256_add_ps(acc[i][j], b);
    }
}

static inline __attribute__((always_inline)) void store_y(const struct product *p, int first,
                                                          int64_t out, int64_t outs, const int rows,
                                                          __m256 acc[ROWS][TILE_VECTORS])
{
    char *y = (char *)(p->y + out) + first * p->y_stride;
    for (int i = 0; i < rows; i++, y += p->y_stride)
        for (int j = 0; j < TILE_VECTORS; j++)
            store_first((float *)y + j * VECTOR, outs - j * VECTOR, acc[i][j]);
}

/* Asks the L2 cache for the part of what is ahead of this tile that falls to inputs d .. end - 1 of
 * a tile of rows: at the pace of the work, or requests would wait for each other. */
static inline __attribute__((always_inline)) void prefetch_ahead(const struct product *p, int first,
                                                                 int64_t out, int64_t d,
                                                                 int64_t end, const int rows)
{
    const int64_t line = LINE * (int64_t)sizeof(float), done = first * p->x.dim;
    const double pace = (double)p->ahead.dim / (double)(p->rows * p->x.dim);
    const char *const tile = p->ahead.first + out / TILE_KEYS * p->ahead.stride;
    int64_t c = (int64_t)(pace * (double)(done + rows * d)) / line * line;
    for (; c < (int64_t)(pace * (double)(done + rows * end)); c += line)
        _mm_prefetch(tile + c, _MM_HINT_T1);
}

/* Rows `first` on, and the first `outs` outputs of the matrix's tile of output `out`. */
static inline __attribute__((always_inline)) void
product_tile(const struct product *p, int first, int64_t out, int64_t outs, const int rows)
{
    __m256 acc[ROWS][TILE_VECTORS];
    const float *x[ROWS];
    const float *w = (const float *)((const char *)p->w + out / TILE_KEYS * p->tile_step);
    for (int i = 0; i < rows; i++) {
        x[i] = row_at(p->x, first + i);
        for (int j = 0; j < TILE_VECTORS; j++)
            acc[i][j] = _mm256_setzero_ps();
    }
    if (p->sums)
        load_sums(p, first, out, outs, rows, acc);
    for (int64_t d = 0, end; d < p->x.dim; d = end) {
        end = p->x.dim - d < PACE ? p->x.dim : d + PACE;
        prefetch_ahead(p, first, out, d, end, rows);
        for (int64_t e = d; e < end; e++, w += TILE_KEYS) {
            __m256 w_d[TILE_VECTORS];
            for (int j = 0; j < TILE_VECTORS; j++)
                w_d[j] = _mm256_load_ps(w + j * VECTOR);
            for (int i = 0; i < rows; i++) {
                const __m256 x_d = _mm256_broadcast_ss(x[i] + e);
                for (int j = 0; j < TILE_VECTORS; j++)
                    acc[i][j] = _mm256_fmadd_ps(x_d, w_d[j], acc[i][j]);
            }
        }
    }
    if (p->bias)
        add_bias(p->bias + out, outs, rows, acc);
    store_y(p, first, out, outs, rows, acc);
}

/* Rows `first` on, which stay in the L1 cache, and all outputs. */
static inline __attribute__((always_inline)) void product_rows(const struct product *p, int first,
                                                               const int rows)
{
    int64_t out = 0;
    for (; p->outs - out >= TILE_KEYS; out += TILE_KEYS)
        product_tile(p, first, out, TILE_KEYS, rows);
    if (out < p->outs)
        product_tile(p, first, out, p->outs - out, rows);
}

void attnkit_avx2_product(const struct product *p)
{
    int rows;
    for (int i = 0; i < p->rows; i += rows) {
        rows = tile_height(p->rows - i, ROWS);
        switch (rows) {
        case 6:
            product_rows(p, i, 6);
            break;
        case 5:
            product_rows(p, i, 5);
            break;
        case 4:
            product_rows(p, i, 4);
            break;
        case 3:
            product_rows(p, i, 3);
            break;
        case 2:
            product_rows(p, i, 2);
            break;
        default:
            product_rows(p, i, 1);
        }
    }
}

/* -------------------------------------------------------------------------------- few rows */

/* Where the next inputs of a tile are. */
struct reader {
    const char *w;
    __m256 scale[TILE_VECTORS]; /* of TYPE_Q8_0 */
};

/* Inputs after which a tile has other scales, or all `dim` of them. */
static inline int64_t block_inputs(const enum type type, int64_t dim)
{
    return type == TYPE_Q8_0 ? Q8_BLOCK : dim;
}

static inline __attribute__((always_inline)) void begin_block(const enum type type,
                                                              struct reader *r)
{
    if (type != TYPE_Q8_0)
        return;
    for (int j = 0; j < TILE_VECTORS; j++)
        r->scale[j] = load_as_f32(TYPE_F16, r->w, j * VECTOR, VECTOR);
    r->w += bytes_of(TYPE_F16, TILE_KEYS);
}

/* Of the elements of a block. */
static inline enum type stored_type(const enum type type)
{
    return type == TYPE_Q8_0 ? TYPE_I8 : type;
}

static inline __attribute__((always_inline)) void next_input(const enum type type, struct reader *r,
                                                             __m256 w[TILE_VECTORS])
{
    const enum type stored = stored_type(type);
    for (int j = 0; j < TILE_VECTORS; j++) {
        w[j] = load_as_f32(stored, r->w, j * VECTOR, VECTOR);
        if (type == TYPE_Q8_0)
            w[j] = _mm256_mul_ps(w[j], r->scale[j]);
    }
    r->w += bytes_of(stored, TILE_KEYS);
}

/* `tiles` tiles from that of output `out` on, or those that there are of them. */
static inline __attribute__((always_inline)) void few_tiles(const enum type type,
                                                            const struct few_product *p,
                                                            int64_t out, int first, const int rows,
                                                            const int tiles)
{
    const int64_t step = bytes_of(type, p->dim) * TILE_KEYS, last = (p->outs - 1) / TILE_KEYS;
    struct reader reader[FEW_TILES];
    __m256 acc[FEW_TILES][FEW_ROWS][TILE_VECTORS];
    const float *x[FEW_ROWS];
    for (int i = 0; i < rows; i++)
        x[i] = p->x[first + i];
    for (int t = 0; t < tiles; t++) {
        const int64_t tile = out / TILE_KEYS + t;
        reader[t] = (struct reader){.w = p->w + (tile < last ? tile : last) * step};
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < TILE_VECTORS; j++)
                acc[t][i][j] = _mm256_setzero_ps();
    }
    const int64_t block = block_inputs(type, p->dim);
    /* Tiles that take no more than a line an input are too slow for memory unless they ask. */
    const bool asks =
        tiles * bytes_of(stored_type(type), TILE_KEYS) <= LINE * (int64_t)sizeof(float);
    for (int64_t begin = 0; begin < p->dim; begin += block) {
        for (int t = 0; t < tiles; t++)
            begin_block(type, &reader[t]);
        for (int64_t d = begin; d < begin + block; d++)
            for (int t = 0; t < tiles; t++) {
                __m256 w[TILE_VECTORS];
                next_input(type, &reader[t], w);
                if (asks)
                    _mm_prefetch(reader[t].w + AHEAD, _MM_HINT_T0);
                for (int i = 0; i < rows; i++)
                    for (int j = 0; j < TILE_VECTORS; j++)
                        acc[t][i][j] =
                            _mm256_fmadd_ps(_mm256_broadcast_ss(x[i] + d), w[j], acc[t][i][j]);
            }
    }
    for (int t = 0; t < tiles; t++)
        for (int j = 0; j < TILE_VECTORS; j++) {
            const int64_t o = out + t * TILE_KEYS + j * VECTOR;
            for (int i = 0; i < rows && o < p->outs; i++)
                store_first(p->y[first + i] + o, p->outs - o,
                            with_bias(acc[t][i][j], p->bias, o, p->outs));
        }
}

/* Rows `first` on. */
static inline __attribute__((always_inline)) void few_rows(const enum type type,
                                                           const struct few_product *p, int first,
                                                           const int rows, const int tiles)
{
    for (int64_t out = 0; out < p->outs; out += tiles * TILE_KEYS)
        few_tiles(type, p, out, first, rows, tiles);
}

static inline __attribute__((always_inline)) void few(const enum type type,
                                                      const struct few_product *p)
{
    int rows;
    for (int i = 0; i < p->rows; i += rows) {
        rows = tile_height(p->rows - i, FEW_ROWS);
        switch (rows) {
        case 4:
            few_rows(type, p, i, 4, 1);
            break;
        case 3:
            few_rows(type, p, i, 3, 1);
            break;
        case 2:
            few_rows(type, p, i, 2, 2);
            break;
        default:
            few_rows(type, p, i, 1, FEW_TILES);
        }
    }
}

void attnkit_avx2_few_product(const struct few_product *p)
{
    switch (p->type) {
    case TYPE_F16:
        few(TYPE_F16, p);
        break;
    case TYPE_BF16:
        few(TYPE_BF16, p);
        break;
    case TYPE_Q8_0:
        few(TYPE_Q8_0, p);
        break;
    default:
        few(TYPE_F32, p);
    }
}

void attnkit_avx2_widen_matrix(enum type type, const void *tile, int64_t n, float *out)
{
    struct reader reader = {.w = tile};
    __m256 w[TILE_VECTORS];
    if (type != TYPE_Q8_0) {
        attnkit_avx2_widen(type, tile, NULL, 0, n * TILE_KEYS, out);
        return;
    }
    for (int64_t d = 0; d < n; d++) {
        if (d % Q8_BLOCK == 0)
            begin_block(TYPE_Q8_0, &reader);
        next_input(TYPE_Q8_0, &reader, w);
        for (int j = 0; j < TILE_VECTORS; j++)
            _mm256_storeu_ps(out + d * TILE_KEYS + j * VECTOR, w[j]);
    }
}
