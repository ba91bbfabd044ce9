/* SPDX-License-Identifier: Apache-2.0
 *
 * The contract between the loops (in attention/, cache/ and linear/ of this folder) and the tiles
 * of an instruction set: one struct of function pointers, complete for every instruction set, whose
 * entries each do a tile's worth of work. README.md in this folder has the canonical order of
 * roundings that every entry keeps; "chain" below is its word for an accumulation that starts at +0
 * and takes its terms one by one in index order.
 */
#ifndef ATTNKIT_KERNELS_H
#define ATTNKIT_KERNELS_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "The order of every rounding is part of the format: build without -ffast-math and -Ofast"
#endif
_Static_assert(FLT_EVAL_METHOD == 0, "binary32 arithmetic must round to binary32");
_Static_assert(sizeof(size_t) == 8, "sizes and strides are checked for 64 bits");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format's bytes are little-endian");

enum {
    KEY_BLOCK = 128,      /* keys whose weights are summed in one chain; part of the format */
    CHUNK_KEYS = 512,     /* keys after which a state starts afresh; part of the format */
    MAX_LANES = 64,       /* most query rows in a panel */
    MAX_VECTOR = 16,      /* most lanes in a vector; at least 4 */
    MAX_DECODE_ROWS = 16, /* most query rows in a decode tile */
    TILE_KEYS = 16,       /* keys of a tile of K, where it is stored in tiles */
    FEW_KEYS = 12,        /* most keys of a head that shares its vectors with others */
    MAX_MATRIX_ROWS = 16, /* most rows of x in a product straight from tiles of any type */
    ROW_GROUP = 8,        /* most rows of x that lie together in any other product */
};

/* The type of the elements of a row. The values are those of attnkit_type. */
enum type {
    TYPE_F32,
    TYPE_F16,
    TYPE_BF16,
    TYPE_I8,
    TYPE_Q8_0,
    TYPE_Q4_0,
    TYPE_Q4_1,
    TYPE_Q5_0,
    TYPE_Q5_1,
    TYPE_IQ4_NL,
    TYPE_Q1_0,
    TYPE_Q2_0,
    TYPE_F8_E4M3,
    TYPE_COUNT,
};

/* A TYPE_Q8_0 row is blocks of a binary16 scale and Q8_BLOCK signed bytes, without padding. */
enum { Q8_BLOCK = 32, Q8_BLOCK_BYTES = 2 + Q8_BLOCK };

/* Elements are stored in blocks, of which a row is a whole number: of more than one element where
 * the block has a scale. */
struct block_layout {
    unsigned char log2_elements, bytes;
};

static const struct block_layout block_layouts[TYPE_COUNT] = {
    [TYPE_F32] = {0, 4},
    [TYPE_F16] = {0, 2},
    [TYPE_BF16] = {0, 2},
    [TYPE_I8] = {0, 1},
    [TYPE_Q8_0] = {5, Q8_BLOCK_BYTES},
    [TYPE_Q4_0] = {5, 18},
    [TYPE_Q4_1] = {5, 20},
    [TYPE_Q5_0] = {5, 22},
    [TYPE_Q5_1] = {5, 24},
    [TYPE_IQ4_NL] = {5, 18},
    [TYPE_Q1_0] = {7, 18},
    [TYPE_Q2_0] = {6, 18},
    [TYPE_F8_E4M3] = {0, 1},
};

static inline int64_t block_elements(enum type type)
{
    return INT64_C(1) << block_layouts[type].log2_elements;
}

static inline int64_t block_bytes(enum type type)
{
    return block_layouts[type].bytes;
}

/* Bytes of n >= 0 elements that lie together, those of whole blocks. */
static inline int64_t bytes_of(enum type type, int64_t n)
{
    return (n >> block_layouts[type].log2_elements) * block_bytes(type);
}

/* Whether a row has binary32 scales elsewhere, one for each group of its elements. */
static inline bool has_scales(enum type type)
{
    return type == TYPE_I8 || type == TYPE_F8_E4M3;
}

/* Whether rows of K and V are all that is stored as this type, and are read by `widen` and `unpack`
 * alone: there are no tiles of it and no matrices, and decode tiles get another type. */
static inline bool is_only_widened(enum type type)
{
    return type >= TYPE_Q4_0;
}

/* Whether its blocks are those of TYPE_Q8_0 but for fewer bits, and more elements to a scale. */
static inline bool is_unpacked(enum type type)
{
    return type == TYPE_Q4_0 || type == TYPE_Q5_0 || type == TYPE_IQ4_NL || type == TYPE_Q1_0 ||
           type == TYPE_Q2_0;
}

