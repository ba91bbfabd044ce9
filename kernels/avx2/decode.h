/* SPDX-License-Identifier: Apache-2.0
 *
 * The structs that the parts of the decode tile share, functions that prefetch in the course of
 * other work, and the conversion of bytes with scales. decode.c calls the parts in order.
 */
#ifndef ATTNKIT_AVX2_DECODE_H
#define ATTNKIT_AVX2_DECODE_H

#include "kernels/avx2/avx2.h"
#include "kernels/vectors/decode/panel.h"

enum {
    MAX_COLUMNS = 4, /* vectors of value columns in a tile of weighted V; a tile of 4 rows has 2 */
};

/* The scores s[r][key], not yet scaled, for whole vectors of keys up to panel->most. */
struct scores {
    _Alignas(32) float s[PANEL_ROWS][KEY_BLOCK];
    float scale_log2;
};

/* Returns whether the tiles of a type can compute a block in turns. */
static inline bool takes_turns(enum type type)
{
    return type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16 || type == TYPE_Q8_0;
}

/* Rows to prefetch in the course of other work. The struct is used every few dozen cycles and has
 * to stay in registers. Therefore the struct is a local variable. A struct without rows needs no
 * special case. */
struct ahead {
    const char *const *row, *const *end; /* rows not yet begun */
    const char *at, *row_end;            /* the rest of the current row */
    int64_t bytes;                       /* bytes of each row */
    int64_t lines;                  /* cache lines for each call of prefetch_ahead; 0 if none is
                                     * left */
    int64_t times;                  /* calls of prefetch_ahead in a tile */
    int64_t lines_left, times_left; /* cache lines and calls in all tiles to come */
};

/* Spreads the prefetches of `count` rows over `tiles` tiles with `times` calls of prefetch_ahead
 * each. Rows without gaps between them count as one row. */
static inline struct ahead ask_for(const char *const *row, int count, int64_t bytes, int64_t tiles,
                                   int64_t times)
{
    const int64_t line = LINE * (int64_t)sizeof(float);
    struct ahead ahead = {.row = row,
                          .end = row + count,
                          .bytes = bytes,
                          .times = times,
                          .times_left = tiles * times};
    if (count == 0)
        return ahead;
    if (row[count - 1] == row[0] + (count - 1) * bytes) {
        ahead.end = row + 1;
        ahead.bytes = count * bytes;
    }
    ahead.lines_left = (ahead.end - row) * ((ahead.bytes + line - 1) / line);
    ahead.lines = (ahead.lines_left + ahead.times_left - 1) / ahead.times_left;
    return ahead;
}

/* Spreads the prefetches of a turn over `tiles` tiles with `times` calls of prefetch_ahead each. */
static __attribute__((noinline, unused)) struct ahead ask_in_turn(const struct turn *turn,
                                                                  int64_t tiles, int64_t times)
{
    const int64_t line = LINE * (int64_t)sizeof(float);
    const int64_t lines = turn->pieces * ((turn->piece_bytes + line - 1) / line);
    return (struct ahead){.row = turn->ahead,
                          .end = turn->ahead + turn->pieces,
                          .bytes = turn->piece_bytes,
                          .times = times,
                          .times_left = tiles * times,
                          .lines_left = lines,
                          .lines = (lines + tiles * times - 1) / (tiles * times)};
}

/* Before a tile, lowers the number of cache lines for each call by 1, if the lower number is enough
 * for all tiles to come. A low number is good, because prefetches under way delay loads from L2.
 * The number is whole, because counting fractions in each call would take time. If a tile
 * prefetches many lines in a call, one line more matters little, and the tile need not call this
 * function. */
static inline void begin_tile(struct ahead *ahead)
{
    if (ahead->lines > 0 && (ahead->lines - 1) * ahead->times_left >= ahead->lines_left)
        ahead->lines--;
    ahead->lines_left -= ahead->lines * ahead->times;
    ahead->times_left -= ahead->times;
}

/* Prefetches the next cache lines to L2. These lines may lie in several rows. */
static inline __attribute__((always_inline)) void prefetch_over_rows(struct ahead *ahead)
{
    for (int64_t i = 0; i < ahead->lines; i++) {
        if (ahead->at >= ahead->row_end) {
            if (ahead->row == ahead->end) {
                ahead->lines = 0;
                return;
            }
            ahead->at = *ahead->row++;
            ahead->row_end = ahead->at + ahead->bytes;
        }
        _mm_prefetch(ahead->at, _MM_HINT_T1);
        ahead->at += LINE * sizeof(float);
    }
}

/* Prefetches the next cache lines to L2 while rows of `type` are read. Lines beyond the memory of K
 * and V do no harm: a prefetch never faults. For TYPE_Q8_0 only the loop of prefetch_over_rows is
 * used, because the code that reads these rows leaves no registers for a second loop. The function
 * is always inlined, because gcc drops calls of a function that does nothing but prefetch. */
static inline __attribute__((always_inline)) void prefetch_ahead(struct ahead *ahead,
                                                                 const enum type type)
{
    const char *const end = ahead->at + ahead->lines * LINE * (int64_t)sizeof(float);
    if (type == TYPE_Q8_0 || end > ahead->row_end) {
        prefetch_over_rows(ahead);
        return;
    }
    for (; ahead->at != end; ahead->at += LINE * sizeof(float))
        _mm_prefetch(ahead->at, _MM_HINT_T1);
}

