/* SPDX-License-Identifier: Apache-2.0
 *
 * The scores of decode: s[r][key] = chain over d of fma(q[r][d], k[key][d]), for K of any type,
 * which is widened on the way. Called by decode.c.
 *
 * Lanes are keys, so that a score stays one chain over d: K is transposed in registers, 32 bytes of
 * each of 16 keys at a time, as 8 vectors of 32-bit units, which are 1, 2 or 4 elements each. This
 * takes 8 loads, 8 inserts that load, and 24 shuffles; then an element of all keys takes what
 * widens it and an FMA per row. A tile is 2 vectors of keys, because the chains of one leave the
 * FMA ports waiting, and a broadcast of q serves both. Registers: 16 units, at most 8 sums, 2
 * scales, 2 elements and a broadcast are 29 of 32 zmm.
 *
 * Few rows of binary32 are bound by memory, narrow types by shuffles and FMA together. Prefetches
 * are spread evenly, and go along each row: in bursts, or line by line down the rows, they keep the
 * loads waiting.
 *
 * A byte q of TYPE_Q8_0 becomes q * scale without a conversion: in the mantissa of a power of two,
 * as q + 128, it is x = q + c with c = 2^16 + 128 or 2^8 + 128, and x * scale - c * scale is one
 * FMA. Nothing is rounded: q * scale takes 8 + 11 bits, c * scale 10 + 11, both normal or 0. Of
 * the product it may differ in the sign of a zero, which an addition to a chain that begins at +0
 * does not keep but in a zero, and what that is does not reach a result (README.md, 3 and 11). An
 * infinite scale takes the conversion and the product; of NaN either way makes NaN.
 */
#include "decode.h"

enum {
    STEP = 32,      /* bytes of each key */
    UNITS = 8,      /* of 32 bits, in them */
    MAX_TILE = 2,   /* vectors of keys */
    MAX_BLOCKS = 4, /* of TYPE_Q8_0 whose scales are loaded together */
};

/* x[4 i + j] of 4 vectors of rows, j < 4, becomes x[4 j + i] in each 128 bits. */
static inline __attribute__((always_inline)) void transpose_4(__m512 x[4])
{
    const __m512 low_01 = _mm512_unpacklo_ps(x[0], x[1]), high_01 = _mm512_unpackhi_ps(x[0], x[1]);
    const __m512 low_23 = _mm512_unpacklo_ps(x[2], x[3]), high_23 = _mm512_unpackhi_ps(x[2], x[3]);
    x[0] = _mm512_shuffle_ps(low_01, low_23, 0x44);
    x[1] = _mm512_shuffle_ps(low_01, low_23, 0xee);
    x[2] = _mm512_shuffle_ps(high_01, high_23, 0x44);
    x[3] = _mm512_shuffle_ps(high_01, high_23, 0xee);
}

static inline __m512 permute_halves(__m512 a, __m512i indices, __m512 b)
{
    return _mm512_castsi512_ps(
        _mm512_permutex2var_epi16(_mm512_castps_si512(a), indices, _mm512_castps_si512(b)));
}

/* unit[i] = unit i of STEP bytes of VECTOR keys, `at` bytes from the beginnings of their rows; for
 * TYPE_F16 the first element of them all, then the second. */
static inline __attribute__((always_inline)) void
load_units(const enum type type, const struct key_row *key, int64_t at, __m512 unit[UNITS])
{
    __m512 x[UNITS]; /* keys 0 and 4, 1 and 5, ... 3 and 7, then 8 and 12 ... */
    for (int i = 0; i < UNITS; i++) {
        const struct key_row *const low = key + i % 4 + i / 4 * 8;
        x[i] = _mm512_insertf32x8(
            _mm512_castps256_ps512(_mm256_loadu_ps((const float *)(low[0].data + at))),
            _mm256_loadu_ps((const float *)(low[4].data + at)), 1);
    }
    transpose_4(x); /* x[i]: unit i of keys 0 .. 3, unit i + 4 of them, the same of keys 4 .. 7 */
    transpose_4(x + 4);
    const __m512i first_halves =
        _mm512_set_epi16(55, 53, 51, 49, 39, 37, 35, 33, 23, 21, 19, 17, 7, 5, 3, 1, 54, 52, 50, 48,
                         38, 36, 34, 32, 22, 20, 18, 16, 6, 4, 2, 0);
    const __m512i last_halves = _mm512_add_epi16(first_halves, _mm512_set1_epi16(8));
    for (int i = 0; i < 4; i++) {
        if (type == TYPE_F16) {
            unit[i] = permute_halves(x[i], first_halves, x[i + 4]);
            unit[i + 4] = permute_halves(x[i], last_halves, x[i + 4]);
        } else {
            unit[i] = _mm512_shuffle_f32x4(x[i], x[i + 4], 0x88);
            unit[i + 4] = _mm512_shuffle_f32x4(x[i], x[i + 4], 0xdd);
        }
    }
}