/* The softmax state of some query rows over some keys: M, l and o of the canonical order.
 * Rows lie across the lanes of a panel in prefill: out[value_dim][lanes], all three aligned to a
 * vector. In decode every row has its own line: out[rows][value_dim], aligned to a float, and
 * row_max and row_sum have room for MAX_DECODE_ROWS, so that whole vectors of them can be used. */
struct state {
    float *row_max; /* M, an integer value or -inf */
    float *row_sum; /* l */
    float *out;     /* o, not yet divided by l */
};

/* The same over several chunks, where l and o are binary64: the products of a chunk's binary32
 * numbers and powers of two are exact, and no sum of them overflows. Rows of a panel lie across its
 * lanes as above. */
struct total {
    float *row_max;
    double *row_sum;
    double *out;
};

/* A run of rows in memory, `stride` bytes apart, `dim` adjacent elements each: K or V of a block.
 */
struct rows {
    const char *first;
    ptrdiff_t stride;
    int64_t dim;
};

/* A row of K or V, and its scales if it has any. */
struct key_row {
    const char *data;
    const float *scales;
};

/* K or V of a block as they are stored, anywhere: row[i] is the row of key i, and scales[i] are its
 * scales, of TYPE_I8; other types have none, and scales is NULL. From the last key that a query row
 * sees to the end of its vector of MAX_VECTOR keys, entries repeat it. Two lists, because most
 * types need one, and filling it takes time in a decoding step.
 *
 * Tiled K has TILE_KEYS keys in a tile, all elements 0 of them first, then all elements 1 ...:
 * element d of key i is at d * TILE_KEYS + i, and so is scale d / scale_group in the scales of the
 * tile. TYPE_Q8_0: for each Q8_BLOCK of d TILE_KEYS scales, then the bytes in that order. All of a
 * tile can be read. Its keys have the sixteenths of it as their rows, so that row[i] is the tile's
 * beginning where i is a multiple of TILE_KEYS, and all rows together are all of its bytes. */
struct key_rows {
    enum type type; /* none that is_only_widened */
    bool tiled;
    int64_t dim;
    int64_t scale_group; /* TYPE_I8: a multiple of MAX_VECTOR, or dim; tiled: any */
    const char *const *row;
    const float *const *scales;
};

/* Whether rows share one or two sets of L1, because they lie a multiple of 2 KB apart, as those of
 * a head in token-major order may. L1 then loses a line of a row before all steps through it are
 * done. */
static inline bool share_sets(const char *const *row)
{
    enum { APART = 2048 };
    return row[1] != row[0] && (uintptr_t)(row[1] - row[0]) % APART == 0;
}

/* The scales of one of these rows, of TYPE_I8. */
static inline const float *scales_of_row(const struct key_rows *rows, const char *const *row)
{
    return rows->scales[row - rows->row];
}

/* How scores become t where it takes more than a factor: x = s, or tanh(s * to_cap) where they are
 * capped; t = fma(x, factor, bias), or x * factor without a bias; and -inf where bias is -inf,
 * whatever s is. */
struct adjust {
    bool capped;
    float to_cap, factor;
};

/* The numbers that are added to the scores of a query row in a block of keys. For key i the number
 * is max(f32(number i * unit), least)       where there are numbers, of the caller; NaN stays NaN
 *   + f32(slope * f32(distance + i))       where there is a slope; the sum is at least -FLT_MAX
 * with every operation rounded, starting at +0 where there are no numbers; and -inf where the key
 * is not seen. */
struct bias_line {
    enum type type;      /* TYPE_F32, TYPE_F16 or TYPE_BF16 */
    const void *numbers; /* or NULL */
    int count;           /* of them, for the first keys; no key behind them is seen */
    float unit;          /* with the factor of the head in it; any number */
    float least;         /* finite */
    bool sloped;
    float slope;
    int64_t distance;              /* of key 0; a sum that leaves 64 bits is its end of the range */
    uint64_t seen[KEY_BLOCK / 64]; /* bit i for key i */
};

#define BIAS_FLOOR (-0x1p126f) /* least bias; in log2 it still is a number */

/* Whether all distances of a line are numbers of 32 bits, whose conversion any vector has. */
static inline bool has_near_keys(const struct bias_line *what)
{
    return what->distance >= INT32_MIN && what->distance <= INT32_MAX - KEY_BLOCK;
}