/* Returns the rows of V to prefetch while the scores are computed, in `tiles` tiles with `times`
 * calls of prefetch_ahead each. */
static inline struct ahead v_ahead(const struct panel *panel, int64_t tiles, int64_t times)
{
    const struct key_rows *const v = &panel->block->v;
    return ask_for(panel->block->with_k, panel->far ? panel->most : 0, bytes_of(v->type, v->dim),
                   tiles, times);
}

/* An addition of integers turns VECTOR adjacent bytes into the floats byte + LARGE. For TYPE_Q8_0,
 * a multiply-add with the scale then subtracts LARGE * scale. LARGE * scale is exact if the scale
 * is finite, because LARGE has 2 significant bits and the scale has 11. The sign of a zero is lost,
 * but no result depends on this sign. A conversion would take a port that multiplies. The addition
 * takes a different port. */
#define LARGE 0x1.8p23f

static inline __m256 add_large(const char *bytes)
{
    const __m256i x = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)bytes));
    return _mm256_castsi256_ps(_mm256_add_epi32(x, _mm256_castps_si256(_mm256_set1_ps(LARGE))));
}

/* Returns VECTOR bytes as floats; j is the index of the vector. Vectors with even j are converted,
 * which takes an FMA port. For vectors with odd j, LARGE is added and subtracted, which takes other
 * ports. So all ports are equally busy. */
static inline __attribute__((always_inline)) __m256 load_bytes(const char *bytes, const int j)
{
    return j % 2 == 0 ? load_as_f32(TYPE_I8, bytes, 0, VECTOR)
                      : _mm256_sub_ps(add_large(bytes), _mm256_set1_ps(LARGE));
}

/* Returns a vector whose first 16 bits are the scale of a block of TYPE_Q8_0. The next 16 bits are
 * two elements of the block. A load and a move run on more ports than an insertion into a
 * vector. */
static inline __m128i scale_bits(const char *block)
{
    int bits;
    memcpy(&bits, block, sizeof bits);
    return _mm_cvtsi32_si128(bits);
}

static inline __m128i two_scales(const char *const *key, int64_t at)
{
    return _mm_unpacklo_epi16(scale_bits(key[0] + at), scale_bits(key[1] + at));
}

static inline __m128i four_scales(const char *const *key, int64_t at)
{
    return _mm_unpacklo_epi32(two_scales(key, at), two_scales(key + 2, at));
}

/* Returns the scales of element d of VECTOR rows. */
static inline __attribute__((always_inline)) __m256
scales_at(const enum type type, const struct key_rows *rows, const char *const *key, int64_t d)
{
    if (type == TYPE_Q8_0) {
        const int64_t at = bytes_of(type, d);
        return _mm256_cvtph_ps(_mm_unpacklo_epi64(four_scales(key, at), four_scales(key + 4, at)));
    }
    const int64_t at = d / rows->scale_group;
    const float *const *const scales = rows->scales + (key - rows->row);
    return _mm256_setr_ps(scales[0][at], scales[1][at], scales[2][at], scales[3][at], scales[4][at],
                          scales[5][at], scales[6][at], scales[7][at]);
}

/* Returns n <= VECTOR elements of a row from element d on, with zeros after them. For TYPE_Q8_0 the
 * elements are in one block. For TYPE_I8 the elements share a scale. */
static inline __attribute__((always_inline)) __m256
load_part(const struct key_rows *rows, const char *const *row, int64_t d, int64_t n)
{
    switch (rows->type) {
    case TYPE_F32:
        return load_as_f32(TYPE_F32, *row, d, n);
    case TYPE_F16:
        return load_as_f32(TYPE_F16, *row, d, n);
    case TYPE_BF16:
        return load_as_f32(TYPE_BF16, *row, d, n);
    case TYPE_Q8_0: {
        const int64_t in_block = d % Q8_BLOCK, block = bytes_of(TYPE_Q8_0, d - in_block);
        const __m256 scale = _mm256_cvtph_ps(_mm_broadcastw_epi16(scale_bits(*row + block)));
        return _mm256_mul_ps(load_as_f32(TYPE_I8, *row + block + 2, in_block, n), scale);
    }
    default:
        return _mm256_mul_ps(load_as_f32(TYPE_I8, *row, d, n),
                             _mm256_set1_ps(scales_of_row(rows, row)[d / rows->scale_group]));
    }
}

static inline bool is_finite(__m256 x)
{
    const __m256 none = _mm256_sub_ps(x, x);
    return _mm256_movemask_ps(_mm256_cmp_ps(none, none, _CMP_UNORD_Q)) == 0;
}

void attnkit_avx2_decode_tiled_k(const struct panel *panel, struct scores *scores);
void attnkit_avx2_decode_k(const struct panel *panel, struct scores *scores);
void attnkit_avx2_decode_v(const struct panel *panel, const struct weights *weights);
void attnkit_avx2_decode_v_turn(const struct panel *panel, const struct weights *weights);

#endif