static inline short f16_at(const struct key_row *key, int64_t at)
{
    short bits;
    memcpy(&bits, key->data + at, sizeof bits);
    return bits;
}

/* What element d of VECTOR keys of TYPE_I8 is multiplied by. */
static inline __attribute__((always_inline)) __m512 scales_at(const struct key_rows *k,
                                                              const struct key_row *key, int64_t d)
{
    const int64_t at = d / k->scale_group;
    return _mm512_setr_ps(
        key[0].scales[at], key[1].scales[at], key[2].scales[at], key[3].scales[at],
        key[4].scales[at], key[5].scales[at], key[6].scales[at], key[7].scales[at],
        key[8].scales[at], key[9].scales[at], key[10].scales[at], key[11].scales[at],
        key[12].scales[at], key[13].scales[at], key[14].scales[at], key[15].scales[at]);
}

/* The scales of some blocks of the keys of a tile, as binary16. They are put together in memory:
 * what brings a half into a vector takes a port of the FMAs. */
struct block_scales {
    _Alignas(64) short of[MAX_BLOCKS][MAX_TILE * VECTOR];
};

static inline __attribute__((always_inline)) void load_scales(const struct key_row *key, int64_t d,
                                                              short of[][MAX_TILE * VECTOR],
                                                              const int keys, const int blocks)
{
    const int64_t at = bytes_of(TYPE_Q8_0, d);
    for (int i = 0; i < keys; i++)
        for (int b = 0; b < blocks; b++)
            of[b][i] = f16_at(key + i, at + b * Q8_BLOCK_BYTES);
}

/* Those of MAX_BLOCKS blocks from d on, or up to the end of the rows. */
static inline __attribute__((always_inline)) void next_scales(const struct key_row *key, int64_t d,
                                                              int64_t dim,
                                                              struct block_scales *scales,
                                                              const int keys)
{
    if (dim - d >= MAX_BLOCKS * Q8_BLOCK)
        load_scales(key, d, scales->of, keys, MAX_BLOCKS);
    else
        for (int b = 0; d < dim; b++, d += Q8_BLOCK)
            load_scales(key, d, scales->of + b, keys, 1);
}

static inline __m512 scale_vector(const short *halves)
{
    return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)halves));
}

static inline bool any_infinite(const __m512 x[], int n)
{
    __mmask16 infinite = 0;
    for (int i = 0; i < n; i++)
        infinite |= _mm512_fpclass_ps_mask(x[i], 0x18);
    return infinite != 0;
}

/* The bytes q that are bits 7 on of `bits`, as q + 128 + 2^16: the exponent is put around them. */
static inline __m512 add_2_16(__m512i bits)
{
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
        bits, _mm512_set1_epi32(0xff << 7), _mm512_set1_epi32(0x47800000 ^ 0x80 << 7), 0x6a));
}

/* The same from bit 15 on, as q + 128 + 2^8. */
static inline __m512 add_2_8(__m512i bits)
{
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
        bits, _mm512_set1_epi32(0xff << 15), _mm512_set1_epi32(0x43800000 ^ 0x80 << 15), 0x6a));
}