/* f32(distance + i), for any distance. */
static inline float key_distance(const struct bias_line *what, int i)
{
    int64_t sum;
    return (float)(__builtin_add_overflow(what->distance, (int64_t)i, &sum) ? INT64_MAX : sum);
}

/* The factors by which dropout multiplies the weights of a query row in a block of keys: 0 where
 * the word of a key is less than `dropped`, else `factor`. The words of four keys are what
 * Philox4x32-10 makes of a counter, with the halves of the seed as its key, the lower first. For
 * keys j to j + 3 that is low 32 bits of j / 4, low 32 bits of the position, head, bits 32 - 47 of
 * j / 4 and, shifted up by 16, of the position. */
struct keep_line {
    uint64_t seed, position;
    uint64_t first_key; /* its absolute index, a multiple of KEY_BLOCK */
    uint64_t dropped;   /* 1 .. 2^32 */
    uint32_t head;
    float factor;
};

/* A block of keys for some query rows of a KV head, of which row r sees the first visible[r] keys
 * and touches no other. At least one row sees a key. */
struct decode_block {
    const float *const *q;
    const int32_t *visible;
    struct key_rows k, v;
    const struct state *st;
    /* NULL, or what makes t of s in the place of scale_log2, with a line of KEY_BLOCK floats for
     * each row, or NULL for no bias. Where it is -inf the weight is 0, but the row of V is read. */
    const struct adjust *adjust;
    const float *const *bias;
    /* Such lines of factors that weights are multiplied by once they have been summed, or NULL. */
    const float *const *keep;
    /* Hints. Where K and V are far, the tile prefetches `with_k`, rows of V of this block or the
     * next, as many as there are keys, while it works on K, and the `next_keys` rows of K at
     * `next_k` while it works on V. */
    bool far;
    bool large; /* K and V of a head are more than L2 keeps */
    int next_keys;
    const char *const *next_k, *const *with_k;
};

/* The weights of one of the heads that share vectors: row r's for a key are at
 * p[key * lanes + r * vector], what divides its o and the keys it sees at divisor[r * vector] and
 * visible[r * vector]. Later rows see no fewer keys. */
struct head_weights {
    const float *p, *divisor; /* l, or 1 where it is 0 */
    const int32_t *visible;
    int lanes;
};

/* How many of `left` rows, keys or columns the next tile has: `most`, but the last two share what
 * is left, because the lower a tile, the more it waits for loads and for its own results. */
static inline int tile_height(int64_t left, int most)
{
    if (left >= 2 * most)
        return most;
    return left <= most ? (int)left : (int)(left + 1) / 2;
}

/* Tiles of a matrix that are needed next, or none: the first `tile_bytes` of each. */
struct next_tiles {
    const char *first;
    ptrdiff_t tile_step;
    int64_t tiles, tile_bytes;
};

/* A part of y = x Wᵀ: some rows, outputs and inputs. Rows of x lie in groups, [dim][ROW_GROUP] as
 * binary32; the next group has tile_height(rows left, ROW_GROUP) of them, and any value in the
 * lanes that remain. The matrix lies in tiles of TILE_KEYS outputs, each [dim][TILE_KEYS] as
 * binary32 and aligned to such a line, as K does that is stored in tiles. */
struct product {
    const float *x;
    int64_t dim; /* inputs of this part */
    int rows;
    const float *w;      /* of the first input of the first tile */
    ptrdiff_t tile_step; /* bytes from tile to tile */
    const float *sums;   /* chains over earlier inputs, which go on; NULL: they start at +0 */
    ptrdiff_t sums_stride;
    float *y; /* of the first row, the first output; may be `sums` */
    ptrdiff_t y_stride;
    int64_t outs;            /* any number; tiles are whole, what lies beyond in y is not touched */
    const float *bias;       /* [outs], added at the end, or NULL */
    struct next_tiles ahead; /* a hint: they are asked for meanwhile; tiles may do without */
};

/* The elements of the first input, from output `out` to the end of its tile. */
static inline const float *matrix_at(const struct product *p, int64_t out)
{
    const char *const tile = (const char *)p->w + out / TILE_KEYS * p->tile_step;
    return (const float *)tile + out % TILE_KEYS;
}

/* The same for few rows, all inputs at once and from tiles of any type. A tile of TYPE_Q8_0 is as
 * in struct key_rows. */
struct few_product {
    enum type type;
    const float *const *x;
    int rows; /* at most `matrix_rows`, of TYPE_F32 `f32_matrix_rows` */
    int64_t dim;
    const char *w;     /* tiles without gaps */
    bool far;          /* the matrix most likely is in no near cache */
    float *const *y;   /* of the first output, for each row */
    int64_t outs;      /* as above */
    const float *bias; /* [outs], added at the end, or NULL */
};

/* 1 / l, by which quotients of totals are found; NaN for an l that only a caller's state has, and
 * with which a quotient might be rounded wrongly. */
#define LEAST_DIVISOR 0x1p-500
#define LARGEST_DIVISOR 0x1p500

static inline double inverse_of(double l)
{
    return fabs(l) >= LEAST_DIVISOR && fabs(l) <= LARGEST_DIVISOR ? 1.0 / l : (double)NAN;
}

/* Structs go to the tiles by address: a copy on the stack, made of pieces and read as a whole,
 * makes a call of few keys wait. */
struct kernels {
    const char *name;
    int vector; /* the lanes of a panel are a multiple of it */
    int lanes;  /* most query rows in a panel, <= MAX_LANES */
    /* Up to so many rows are better off in decode than in a panel: where a panel would have K and V
     * widened first, and where it would not. The second <= the first <= MAX_DECODE_ROWS. */
    int decode_rows, f32_decode_rows;
    /* The same of the rows of x in `few_product` rather than in `product`, for types that `product`
     * needs widened, and for binary32. At least 1, <= MAX_MATRIX_ROWS. */
    int matrix_rows, f32_matrix_rows;

    /* y[i] = 2^x[i] for x <= 0 with the bits of SLEEF's u10 exp2f, or +0 where x rounds to less
     * than LEAST_POWER; NaN stays NaN. All powers of two below are these. The softmax and decode
     * tiles have it inside; this entry is for attention/merge.c, and for tests. */
    void (*exp2)(const float *x, float *y, size_t n);

    /* Rows of any type to binary32 and back, by the rules of README.md. Rows are aligned to 2
     * bytes, TYPE_F32 to 4, TYPE_I8 and TYPE_F8_E4M3 to 1, and nothing overlaps. ------------ */

    /* out[i] = element i of a row of n. Where has_scales: times scales[i / group], rounded once; n
     * is a multiple of group. Blocks: times the scale of its block, which is exact, and with a
     * minimum fma(integer, scale, minimum). Other types are exact. All but the first have no use
     * for scales and group. Of several NaN that meet, any may come out. */
    void (*widen)(enum type type, const void *row, const float *scales, int64_t group, int64_t n,
                  float *out);

    /* So many rows of a type that is_unpacked, as TYPE_Q8_0 and without gaps: `to` is aligned to 2
     * bytes. */
    void (*unpack)(enum type type, const struct rows *rows, int count, void *to);

    /* The TILE_KEYS keys of a tile of K as rows: out[i * n + d] = element d of key i. No type that
     * is_only_widened. */
    void (*widen_tile)(enum type type, const void *tile, const float *scales, int64_t group,
                       int64_t n, float *out);

    /* row[i] = x[i] to nearest even; for TYPE_I8 and TYPE_Q8_0 by groups (of `group` and of
     * Q8_BLOCK, which n is a multiple of), whose scale goes to scales[i / group] or the block:
     *   scale   = max |x| / 127, 0x7fc00000 if the group has a NaN; Q8_0: rounded to binary16
     *   element = x / scale to nearest even, in -127 .. 127; 0 where that is NaN or scale is 0
     * A group with a NaN or an infinity comes back as NaNs, because 0 * NaN and 0 * inf are.
     * TYPE_Q4_0 and TYPE_Q5_0 as ggml does: x is the first element of the largest magnitude, and
     *   scale   = x / -8 or -16, rounded to binary16; 0x7e00 if the block has a NaN
     *   integer = trunc(f32(f32(element * f32(1 / f32(x / -8 or -16))) + 8.5 or 16.5)), at most 15
     *             or 31; 8 or 16, which is 0, where that factor is not a number other than 0
     * which for finite elements are the bytes of its quantize_row_q4_0_ref and q5_0_ref. No other
     * type that is_only_widened. */
    void (*narrow)(enum type type, const float *x, int64_t n, int64_t group, void *row,
                   float *scales);

    /* Turns pairs of elements of x in place, by the step of README.md; a result that is NaN is
     * 0x7fc00000. Pair i is x[2 i] and x[2 i + 1] if they are interleaved, x[i] and x[i + pairs]
     * if not. */
    void (*rotate)(float *x, const float *cos, const float *sin, int64_t pairs, bool interleaved);