/* The 4 bytes of a unit times the scale, exactly. */
static inline __attribute__((always_inline)) void widen_exactly(__m512i bits, __m512 scale,
                                                                __m512 k[4])
{
    const __m512i up = _mm512_slli_epi32(bits, 7), down = _mm512_srli_epi32(bits, 9);
    const __m512 more_2_16 = _mm512_mul_ps(scale, _mm512_set1_ps(0x1p16f + 128));
    const __m512 more_2_8 = _mm512_mul_ps(scale, _mm512_set1_ps(0x1p8f + 128));
    k[0] = _mm512_fmsub_ps(add_2_16(up), scale, more_2_16);
    k[1] = _mm512_fmsub_ps(add_2_8(up), scale, more_2_8);
    k[2] = _mm512_fmsub_ps(add_2_16(down), scale, more_2_16);
    k[3] = _mm512_fmsub_ps(add_2_8(down), scale, more_2_8);
}

/* k[i] = element i of a unit of each key, i < 1, 2 or 4. TYPE_Q8_0: of scales that are not
 * infinite. */
static inline __attribute__((always_inline)) void widen_unit(const enum type type, __m512 unit,
                                                             __m512 scale, __m512 k[4])
{
    const __m512i bits = _mm512_castps_si512(unit);
    if (type == TYPE_F32) {
        k[0] = unit;
    } else if (type == TYPE_BF16) {
        k[0] = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
        k[1] = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000)));
    } else if (type == TYPE_F16) {
        k[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(bits));
        k[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(bits, 1));
    } else if (type == TYPE_Q8_0) {
        widen_exactly(bits, scale, k);
    } else {
        for (int i = 0; i < 4; i++) {
            const __m512i byte = _mm512_srai_epi32(_mm512_slli_epi32(bits, 24 - 8 * i), 24);
            k[i] = _mm512_mul_ps(_mm512_cvtepi32_ps(byte), scale);
        }
    }
}

/* Lines to be brought from the second cache to the first, where loads would wait behind those that
 * come from memory. */
struct near {
    const struct key_row *key; /* and every second one after it; or NULL */
    int64_t at;                /* in their rows */
};

static inline __attribute__((always_inline)) void bring_near(struct near near, const int vectors)
{
    for (int i = 0; near.key && i < vectors * VECTOR; i += 2)
        _mm_prefetch(near.key[i].data + near.at, _MM_HINT_T0);
}

/* Times that a step asks for V: a unit of binary32 is too little work. */
static inline int asks_of_step(const enum type type)
{
    return type == TYPE_F32 ? 1 : UNITS;
}

/* STEP bytes of each key, widened as those of type `as`. */
static inline __attribute__((always_inline)) void
add_step(const enum type type, const enum type as, const struct panel *panel,
         const struct key_row *key, __m512 s[][MAX_TILE], int64_t d, __m512 scale[],
         struct near near, struct ahead *ahead, const int vectors, const int rows)
{
    const int in_unit = type == TYPE_F32 ? 1 : type == TYPE_F16 || type == TYPE_BF16 ? 2 : 4;
    const struct key_rows *const k = &panel->block->k;
    const int64_t at = bytes_of(type, d) + (type == TYPE_Q8_0 ? 2 : 0);
    __m512 unit[MAX_TILE][UNITS];
    for (int j = 0; j < vectors; j++)
        load_units(type, key + j * VECTOR, at, unit[j]);
    bring_near(near, vectors);
    for (int i = 0; i < UNITS; i++) {
        __m512 element[MAX_TILE][4];
        if (i % (UNITS / asks_of_step(type)) == 0)
            ask_ahead(ahead);
        for (int j = 0; j < vectors; j++) {
            if (type == TYPE_I8 && i % 4 == 0 && (d + 4 * i) % k->scale_group == 0)
                scale[j] = scales_at(k, key + j * VECTOR, d + 4 * i);
            widen_unit(as, unit[j][i], scale[j], element[j]);
        }
        for (int e = 0; e < in_unit; e++)
            for (int r = 0; r < rows; r++) {
                const __m512 q = _mm512_set1_ps(panel->q[r][d + i * in_unit + e]);
                for (int j = 0; j < vectors; j++)
                    s[r][j] = _mm512_fmadd_ps(q, element[j][e], s[r][j]);
            }
    }
}