    /* Pointers to `count` rows, the first at `first` and so many bytes apart. The rows are not
     * read. */
    void (*fill_pointers)(const void *first, ptrdiff_t bytes, int count, void *pointers);

    /* Masks. What a row sees of a block is bits of words, bit i for key i; numbers for its keys are
     * a line of KEY_BLOCK floats. All addresses are aligned to an element. ------------------- */

    /* Bit i: byte i of KEY_BLOCK is not 0. */
    void (*nonzero)(const unsigned char *bytes, uint64_t words[KEY_BLOCK / 64]);

    /* Bit i: id i of KEY_BLOCK is `own`. */
    void (*same_ids)(const int32_t *ids, int32_t own, uint64_t words[KEY_BLOCK / 64]);

    /* Bit i: number i of KEY_BLOCK is not -inf, so that it masks no key. Returns whether any of
     * these is not 0. TYPE_F32, TYPE_F16 or TYPE_BF16. */
    bool (*unmasked)(enum type type, const void *numbers, uint64_t words[KEY_BLOCK / 64]);

    /* See the structs. */
    void (*bias_line)(const struct bias_line *what, float *line);
    void (*keep_line)(const struct keep_line *what, float *line);

    /* The numbers of the keys whose bits are set move to the beginning of the line, in their order;
     * behind them is any number. */
    void (*compact_line)(const uint64_t keys[KEY_BLOCK / 64], float *line);

    /* The other way round: line[i] = the number of key i where its bit is set in `own`, else
     * `none`. The numbers, at the beginning of a line, are of the keys whose bits are set in
     * `keys`, which has all bits of `own`. */
    void (*spread_line)(const uint64_t keys[KEY_BLOCK / 64], const float *numbers,
                        const uint64_t own[KEY_BLOCK / 64], float none, float *line);

    /* mean[i] = (the chain of additions of element i of `count` rows) / count; a NaN is 0x7fc00000.
     */
    void (*mean)(const struct rows *rows, int64_t count, float *mean);

    /* Prefill. Lanes are query rows: `lanes` of them, a multiple of `vector`. -------------- */

    /* q_t[d][lane] = rows[lane][d]; for linear maps as well, where lanes may be ROW_GROUP. All
     * `lanes` pointers are valid; spare ones repeat a row. q_t is aligned to a line of lanes. */
    void (*pack_q)(const float *const *rows, int lanes, int64_t head_dim, float *q_t);

    /* s[key][lane] = chain over d of fma(k[key][d], q_t[d][lane]). keys <= KEY_BLOCK. Where `ahead`
     * is not NULL, meanwhile asks the cache for as many rows of it: V, whose columns weighted_v
     * goes down, in steps that no hardware foresees. An instruction set may do without. */
    void (*scores)(const float *q_t, int lanes, const struct rows *k, int keys, float *s,
                   const struct rows *ahead);

    /* Scores to weights in place, and the state's row_max and row_sum moved on:
     *   t  = s * scale_log2, or -inf where key >= visible[lane] (visible == NULL: all are seen)
     *   M' = max(M, ceil(max t)), which drops NaN
     *   s  = 2^(t - M'), rescale = 2^(M - M'), l = fma(l, rescale, chain over keys of s)
     * where -inf is taken as 0 when it is what is subtracted. */
    void (*softmax)(float *s, int lanes, int keys, const int32_t *visible, float scale_log2,
                    const struct state *st, float *rescale);

    /* s[i] to t, see struct adjust; bias has n floats, too, or is NULL. Any n, and any address that
     * is aligned to a float. softmax then has scale_log2 = 1. */
    void (*adjust)(const struct adjust *how, const float *bias, size_t n, float *s);

    /* s[i] *= factors[i], rounded: dropout, after softmax. Any n, and any address as above. */
    void (*multiply)(const float *factors, size_t n, float *s);

    /* o[c][lane] = fma(o[c][lane], rescale[lane], chain over keys of fma(p[key][lane], v[key][c])),
     * or, where rescale is NULL, the chain: o, all 0 so far, need not be there then. `ahead` is as
     * in scores: KEY_BLOCK rows of K, those of the next block. */
    void (*weighted_v)(const float *p, int lanes, const float *rescale, const struct rows *v,
                       int keys, float *o, const struct rows *ahead);