/* Not TYPE_Q8_0, whose rows are whole steps. */
static __m512 load_any(const struct key_rows *k, const struct key_row *row, int64_t d, int64_t n)
{
    switch (k->type) {
    case TYPE_F32:
        return load_as_f32(TYPE_F32, row->data, d, n);
    case TYPE_F16:
        return load_as_f32(TYPE_F16, row->data, d, n);
    case TYPE_BF16:
        return load_as_f32(TYPE_BF16, row->data, d, n);
    default:
        return _mm512_mul_ps(load_as_f32(TYPE_I8, row->data, d, n),
                             _mm512_set1_ps(row->scales[d / k->scale_group]));
    }
}

/* The chains of the tile's scores go on from d, less than STEP bytes from the end. */
static __attribute__((noinline)) void add_last_dims(const struct panel *panel, int first, int keys,
                                                    int64_t d, struct scores *scores)
{
    const struct key_rows *const k = &panel->block->k;
    for (; d < k->dim; d += VECTOR) {
        const int64_t left = k->dim - d < VECTOR ? k->dim - d : VECTOR;
        for (int key = first; key < first + keys; key += VECTOR) {
            __m512 k_t[VECTOR];
            for (int i = 0; i < VECTOR; i++)
                k_t[i] = load_any(k, k->row + key + i, d, left);
            transpose(k_t);
            for (int r = 0; r < computed_rows(panel); r++) {
                __m512 s = _mm512_load_ps(scores->s[r] + key);
                for (int i = 0; i < left; i++)
                    s = _mm512_fmadd_ps(_mm512_set1_ps(panel->q[r][d + i]), k_t[i], s);
                _mm512_store_ps(scores->s[r] + key, s);
            }
        }
    }
}

/* The blocks of TYPE_Q8_0 at d. */
static inline __attribute__((always_inline)) void
add_blocks(const struct panel *panel, const struct key_row *key, __m512 s[][MAX_TILE], int64_t d,
           struct block_scales *scales, struct near near, struct ahead *ahead, const int vectors,
           const int rows)
{
    const int block = (int)(d / Q8_BLOCK % MAX_BLOCKS);
    __m512 scale[MAX_TILE];
    if (block == 0)
        next_scales(key, d, panel->block->k.dim, scales, vectors * VECTOR);
    for (int j = 0; j < vectors; j++)
        scale[j] = scale_vector(scales->of[block] + j * VECTOR);
    if (__builtin_expect(any_infinite(scale, vectors), false))
        add_step(TYPE_Q8_0, TYPE_I8, panel, key, s, d, scale, near, ahead, vectors, rows);
    else
        add_step(TYPE_Q8_0, TYPE_Q8_0, panel, key, s, d, scale, near, ahead, vectors, rows);
}

/* Elements of STEP bytes. */
static inline int elements_of_step(const enum type type)
{
    return type == TYPE_F32 ? 8 : type == TYPE_F16 || type == TYPE_BF16 ? 16 : 32;
}

/* Types of 16 bits have twice the work for a line, and in caches lose up to 5 % by it. Bytes gain
 * nothing. */
static inline bool gains_by_near(const enum type type, const struct panel *panel)
{
    const bool half = type == TYPE_F16 || type == TYPE_BF16;
    return panel->far && (type == TYPE_F32 || (half && panel->block->large));
}

/* Two steps after d, or past the end of the rows the same of the keys from `next` on. A line is two
 * steps, so that either one takes those of half of the keys. */
static inline __attribute__((always_inline)) struct near
after_steps(const enum type type, const struct key_rows *k, const struct key_row *key,
            const struct key_row *next, int64_t d)
{
    if (!next)
        return (struct near){NULL, 0};
    const int step = elements_of_step(type), odd = d / step % 2;
    const int64_t at = bytes_of(type, d + 2 * step), bytes = bytes_of(type, k->dim);
    return at < bytes ? (struct near){key + odd, at} : (struct near){next + odd, at - bytes};
}

/* The scores of `vectors` vectors of keys from `first` on. `next` is where the next tile begins, or
 * NULL where nothing is to be brought near. */