    /* total = the state of its first chunk, exactly; what it held does not matter. */
    void (*begin_total)(const struct total *total, const struct state *chunk, int lanes,
                        int64_t value_dim);

    /* total = total (+) chunk, lane by lane: M' = max(M, Mc), a = 2^(M - M'), b = 2^(Mc - M'),
     * l = fma(l, a, lc * b), o = fma(o, a, oc * b) in binary64, a and b from binary32; the same
     * rule for -inf as in softmax. */
    void (*fold)(const struct total *total, const struct state *chunk, int lanes,
                 int64_t value_dim);

    /* For lane < rows: out[lane][c] = o / l + 0 (division by 1 where l = 0), and, if lse is not
     * NULL, *lse[lane] = fma(M, LN2_HI, fma(M, LN2_LO, log l)). Bit `lane` of the result is set
     * where a value of out is NaN or infinite, whatever lse is. Here and below, a NaN in a result
     * is 0x7fc00000, because its sign and payload depend on the order of operands. */
    uint64_t (*finish)(const struct state *st, int lanes, int64_t value_dim, int rows,
                       float *const *out, float *const *lse);

    /* The same of a total: the quotient is of binary64 and then rounded to binary32, before the
     * + 0; log is of f32(l). Where chunk_out is not NULL it is o. A value of a row whose bit is set
     * may also be NaN or infinite because inverse_of(l) is NaN, or o infinite: whoever calls
     * divides there. */
    uint64_t (*finish_total)(const struct total *total, const float *chunk_out, int lanes,
                             int64_t value_dim, int rows, float *const *out, float *const *lse);

    /* Decode. Lanes are keys, then value columns; states have a line per row. ---------------- */

    /* Scores, softmax and weighted V as above, in one go. */
    void (*decode)(const struct decode_block *block, int rows, float scale_log2);

    /* As finish, for states with a line per row; out[r] may be that line. For lse, whole vectors of
     * row_max and row_sum are read. */
    uint64_t (*decode_finish)(const struct state *st, int rows, int64_t value_dim,
                              float *const *out, float *const *lse);

    /* A line of a total, whose factors are known: o[i] = fma(o[i], a, chunk[i] * b) in binary64,
     * and out[i] = f32(o[i] / divisor) + 0 as in finish_total, which returns whether a value of
     * out is NaN or infinite. o is aligned to a double, and nothing overlaps. */
    void (*fold_row)(double *o, const float *chunk, double a, double b, int64_t n);
    bool (*quotient_row)(const double *o, double divisor, int64_t n, float *out);

    /* Few keys. Lanes are heads, `vector` of them; rows and keys are at most lanes / vector. --- */

    /* s[key][r][head] = chain over d of fma(k_t[d][key][head], q_t[d][r][head]). */
    void (*head_scores)(const float *q_t, const float *k_t, int rows, int keys, int64_t head_dim,
                        float *s);

    /* The whole of one head: out[r][c] = chain over the visible keys of fma(p, v[key][c]), divided
     * and made +0 as in finish. Bit r of the result as there, of row r. */
    uint64_t (*head_out)(const struct head_weights *weights, const struct rows *v, int rows,
                         float *const *out);

    /* Linear maps. --------------------------------------------------------------------------- */

    /* A tile of outputs as binary32, as `product` reads it: out[d * TILE_KEYS + o] = element d of
     * output o of n, a multiple of Q8_BLOCK for TYPE_Q8_0. Any type but TYPE_I8 and those that are
     * only widened. */
    void (*widen_matrix)(enum type type, const void *tile, int64_t n, float *out);

    /* y[i][o] = chain over d of fma(x[i][d], w[d][o]), then + bias[o] with one rounding; a NaN is
     * 0x7fc00000. */
    void (*product)(const struct product *part);
    void (*few_product)(const struct few_product *part);
};

/* 2^x is +0 where x rounds to less than LEAST_POWER; README.md says why. 2^(n - POWER_HEADROOM) is
 * so without a comparison: for n = LEAST_POWER - 1 its exponent has the bits of +0. */
enum { LEAST_POWER = -100, POWER_HEADROOM = LEAST_POWER + 126 };

/* log2(e), rounded to binary64; for the scale of scores and for merging. */
#define LOG2_E 0x1.71547652b82fep+0

/* ln 2 in two parts, the first rounded down so that both are positive and M = -inf gives -inf. */
#define LN2_HI 0x1.62e42ep-1f
#define LN2_LO 0x1.efa39ep-25f

#endif