static inline __attribute__((always_inline)) void
score_tile(const enum type type, const struct panel *panel, int first, const struct key_row *next,
           struct scores *scores, struct ahead *ahead, const int vectors, const int rows)
{
    const struct key_rows *const k = &panel->block->k;
    const struct key_row *const key = k->row + first;
    const int step = elements_of_step(type);
    struct block_scales scales;
    __m512 s[PANEL_ROWS][MAX_TILE], scale[MAX_TILE] = {0};
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            s[r][j] = _mm512_setzero_ps();
    int64_t d = 0;
    for (; d + step <= k->dim; d += step) {
        const struct near near = after_steps(type, k, key, next, d);
        if (type == TYPE_Q8_0)
            add_blocks(panel, key, s, d, &scales, near, ahead, vectors, rows);
        else
            add_step(type, type, panel, key, s, d, scale, near, ahead, vectors, rows);
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++)
            _mm512_store_ps(scores->s[r] + first + j * VECTOR, s[r][j]);
    if (d < k->dim)
        add_last_dims(panel, first, vectors * VECTOR, d, scores);
}

/* Whole tiles from the first key on; returns where they end. */
static inline __attribute__((always_inline)) int
score_tiles(const enum type type, const struct panel *panel, struct scores *scores,
            struct ahead *ahead, const bool nears, const int rows)
{
    const int keys = MAX_TILE * VECTOR; /* of a tile */
    const struct key_row *const row = panel->block->k.row;
    int key = 0;
    for (; key + VECTOR < panel->most; key += keys) {
        /* Of vectors that are there; after the last tile any will do. */
        const struct key_row *const next =
            row + (key + keys + VECTOR < panel->most ? keys : 0) + key;
        score_tile(type, panel, key, nears ? next : NULL, scores, ahead, MAX_TILE, rows);
    }
    return key;
}

static inline __attribute__((always_inline)) void
score_keys(const enum type type, const struct panel *panel, struct scores *scores, const int rows)
{
    const int64_t asks = panel->block->k.dim / elements_of_step(type) * asks_of_step(type);
    const int keys = MAX_TILE * VECTOR; /* of a tile */
    struct ahead ahead = v_ahead(panel, 1 + asks * ((panel->most + keys - 1) / keys));
    int key = 0;
    if (gains_by_near(type, panel) && panel->most > keys)
        key = score_tiles(type, panel, scores, &ahead, true, rows);
    else
        key = score_tiles(type, panel, scores, &ahead, false, rows);
    for (; key < panel->most; key += VECTOR)
        score_tile(type, panel, key, NULL, scores, &ahead, 1, rows);
}

static inline __attribute__((always_inline)) void
score_type(const enum type type, const struct panel *panel, struct scores *scores)
{
    switch (computed_rows(panel)) {
    case 1:
        score_keys(type, panel, scores, 1);
        break;
    case 2:
        score_keys(type, panel, scores, 2);
        break;
    default:
        score_keys(type, panel, scores, PANEL_ROWS);
        break;
    }
}

static __attribute__((noinline)) void score_f32(const struct panel *panel, struct scores *scores)
{
    score_type(TYPE_F32, panel, scores);
}

static __attribute__((noinline)) void score_f16(const struct panel *panel, struct scores *scores)
{
    score_type(TYPE_F16, panel, scores);
}

static __attribute__((noinline)) void score_bf16(const struct panel *panel, struct scores *scores)
{
    score_type(TYPE_BF16, panel, scores);
}

static __attribute__((noinline)) void score_i8(const struct panel *panel, struct scores *scores)
{
    score_type(TYPE_I8, panel, scores);
}

static __attribute__((noinline)) void score_q8_0(const struct panel *panel, struct scores *scores)
{
    score_type(TYPE_Q8_0, panel, scores);
}

void attnkit_avx512_decode_k(const struct panel *panel, struct scores *scores)
{
    switch (panel->block->k.type) {
    case TYPE_F32:
        score_f32(panel, scores);
        break;
    case TYPE_F16:
        score_f16(panel, scores);
        break;
    case TYPE_BF16:
        score_bf16(panel, scores);
        break;
    case TYPE_I8:
        score_i8(panel, scores);
        break;
    case TYPE_Q8_0:
        score_q8_0(panel, scores);
        break;
    }
}
