/* SPDX-License-Identifier: Apache-2.0
 *
 * The contract between the loops (in attention/, cache/ and linear/ of this folder) and the tiles
 * of an instruction set. The contract is one struct of function pointers. Every instruction set has
 * all entries of the struct, except that `pairs`, `bytes`, `decode_together`, `together_rows` and
 * the entries of parts that the build leaves out may be NULL. Each entry does the work of one tile.
 * README.md in this folder has the canonical order of roundings that every entry keeps. A "chain"
 * is an accumulation that starts at +0 and takes its terms one by one in index order.
 */
#ifndef ATTNKIT_KERNELS_H
#define ATTNKIT_KERNELS_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(_MSC_VER) && !defined(__clang__)
#error "Microsoft's compiler does not know the attributes used here: use clang-cl"
#endif
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "The order of every rounding is part of the format: build without -ffast-math and -Ofast"
#endif
_Static_assert(FLT_EVAL_METHOD == 0, "binary32 arithmetic must round to binary32");
_Static_assert(sizeof(size_t) == 8, "sizes and strides are checked for 64 bits");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format's bytes are little-endian");

enum {
    KEY_BLOCK = 128,      /* keys whose weights are summed in one chain; part of the format */
    CHUNK_KEYS = 512,     /* keys of a chunk: each chunk starts a new state; part of the format */
    MAX_LANES = 64,       /* most query rows in a panel */
    MAX_VECTOR = 16,      /* most lanes in a vector; a vector has at least 4 */
    MAX_DECODE_ROWS = 16, /* most query rows in a decode tile */
    TILE_KEYS = 16,       /* keys of a tile of K, if K is stored in tiles */
    FEW_KEYS = 12,        /* most keys of a head that shares its vectors with other heads */
    MAX_MATRIX_ROWS = 16, /* most rows of x that few_product takes */
    ROW_GROUP = 8,        /* most rows of x in a group of struct product */
};

/* The type of the elements of a row. Each constant equals the constant of attnkit_type with the
 * same name. */
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

/* A TYPE_Q8_0 row is a sequence of blocks without padding. Each block is a binary16 scale and then
 * Q8_BLOCK signed bytes. */
enum { Q8_BLOCK = 32, Q8_BLOCK_BYTES = 2 + Q8_BLOCK };

/* Elements are stored in blocks. A row is a whole number of blocks. In types without a scale in the
 * row, a block is one element. */
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

/* The types that rows of K and V may have in this build, a bit for each. Every build has q, results
 * and biases of TYPE_F32, TYPE_F16 and TYPE_BF16. */
enum {
    BUILT_TYPES = 1 << TYPE_F32
#ifndef ATTNKIT_WITHOUT_F16
                  | 1 << TYPE_F16
#endif
#ifndef ATTNKIT_WITHOUT_BF16
                  | 1 << TYPE_BF16
#endif
#ifndef ATTNKIT_WITHOUT_I8
                  | 1 << TYPE_I8
#endif
#ifndef ATTNKIT_WITHOUT_Q8_0
                  | 1 << TYPE_Q8_0
#endif
#ifndef ATTNKIT_WITHOUT_FEW_BITS
                  | 1 << TYPE_Q4_0 | 1 << TYPE_Q4_1 | 1 << TYPE_Q5_0 | 1 << TYPE_Q5_1 |
                  1 << TYPE_IQ4_NL | 1 << TYPE_Q1_0 | 1 << TYPE_Q2_0
#endif
#ifndef ATTNKIT_WITHOUT_F8_E4M3
                  | 1 << TYPE_F8_E4M3
#endif
};

#if defined(ATTNKIT_WITHOUT_Q8_0) && !defined(ATTNKIT_WITHOUT_FEW_BITS)
#error "Decode tiles read the types of few bits as TYPE_Q8_0: leave out few_bits, too"
#endif
#ifndef ATTNKIT_WITHOUT_LINEAR
_Static_assert(BUILT_TYPES == (1 << TYPE_COUNT) - 1,
               "linear maps read rows of all types: leave out the part linear, too");
#endif

static inline bool is_built(enum type type)
{
    return BUILT_TYPES >> type & 1;
}

/* Ends the program if this build has no rows of K and V of the type. The type is a constant. So if
 * the build leaves out the type, the compiler drops the code after this call. No call with such a
 * type gets here, because attnkit_check_stored_row refuses the type. */
static inline void require_built(const enum type type)
{
    if (!is_built(type))
        __builtin_trap();
}

static inline int64_t block_elements(enum type type)
{
    return INT64_C(1) << block_layouts[type].log2_elements;
}

static inline int64_t block_bytes(enum type type)
{
    return block_layouts[type].bytes;
}

/* Returns the number of bytes of n >= 0 adjacent elements, with n rounded down to whole blocks. */
static inline int64_t bytes_of(enum type type, int64_t n)
{
    return (n >> block_layouts[type].log2_elements) * block_bytes(type);
}

/* Returns whether a row of the type has binary32 scales outside the row, one for each group of its
 * elements. */
static inline bool has_scales(enum type type)
{
    return type == TYPE_I8 || type == TYPE_F8_E4M3;
}

/* Returns whether `widen` and `unpack` are the only tiles that read the type. Rows of K and V may
 * have such a type, tiled K and matrices may not. For decode tiles, rows of such a type are first
 * converted to another type. */
static inline bool is_only_widened(enum type type)
{
    return type >= TYPE_Q4_0;
}

/* Returns whether `unpack` takes the type. Blocks of a type that `unpack` takes are like blocks of
 * TYPE_Q8_0, with fewer bits for an integer and perhaps more elements for a scale. */
static inline bool is_unpacked(enum type type)
{
    return type == TYPE_Q4_0 || type == TYPE_Q5_0 || type == TYPE_IQ4_NL || type == TYPE_Q1_0 ||
           type == TYPE_Q2_0;
}

/* The softmax state of some query rows over some keys: M, l and o of the canonical order. In
 * prefill, each lane of a panel is a row: out[value_dim][lanes], and all three arrays are aligned
 * to a vector. In decode, o of a row lies in one piece: out[rows][value_dim], aligned to a float.
 * In decode, row_max and row_sum have room for MAX_DECODE_ROWS numbers, so that tiles can use whole
 * vectors of them. */
struct state {
    float *row_max; /* M, an integer value or infinite */
    float *row_sum; /* l */
    float *out;     /* o, not yet divided by l */
};

/* The softmax state over several chunks. l and o are binary64: the products of a chunk's binary32
 * numbers and powers of two are exact, and no sum of them overflows. In prefill each lane of a
 * panel is a row, as in struct state. */
struct total {
    float *row_max;
    double *row_sum;
    double *out;
};

/* Rows in memory, `stride` bytes apart, with `dim` adjacent elements each: for example K or V of a
 * block. */
struct rows {
    const char *first;
    ptrdiff_t stride;
    int64_t dim;
};

/* A row of K or V, and its scales if the type has scales. */
struct key_row {
    const char *data;
    const float *scales;
};

/* K or V of a block as they are stored, at any addresses: row[i] is the row of key i. For TYPE_I8
 * scales[i] has the scales of key i. For other types scales is NULL. The last entry of each list is
 * repeated, up to a whole number of vectors of MAX_VECTOR keys. Rows and scales are two lists,
 * because most types need only the list of rows, and filling a list takes time in a decoding step.
 *
 * Tiled K has TILE_KEYS keys in a tile: first element 0 of all keys, then element 1 of all keys,
 * and so on. Element d of key i is at d * TILE_KEYS + i in the tile. Scale g of key i is at g *
 * TILE_KEYS + i in the scales of the tile. A tile of TYPE_Q8_0 has, for each Q8_BLOCK values of d,
 * first TILE_KEYS scales and then the bytes in the order above. All bytes of a tile can be read.
 * For tiled K, row[i] is the address of a part of a tile. A tile has TILE_KEYS equal parts, and the
 * first part begins with the tile. So row[i] is the beginning of the tile if i is a multiple of
 * TILE_KEYS. In the same way, scales[i] is the address of a part of the scales of a tile. */
struct key_rows {
    enum type type; /* no type that is_only_widened */
    bool tiled;
    int64_t dim;
    int64_t scale_group; /* TYPE_I8: a multiple of MAX_VECTOR, or dim; any number if tiled */
    const char *const *row;
    const float *const *scales;
};

/* Returns whether rows share one or two sets of L1, because they lie a multiple of 2 KiB apart.
 * Tests only the distance of the first two rows. The rows of a head in token-major order may have
 * this distance. If rows share so few sets, L1 loses a cache line of a row before the line has been
 * read to its end. */
static inline bool share_sets(const char *const *row)
{
    enum { APART = 2048 };
    return row[1] != row[0] && (uintptr_t)(row[1] - row[0]) % APART == 0;
}

/* Returns the scales of the row at *row, for TYPE_I8. `row` points to an entry of rows->row. */
static inline const float *scales_of_row(const struct key_rows *rows, const char *const *row)
{
    return rows->scales[row - rows->row];
}

/* How a score s becomes t. x is s, or tanh(s * to_cap) if capped. t is fma(x, factor, bias), or x *
 * factor without a bias. If bias is -inf, t is -inf, whatever s is. */
struct adjust {
    bool capped;
    float to_cap, factor;
};

/* The line that is added to the scores of a query row in a block of keys. Float i of the line, for
 * key i, is the sum of these terms, with every operation rounded:
 *   max(f32(number i * unit), least)   if the caller gives numbers, else +0; NaN stays NaN
 *   f32(slope * f32(distance + i))     if there is a slope; the sum is at least -FLT_MAX
 * If key i is not seen, float i is -inf. */
struct bias_line {
    enum type type;      /* TYPE_F32, TYPE_F16 or TYPE_BF16 */
    const void *numbers; /* NULL: none */
    int count;           /* the numbers are for keys 0 .. count - 1; no later key is seen */
    float unit;          /* factor of all `numbers`: any float */
    float least;         /* finite */
    bool sloped;
    float slope;
    int64_t distance; /* distance of key 0; if distance + i overflows, INT64_MAX takes its place */
    uint64_t seen[KEY_BLOCK / 64]; /* bit i for key i */
};

#define BIAS_FLOOR (-0x1p126f) /* the least bias; finite even after multiplication by log2 e */

/* Returns true only if all distances of a line fit 32 bits. Every instruction set has vector
 * conversions from 32 bits. */
static inline bool has_near_keys(const struct bias_line *what)
{
    return what->distance >= INT32_MIN && what->distance <= INT32_MAX - KEY_BLOCK;
}

/* Returns f32(distance + i), for any distance. */
static inline float key_distance(const struct bias_line *what, int i)
{
    int64_t sum;
    return (float)(__builtin_add_overflow(what->distance, (int64_t)i, &sum) ? INT64_MAX : sum);
}

/* The factors by which dropout multiplies the weights of a query row in a block of keys. The factor
 * of a key is 0 if the key's random word is less than `dropped`, else it is `factor`. Philox4x32-10
 * makes the words of four keys from one counter. The key of Philox is the two halves of the seed,
 * the lower half first. Let j be an absolute index of a key, and a multiple of 4. The four words of
 * the counter for keys j to j + 3 are: the low 32 bits of j / 4; the low 32 bits of the position;
 * the head; and bits 32 to 47 of j / 4, with bits 32 to 47 of the position above them. */
struct keep_line {
    uint64_t seed, position;
    uint64_t first_key; /* the absolute index of key 0, a multiple of KEY_BLOCK */
    uint64_t dropped;   /* 1 .. 2^32 */
    uint32_t head;
    float factor;
};

/* A block of keys for some query rows of a KV head. Row r sees the first visible[r] keys. At least
 * one row sees a key. */
struct decode_block {
    const float *const *q;
    const int32_t *visible;
    struct key_rows k, v;
    const struct state *st;
    /* If adjust is not NULL, s becomes t by *adjust, and the tile does not use its argument
     * scale_log2. bias has a line of KEY_BLOCK floats for each row, or is NULL for no bias. If a
     * bias is -inf, the weight is 0, but the row of V is read. */
    const struct adjust *adjust;
    const float *const *bias;
    /* NULL, or a line of KEY_BLOCK factors for each row. Weights are multiplied by these factors
     * after the weights have been summed. */
    const float *const *keep;
    /* Hints for prefetching. If `far` is set, K and V most likely are neither in L1 nor in L2, and
     * the tile prefetches rows. While the tile works on K, it prefetches the rows of V in `with_k`,
     * one row for each key. These are rows of this block or of the next block. While the tile works
     * on V, it prefetches the `next_keys` rows of K in `next_k`. An instruction set may leave out
     * the prefetches. */
    bool far;
    bool large; /* K and V of a head do not fit into L2 */
    int next_keys;
    const char *const *next_k, *const *with_k;
};

/* Rows of K or of V of several heads, which lie side by side: the rows of all heads for a token
 * follow each other without gaps. */
struct side_rows {
    const char *first; /* the row of the first head for the first token */
    ptrdiff_t stride;  /* bytes from token to token */
};

enum {
    TOGETHER_ROWS = 12, /* most query rows of a head in a struct heads_block */
    TURN_ROWS = 4,      /* most rows that a tile computes in a turn */
};

/* A whole block of KEY_BLOCK keys for some query rows of several heads. All rows see all keys. Rows
 * of K and of V have the same type and length. */
struct heads_block {
    enum type type;
    int64_t dim;
    int heads, rows;               /* rows of each head, at most together_rows of struct kernels */
    const float *const *const *q;  /* [heads][rows] */
    const struct state *const *st; /* [heads] */
    struct side_rows k, v;
    /* Hints: K of the next block, and how many of its tokens to prefetch, at most KEY_BLOCK. */
    struct side_rows next_k;
    int next_keys;
    float *scratch; /* heads * together_floats(rows, dim) floats, aligned to a cache line */
};

/* Returns the number of floats of scratch for each head of a struct heads_block: scores, weights
 * and sums of V of all rows, and some spare floats. The number of rows is rounded up to a multiple
 * of TURN_ROWS. Each TURN_ROWS rows have a piece of their own. */
static inline int64_t together_floats(int rows, int64_t dim)
{
    const int64_t columns = (dim + MAX_VECTOR - 1) / MAX_VECTOR * MAX_VECTOR;
    return (rows + TURN_ROWS - 1) / TURN_ROWS * (TURN_ROWS * (2 * KEY_BLOCK + columns) + 64);
}

/* The weights of one of the heads that share vectors. `vector` is the field of struct kernels. The
 * weight of row r for a key is p[key * lanes + r * vector]. divisor[r * vector] is the divisor of o
 * of row r, and visible[r * vector] is the number of keys that row r sees. A row sees at least as
 * many keys as the rows before it. */
struct head_weights {
    const float *p, *divisor; /* divisor: l, or 1 if l is 0 */
    const int32_t *visible;
    int lanes; /* floats of p from key to key */
};

/* Returns the number of rows, keys or columns of the next tile, if `left` of them are left. While
 * at least 2 * most are left, the result is `most`. The heights of the last two tiles differ by at
 * most 1, because a tile with few rows waits more for loads and for its own results. */
static inline int tile_height(int64_t left, int most)
{
    if (left >= 2 * most)
        return most;
    return left <= most ? (int)left : (int)(left + 1) / 2;
}

/* The parts of tiles of a matrix that are needed next: `tile_bytes` bytes of each tile. `first` is
 * the address of the part of the first tile. There may be no tiles. */
struct next_tiles {
    const char *first;
    ptrdiff_t tile_step; /* bytes from tile to tile */
    int64_t tiles, tile_bytes;
};

/* A part of y = x Wᵀ: some rows, outputs and inputs. Rows of x lie in groups. A group is
 * [dim][ROW_GROUP] as binary32, with tile_height(rows left, ROW_GROUP) rows and any values in the
 * spare lanes. The matrix lies in tiles of TILE_KEYS outputs, as tiled K does. Each tile is
 * [dim][TILE_KEYS] as binary32, aligned to TILE_KEYS floats. */
struct product {
    const float *x;
    int64_t dim; /* inputs of this part */
    int rows;
    const float *w;        /* the first input of the first tile */
    ptrdiff_t tile_step;   /* bytes from tile to tile */
    const float *sums;     /* chains over earlier inputs, to be continued; NULL: they start at +0 */
    ptrdiff_t sums_stride; /* bytes from row to row */
    float *y;              /* the first output of the first row; may be `sums` */
    ptrdiff_t y_stride;    /* bytes from row to row */
    int64_t outs;          /* any number; the last tile is whole, but y after outs is not touched */
    const float *bias;     /* [outs], added at the end, or NULL */
    struct next_tiles ahead; /* a hint: tiles to prefetch meanwhile */
};

/* Returns the matrix elements of the first input, from output `out` to the end of the tile of this
 * output. */
static inline const float *matrix_at(const struct product *p, int64_t out)
{
    const char *const tile = (const char *)p->w + out / TILE_KEYS * p->tile_step;
    return (const float *)tile + out % TILE_KEYS;
}

/* A part of y = x Wᵀ for few rows, with all inputs at once and tiles of any type that a matrix may
 * have. A tile of TYPE_Q8_0 is as in struct key_rows. */
struct few_product {
    enum type type;
    const float *const *x;
    int rows; /* at most `matrix_rows`, or `f32_matrix_rows` for TYPE_F32 */
    int64_t dim;
    const char *w;     /* tiles without gaps */
    bool far;          /* the matrix most likely is neither in L1 nor in L2 */
    float *const *y;   /* the first output of each row */
    int64_t outs;      /* as in struct product */
    const float *bias; /* [outs], added at the end, or NULL */
};

/* inverse_of returns 1 / l, by which vector tiles compute quotients of totals. If l is so small or
 * so large that a quotient by l might be rounded wrongly, inverse_of returns NaN. Only the l of a
 * caller's state can be so small or so large. */
#define LEAST_DIVISOR 0x1p-500
#define LARGEST_DIVISOR 0x1p500

static inline double inverse_of(double l)
{
    return fabs(l) >= LEAST_DIVISOR && fabs(l) <= LARGEST_DIVISOR ? 1.0 / l : (double)NAN;
}

/* Multiply-adds of pairs of bf16. A word holds two neighbouring elements of a row: element 2 i in
 * the high half and element 2 i + 1 in the low half. If a row has an odd number of elements, the
 * low half of the last word is 0. VDPBF16PS adds the product of the high halves to a sum, then the
 * product of the low halves, each with one rounding, as two steps of the chain over d. But
 * VDPBF16PS takes subnormal numbers as 0. So it gives the bits of the chain only if no factor,
 * product or sum is subnormal.
 *
 * The magnitude of a bf16 is its bits without the sign, as an integer. The least magnitude of some
 * numbers is their smallest magnitude other than 0, or NO_MAGNITUDE if all numbers are 0. */
enum {
    NO_MAGNITUDE = 0x8000,
    LEAST_NORMAL = 0x80, /* the magnitude of 2^-126 */
};

/* Returns whether multiplying in pairs gives the bits of the chain. a and b are the least
 * magnitudes of the two operands, for example of q and of K. A normal bf16 with the exponent field
 * e is a multiple of 2^(e - 134). If two fields sum up to at least 142, products and their sums are
 * multiples of 2^-126, and none of them is subnormal. If the sums continue sums over earlier
 * inputs, the earlier sums must be multiples of 2^-126, too. */
static inline bool keep_bits_as_pairs(uint32_t a, uint32_t b)
{
    return a >= LEAST_NORMAL && b >= LEAST_NORMAL && (a >> 7) + (b >> 7) >= 142;
}

static inline int64_t words_of_pairs(int64_t elements)
{
    return (elements + 1) / 2;
}

/* The tiles of a unit that multiplies pairs. These tiles take words where other tiles take
 * binary32. `pair` and `pair_matrix` return the least magnitude of the elements. */
struct pair_kernels {
    /* Add the products of MAX_VECTOR words to sums, by the instructions of `scores` and `product`.
     * add_one multiplies a single word of x by all words of w. dispatch/cpu/probe.c tries both
     * functions on the CPU. */
    void (*add)(float *sum, const float *x, const float *w);
    void (*add_one)(float *sum, const float *x, const float *w);

    /* Makes the words of a row of n bf16. */
    uint32_t (*pair)(const void *row, int64_t n, uint32_t *words);

    /* Makes the words of a tile of a matrix. The tile has n inputs of type bf16: words[i *
     * TILE_KEYS + o] has inputs 2 i and 2 i + 1 of output o. */
    uint32_t (*pair_matrix)(const void *tile, int64_t n, uint32_t *words);

    /* Do the work of `scores` and `product` of struct kernels, with words in place of elements. The
     * dim of struct rows and of struct product is a number of words. */
    void (*scores)(const float *q_t, int lanes, const struct rows *k, int keys, float *s,
                   const struct rows *ahead);
    void (*product)(const struct product *part);
};

/* Turns the words [words_of_pairs(n)][lanes] at x into binary32 [n][lanes], in place. */
static inline void split_pairs(float *x, int64_t n, int lanes)
{
    for (int64_t d = (n - 1) / 2 * 2; d >= 0; d -= 2)
        for (int lane = 0; lane < lanes; lane++) {
            uint32_t word;
            memcpy(&word, &x[d / 2 * lanes + lane], sizeof word);
            const uint32_t high = word & 0xffff0000u, low = word << 16;
            if (d + 1 < n)
                memcpy(&x[(d + 1) * lanes + lane], &low, sizeof low);
            memcpy(&x[d * lanes + lane], &high, sizeof high);
        }
}

/* Groups of 32 products of bf16, by step 17 of README.md. GROUP_PRODUCTS is part of the format. */
enum {
    GROUP_PRODUCTS = 32,
    QUAD_ELEMENTS = 4, /* elements of a row, or keys, that go into words together */
};

/* Whether this build has the part "integers". If not, `integers` of struct kernels is NULL. */
#ifdef ATTNKIT_WITHOUT_INTEGERS
enum { HAS_INTEGERS = 0 };
#else
enum { HAS_INTEGERS = 1 };
#endif

/* Whether this build has the part "products". If not, `grouped` of struct kernels is NULL. */
#ifdef ATTNKIT_WITHOUT_PRODUCTS
enum { HAS_PRODUCTS = 0 };
#else
enum { HAS_PRODUCTS = 1 };
#endif

/* In groups, an element whose magnitude is less than LEAST_FACTOR counts as 0. L is the largest
 * weight of a row in a block, or LEAST_PEAK if this weight is less than LEAST_PEAK. The weights of
 * the row in the block are multiplied by f32(1 / L). A product that is less than LEAST_WEIGHT
 * counts as 0. */
#define LEAST_FACTOR 0x1p-56f
#define LEAST_WEIGHT 0x1p-40f
#define LEAST_PEAK 0x1p-100f

/* Returns n, rounded up to whole quads. */
static inline int64_t whole_quads(int64_t n)
{
    return (n + QUAD_ELEMENTS - 1) / QUAD_ELEMENTS * QUAD_ELEMENTS;
}

/* Where softmax of struct grouped_kernels writes the largest weights and the words of the weights.
 */
struct weight_parts {
    float *largest; /* [lanes] */
    float *words;
};

/* How the scores of a panel are scaled, and where the maxima of the lanes go. */
struct scaling {
    float scale_log2;
    const int32_t *visible; /* lane sees keys 0 .. visible[lane] - 1; NULL: all keys */
    float *maxima;          /* [lanes] */
};

/* Multiplies q and K, and weights and V, in groups of 32 products, by step 17 of README.md. The
 * tiles take words instead of elements. A word is an element as binary32, or, in the tiles of a
 * unit that multiplies bf16, two bf16 of the same quad. The tiles choose the order of the elements
 * of a quad. A row whose elements do not fill whole quads is filled up with zeros. In words of q, K
 * and V, elements whose magnitude is less than LEAST_FACTOR are 0. */
struct grouped_kernels {
    int elements; /* elements of a word: 1 or 2 */

    /* NULL, or called before and after calls of scores and weighted_v, by the same thread. Between
     * `begin` and `end`, registers hold a state that no other code of the thread changes. */
    void (*begin)(void);
    void (*end)(void);

    /* Makes the words of a row of n bf16: whole_quads(n) / elements words. */
    void (*pack_row)(const void *row, int64_t n, float *words);

    /* Makes words of the rows of V of a group of keys, in the order that weighted_v of these tiles
     * needs. The words take GROUP_PRODUCTS / elements * n floats. Only the first `keys` rows are
     * given: a whole number of quads. A row that is NULL counts as zeros. */
    void (*pack_group)(const void *const row[GROUP_PRODUCTS], int keys, int64_t n, float *words);

    /* Computes s[key][lane] = the sum by groups of k[key] * q_t[..][lane]. The dim of k is a number
     * of words. Lanes from `rows` on are spare, and their scores have no meaning. If `scaling`
     * is not NULL, the function then scales s, as `scale` does. */
    void (*scores)(const float *q_t, int lanes, int rows, const struct rows *k, int keys,
                   const struct scaling *scaling, float *s);

    /* Replaces each score s by t = s * scale_log2, or by -inf where the lane does not see the key.
     * maxima[lane] becomes the maximum of t. NaN does not count. */
    void (*scale)(float *s, int lanes, int keys, const struct scaling *scaling);

    /* Turns t into weights, as `softmax` of struct kernels does, and updates row_max. `maxima`
     * holds the maximum of t of each lane. `maxima` and to->largest may be the same array. Writes
     * the largest weight of each lane, at least LEAST_PEAK and at most 1, into to->largest.
     * Multiplies the weights of the lane by 1 / largest. A product p less than LEAST_WEIGHT counts
     * as 0. Makes parts of p: the bf16 p_high nearest to p, and, unless `is_short`, the bf16 p_low
     * nearest to p - p_high. to->words gets words of p_high, [KEY_BLOCK / elements][lanes], and
     * after them as many words of p_low. The last quad of keys is filled up with zeros. No word
     * after this quad is written. Updates row_sum: l = fma(chain over keys of p_high + p_low,
     * largest, l * rescale). Afterwards the numbers in t have no meaning. */
    void (*softmax)(float *t, int lanes, int keys, const float *maxima, const struct state *st,
                    bool is_short, float *rescale, const struct weight_parts *to);

    /* Computes o[c][lane] = fma(the sum by groups of the products of `parts` and v, largest[lane],
     * o[c][lane] * rescale[lane]). If rescale is NULL, the old o counts as 0. Lanes from `rows` on
     * are spare. `parts` has the words that `softmax` wrote. v has the words of pack_group. v->dim
     * is the number of columns. The words of group g begin GROUP_PRODUCTS / elements * g strides
     * after the words of group 0. Key 0 is the first key of a group. */
    void (*weighted_v)(const float *parts, int lanes, int rows, const float *largest,
                       const float *rescale, const struct rows *v, int keys, bool is_short,
                       float *o);
};

/* Returns the number of floats that a row of n elements takes after integer_kernels.round_row. n is
 * a multiple of Q8_BLOCK. */
static inline int64_t rounded_row_floats(int64_t n)
{
    return 2 * (n / Q8_BLOCK) + n / 2;
}

/* The tiles of prefill that multiply integers, by step 16 of README.md. Lanes are query rows. The
 * tiles take words: integers in an order that the tiles choose, with the scales of K and V between
 * them. Bytes and scales of K and V are read only by pack_k and pack_v. */
struct integer_panel_kernels {
    /* Makes a panel of rows of integer_kernels.round_row. The panel takes rounded_row_floats(dim)
     * floats for each lane, and is aligned to a vector. */
    void (*pack_q)(const float *const *rounded, int lanes, int64_t dim, float *q_t);

    /* Make the words of keys first .. first + count - 1 of a list of rows. Words of K take
     * rounded_row_floats(dim) floats for each key, one key after the other. Words of V of a block
     * take at most KEY_BLOCK * dim floats. `first` is a multiple of 4. `count` is a multiple of 4
     * unless the keys are the last keys of the list. */
    void (*pack_k)(const struct key_rows *k, int first, int count, float *words);
    void (*pack_v)(const struct key_rows *v, int first, int count, float *words);

    /* Computes the scores s[key][lane] of `keys` keys, from the words of these keys. */
    void (*scores)(const float *q_t, int lanes, const float *k, int keys, int64_t dim, float *s);

    /* Computes o[c][lane] = fma(o[c][lane], rescale[lane], sum_c) with the sum_c of step 16 over
     * `keys` keys, whose weights are p[key][lane]. Key 0 of p is key `first` of the words v.
     * If rescale is NULL, o is sum_c. A key that a lane does not see has the weight 0. If the scale
     * of V of such a key is not finite, the lane gets NaN in the columns of this scale, and the
     * caller computes the row again. `parts` is scratch of KEY_BLOCK / 2 floats for each lane. */
    void (*weighted_v)(const float *p, int lanes, const float *rescale, const float *v, int64_t dim,
                       int first, int keys, float *o, float *parts);
};

/* Tiles that multiply K and V of TYPE_I8 or TYPE_Q8_0 as integers, by step 16 of README.md. K and V
 * may differ in type. A scale of TYPE_I8 is for a multiple of Q8_BLOCK elements. */
struct integer_kernels {
    /* Rounds a row of q with n elements to integers of 16 bits. `rounded` begins with a scale for
     * each Q8_BLOCK elements. After the scales comes an int32_t for each Q8_BLOCK elements: -128
     * times the sum of the integers with an even index. A tile that adds 128 to the bytes of K with
     * an even index begins its sum with this number. Then come the integers, four by four: elements
     * 0, 2, 1 and 3 of each four elements. An instruction multiplies two neighbouring integers at a
     * time, and this order needs the fewest instructions to bring the bytes of K to the same
     * places. */
    void (*round_row)(const float *row, int64_t n, float *rounded);

    /* Does the work of `decode` of struct kernels. block->q has rows of round_row. Keys from
     * visible[r] on do not change row r, whatever the rows of these keys hold. */
    void (*decode)(const struct decode_block *block, int rows, float scale_log2);

    const struct integer_panel_kernels *panel;

    /* Computes sum[i] += a[2 i] * b[2 i] + a[2 i + 1] * b[2 i + 1] for MAX_VECTOR sums, by the
     * instruction of the unit, so that dispatch/cpu/probe.c can try it. NULL if these tiles are not
     * tiles of a unit, or if struct byte_kernels has the instruction. */
    void (*add)(int32_t *sum, const int16_t *a, const int16_t *b);
};

/* The instructions by which the tiles of a unit multiply signed bytes, for dispatch/cpu/probe.c. An
 * entry is NULL if the tiles do not use its instruction. There are MAX_VECTOR sums. */
struct byte_kernels {
    /* Computes sum[i] += the products of bytes 4 i to 4 i + 3. */
    void (*dot)(int32_t *sum, const int8_t *a, const int8_t *b);

    /* Takes every four sums as a matrix [2][2], and the 16 bytes of a and the 16 bytes of b that
     * belong to them as matrices [2][8]. Computes sum += a * transpose of b for each matrix. */
    void (*multiply)(int32_t *sum, const int8_t *a, const int8_t *b);
};

/* Rounded inputs. A block of x has Q8_BLOCK inputs of each row of a group of ROW_GROUP rows. First
 * come the scales of the rows, as binary32. Then comes an int32_t for each row: the `beginning` of
 * its sums. Then come the integers of the rows, in a form that the tiles choose. A tile that adds
 * 128 to the bytes of the matrix begins a sum with -128 times the sum of the integers of x. Other
 * tiles begin with 0.
 *
 * A part of y = x Wᵀ in integers: some rows, outputs and inputs. The matrix lies in tiles of
 * TILE_KEYS outputs, either as packed, in blocks of TYPE_Q8_0 (struct key_rows), or as words. */
struct integer_product {
    const char *x;           /* the first block of the first group of rows */
    ptrdiff_t x_step;        /* bytes from group to group; blocks of a group lie without gaps */
    int64_t dim;             /* inputs of this part, a multiple of Q8_BLOCK */
    int rows;                /* in groups of tile_height(rows left, ROW_GROUP) */
    const char *w;           /* the first block of the first tile */
    ptrdiff_t tile_step;     /* bytes from tile to tile; blocks of a tile lie without gaps */
    const float *sums;       /* as in struct product */
    ptrdiff_t sums_stride;   /* bytes from row to row */
    float *y;                /* the first output of the first row; may be `sums` */
    ptrdiff_t y_stride;      /* bytes from row to row */
    int64_t outs;            /* as in struct product */
    const float *bias;       /* [outs], added at the end, or NULL */
    struct next_tiles ahead; /* a hint, for `product` */
};

/* Tiles that multiply a matrix of TYPE_Q8_0 by inputs that they have rounded to integers of 8 bits,
 * by step 18 of README.md. */
struct matrix_integer_kernels {
    int rows;            /* the most rows of x for which few_product is faster than `product`; at
                          * most MAX_MATRIX_ROWS */
    int64_t x_bytes;     /* bytes of a block of x, at most 1024 */
    int64_t words_bytes; /* bytes of the words of a block of a tile, at most 1088 */

    /* Rounds n inputs of `rows` rows, which are at most ROW_GROUP, and writes n / Q8_BLOCK blocks.
     * The places of other rows in the blocks are not written. */
    void (*round_rows)(const float *const *x, int rows, int64_t n, void *blocks);

    /* Makes the words of n inputs of a tile, as `product` reads them. `words` is aligned to 64
     * bytes. */
    void (*make_words)(const void *tile, int64_t n, void *words);

    /* Compute y[i][o] = chain over the blocks of fma(f32(N), f32(scale of x * scale of w), ·), with
     * N = sum of the products of the integers of a block, then + bias[o] with one rounding. A NaN
     * is 0x7fc00000. `product` takes words, few_product takes tiles as packed. */
    void (*product)(const struct integer_product *part);
    void (*few_product)(const struct integer_product *part);

    /* Computes sum[i] += the products of bytes 4 i to 4 i + 3, for MAX_VECTOR sums, by the
     * instruction of the unit, so that dispatch/cpu/probe.c can try it. NULL if these tiles are not
     * tiles of a unit, or if struct byte_kernels has the instruction. */
    void (*add)(int32_t *sum, const uint8_t *w, const int8_t *x);
};

/* The tiles of an instruction set. Structs go to the tiles by address. A copy on the stack would be
 * written in pieces and read as a whole. The read would have to wait for the writes, which takes
 * noticeable time in a call of few keys. */
struct kernels {
    const char *name;
    int vector; /* lanes of a vector; divides the number of lanes of a panel */
    int lanes;  /* most query rows in a panel, <= MAX_LANES */
    /* The largest number of rows for which decode is faster than a panel: decode_rows for K and V
     * that would have to be widened for a panel, f32_decode_rows for K and V that would not.
     * f32_decode_rows <= decode_rows <= MAX_DECODE_ROWS. */
    int decode_rows, f32_decode_rows;
    /* If decode computes the last rows of an item that also has panel rows, K and V are read twice.
     * If K and V of a head have at most near_rest_bytes bytes, up to half a vector of the last rows
     * go through decode. If K and V are larger, at most far_rest_rows of the last rows do, or at
     * most f32_far_rest_rows if a panel reads K and V in place (attnkit_needs_wide). far_rest_rows
     * and f32_far_rest_rows are at most half a vector. For rows that would need a panel of their
     * own, K and V may have twice near_rest_bytes. */
    int far_rest_rows, f32_far_rest_rows;
    int64_t near_rest_bytes;
    /* Whether prefill copies rows of binary32 that share sets of L1 (attnkit_gains_by_copies
     * in kernels/attention/block.h), before several panels read them. */
    bool copies_rows;
    /* The largest number of rows of x for which `few_product` is faster than `product`: matrix_rows
     * for types that have to be widened for `product`, f32_matrix_rows for binary32. Both are 1 ..
     * MAX_MATRIX_ROWS. */
    int matrix_rows, f32_matrix_rows;

    /* Computes y[i] = 2^x[i] for x <= 0 with the bits of SLEEF's u10 exp2f, or +0 if x rounds to
     * less than LEAST_POWER. NaN stays NaN. All powers of two below are computed like this. The
     * softmax and decode tiles contain this function. The entry is for merge.c, careful.c
     * and mask.c in attention/, and for tests. */
    void (*exp2)(const float *x, float *y, size_t n);

    /* Conversions of rows, by the rules of README.md. Rows are aligned to 2 bytes, rows of TYPE_F32
     * to 4, and rows of TYPE_I8 and TYPE_F8_E4M3 to 1. Nothing overlaps.
     * --------------------------------------------------------------------------------- */

    /* Computes out[i] = element i of a row of n elements. If has_scales(type), the element is
     * multiplied by scales[i / group] and rounded once, and n is a multiple of group. In blocks the
     * integer is multiplied by the scale of its block, which is exact. If the block has a minimum,
     * element = fma(integer, scale, minimum). Other types are widened exactly. Only types with
     * has_scales use scales and group. If several operands are NaN, the result may come from any of
     * them. */
    void (*widen)(enum type type, const void *row, const float *scales, int64_t group, int64_t n,
                  float *out);

    /* Converts `count` rows of a type that is_unpacked to TYPE_Q8_0. No gaps lie between the rows
     * at `to`. `to` is aligned to 2 bytes. */
    void (*unpack)(enum type type, const struct rows *rows, int count, void *to);

    /* Writes the TILE_KEYS keys of a tile of K as rows: out[i * n + d] = element d of key i. Takes
     * no type that is_only_widened. */
    void (*widen_tile)(enum type type, const void *tile, const float *scales, int64_t group,
                       int64_t n, float *out);

    /* Converts a row: row[i] = x[i], rounded to nearest even. TYPE_I8 has groups of `group`
     * elements, TYPE_Q8_0 of Q8_BLOCK, and n is a multiple of the group. The scale of a group goes
     * to scales[i / group] or to the block:
     *   scale   = max |x| / 127, or 0x7fc00000 if the group has a NaN; Q8_0: rounded to binary16
     *   element = x / scale to nearest even, in -127 .. 127; 0 if x / scale is NaN or scale is 0
     * A group with a NaN or an infinity widens to NaNs, because 0 * NaN and 0 * inf are NaN.
     * TYPE_Q4_0 and TYPE_Q5_0 are as in ggml. Below, x is the element of the block with the largest
     * magnitude, or the first of several:
     *   scale   = x / -8 or -16, rounded to binary16; 0x7e00 if the block has a NaN
     *   factor  = f32(1 / f32(x / -8 or -16))
     *   integer = trunc(f32(f32(element * factor) + 8.5 or 16.5)), at most 15 or 31
     * If factor is 0, infinite or NaN, integer is 8 or 16, which means 0. For finite elements these
     * are the bytes of ggml's quantize_row_q4_0_ref and quantize_row_q5_0_ref. Takes no other type
     * that is_only_widened. */
    void (*narrow)(enum type type, const float *x, int64_t n, int64_t group, void *row,
                   float *scales);

    /* Rotates pairs of elements of x in place, by the rotation step of README.md. A result that is
     * NaN is 0x7fc00000. Pair i is x[2 i] and x[2 i + 1] if pairs are interleaved, else x[i] and
     * x[i + pairs]. */
    void (*rotate)(float *x, const float *cos, const float *sin, int64_t pairs, bool interleaved);

    /* Writes pointers to `count` rows. The first row is at `first`, and rows are `bytes` bytes
     * apart. The rows are not read. */
    void (*fill_pointers)(const void *first, ptrdiff_t bytes, int count, void *pointers);

    /* Masks. In the array `words`, bit i is for key i of the block. An entry that sets bits sets
     * all other bits to 0. A line is KEY_BLOCK floats, one for each key. All addresses are aligned
     * to an element.
     * --------------------------------------------------------------------------------- */

    /* Sets bit i if bytes[i] is not 0, for all i < KEY_BLOCK. */
    void (*nonzero)(const unsigned char *bytes, uint64_t words[KEY_BLOCK / 64]);

    /* Sets bit i if ids[i] is `own`, for all i < KEY_BLOCK. */
    void (*same_ids)(const int32_t *ids, int32_t own, uint64_t words[KEY_BLOCK / 64]);

    /* Sets bit i if number i is not -inf, for all i < KEY_BLOCK: key i is not masked. Returns
     * whether any number is neither -inf nor 0. The type is TYPE_F32, TYPE_F16 or TYPE_BF16. */
    bool (*unmasked)(enum type type, const void *numbers, uint64_t words[KEY_BLOCK / 64]);

    /* Make a line as the comment of the struct says. */
    void (*bias_line)(const struct bias_line *what, float *line);
    void (*keep_line)(const struct keep_line *what, float *line);

    /* Moves numbers of a line to its beginning, in their order: the numbers of the keys whose bit
     * in `keys` is 1. The numbers after them have no meaning. */
    void (*compact_line)(const uint64_t keys[KEY_BLOCK / 64], float *line);

    /* Undoes compact_line: line[i] = the number of key i if its bit is set in `own`, else `none`.
     * `numbers` has KEY_BLOCK floats, and begins with the numbers of the keys whose bits are set in
     * `keys`. `keys` has all bits of `own`. */
    void (*spread_line)(const uint64_t keys[KEY_BLOCK / 64], const float *numbers,
                        const uint64_t own[KEY_BLOCK / 64], float none, float *line);

    /* Computes mean[i] = (the chain of additions of element i of `count` rows of binary32) / count.
     * A NaN is 0x7fc00000. */
    void (*mean)(const struct rows *rows, int64_t count, float *mean);

    /* Prefill. Lanes are query rows: `lanes` of them, a multiple of `vector`. -------------- */

    /* Transposes rows: q_t[d][lane] = rows[lane][d]. Linear maps use this entry, too, with
     * ROW_GROUP lanes, which may be fewer than `vector`. All `lanes` pointers are valid, and spare
     * pointers repeat a row. q_t is aligned to a vector, or to ROW_GROUP floats if a vector is
     * larger. */
    void (*pack_q)(const float *const *rows, int lanes, int64_t head_dim, float *q_t);

    /* Computes s[key][lane] = chain over d of k[key][d] * q_t[d][lane]. keys <= KEY_BLOCK.
     * Meanwhile prefetches `keys` rows of *ahead, unless `ahead` is NULL. These are rows of V:
     * weighted_v reads V column by column, in steps that no hardware prefetcher foresees. An
     * instruction set may leave out the prefetch. */
    void (*scores)(const float *q_t, int lanes, const struct rows *k, int keys, float *s,
                   const struct rows *ahead);

    /* Turns scores into weights in place, and updates row_max and row_sum of the state:
     *   t  = s * scale_log2, or -inf if key >= visible[lane] (visible == NULL: all are seen)
     *   M' = max(M, ceil(max t)), which drops NaN
     *   s  = 2^(t - M'), rescale = 2^(M - M'), l = fma(l, rescale, chain over keys of s)
     * A subtracted -inf is taken as 0. */
    void (*softmax)(float *s, int lanes, int keys, const int32_t *visible, float scale_log2,
                    const struct state *st, float *rescale);

    /* Turns s[i] into t, see struct adjust. bias has n floats or is NULL. n is any number, and
     * addresses are aligned to a float. The softmax of these t is called with scale_log2 = 1. */
    void (*adjust)(const struct adjust *how, const float *bias, size_t n, float *s);

    /* Computes s[i] *= factors[i], rounded, for dropout after softmax. n is any number, and
     * addresses are aligned to a float. */
    void (*multiply)(const float *factors, size_t n, float *s);

    /* Computes o[c][lane] = fma(o[c][lane], rescale[lane], chain over keys of p[key][lane] *
     * v[key][c]). If rescale is NULL, o is the chain alone, and the old o, which would be 0, is
     * not read. `ahead` is NULL, or KEY_BLOCK rows of K of the next block, which an instruction
     * set may prefetch. */
    void (*weighted_v)(const float *p, int lanes, const float *rescale, const struct rows *v,
                       int keys, float *o, const struct rows *ahead);

    /* Sets a total to the state of its first chunk, exactly. The old values of the total do not
     * matter. */
    void (*begin_total)(const struct total *total, const struct state *chunk, int lanes,
                        int64_t value_dim);

    /* Folds a chunk into a total, lane by lane: M' = max(M, Mc), a = 2^(M - M'),
     * b = 2^(Mc - M'), l = fma(l, a, lc * b), o = fma(o, a, oc * b). a and b are binary32, l and o
     * binary64. A subtracted -inf is taken as 0. */
    void (*fold)(const struct total *total, const struct state *chunk, int lanes,
                 int64_t value_dim);

    /* Computes for lane < rows: out[lane][c] = o / l + 0, or o / 1 + 0 if l = 0, and, if lse is not
     * NULL, *lse[lane] = fma(M, LN2_HI, fma(M, LN2_LO, log l)). Bit `lane` of the result is set if
     * a value of out[lane] is NaN or infinite, whatever lse is. Here and below, a NaN in a result
     * is 0x7fc00000. Otherwise its sign and payload would depend on the order of operands. */
    uint64_t (*finish)(const struct state *st, int lanes, int64_t value_dim, int rows,
                       float *const *out, float *const *lse);

    /* Finishes a total, as `finish` does with a state. The quotient is binary64 and is rounded to
     * binary32 before 0 is added. lse takes the log of f32(l). If chunk_out is not NULL, chunk_out
     * has o as binary32, and total->out is not read. The bit of a row may also be set because
     * inverse_of(l) is NaN or o is infinite. If the bit is set, the caller computes the row or its
     * quotients again. */
    uint64_t (*finish_total)(const struct total *total, const float *chunk_out, int lanes,
                             int64_t value_dim, int rows, float *const *out, float *const *lse);

    /* Decode. Lanes are keys in scores, columns in weighted V. o of a row lies in one piece. */

    /* Does the work of scores, softmax and weighted_v in one pass. */
    void (*decode)(const struct decode_block *block, int rows, float scale_log2);

    /* Works as `finish`, but on the states of decode. out[r] may point to o of row r in st->out.
     * For lse, whole vectors of row_max and row_sum are read. */
    uint64_t (*decode_finish)(const struct state *st, int rows, int64_t value_dim,
                              float *const *out, float *const *lse);

    /* Work on o of one row of a total. fold_row computes o[i] = fma(o[i], a, chunk[i] * b) in
     * binary64. quotient_row computes out[i] = f32(o[i] / divisor) + 0 as in finish_total, and
     * returns whether a value of out is NaN or infinite. o is aligned to a double, and nothing
     * overlaps. */
    void (*fold_row)(double *o, const float *chunk, double a, double b, int64_t n);
    bool (*quotient_row)(const double *o, double divisor, int64_t n, float *out);

    /* Few keys. The lanes of a vector are heads. There are at most (lanes / vector) rows, by the
     * fields of this struct. head_scores takes at most (lanes / vector) keys in a call. ------- */

    /* Computes s[key][r][head] = chain over d of k_t[d][key][head] * q_t[d][r][head]. */
    void (*head_scores)(const float *q_t, const float *k_t, int rows, int keys, int64_t head_dim,
                        float *s);

    /* Computes the results of one head: out[r][c] = chain over the visible keys of p *
     * v[key][c], divided as in finish, with 0 added. Bit r of the result is for row r, as in
     * finish. */
    uint64_t (*head_out)(const struct head_weights *weights, const struct rows *v, int rows,
                         float *const *out);

    /* Linear maps. --------------------------------------------------------------------------- */

    /* Converts a tile of outputs to binary32, as `product` reads it: out[d * TILE_KEYS + o] =
     * element d of output o. An output has n elements, a multiple of Q8_BLOCK for TYPE_Q8_0. Takes
     * any type but TYPE_I8 and types that are only widened. */
    void (*widen_matrix)(enum type type, const void *tile, int64_t n, float *out);

    /* Compute y[i][o] = chain over d of x[i][d] * w[d][o], then + bias[o] with one rounding. A
     * NaN is 0x7fc00000. */
    void (*product)(const struct product *part);
    void (*few_product)(const struct few_product *part);

    /* The tiles of a unit that multiplies pairs of bf16, or NULL. */
    const struct pair_kernels *pairs;

    const struct integer_kernels *integers;

    const struct byte_kernels *bytes; /* NULL if the tiles use no instruction of struct
                                       * byte_kernels */

    /* NULL in a build without the part "linear" */
    const struct matrix_integer_kernels *matrix_integers;

    const struct grouped_kernels *grouped; /* NULL in a build without the part "products" */

    /* Does the work of `decode` for a block of several heads, and reads K and V nearly in the order
     * of memory. NULL if no gain was measured with the instruction set or the unit. */
    void (*decode_together)(const struct heads_block *block, float scale_log2);

    /* Returns the most query rows of a head with which decode_together saves time, for blocks of
     * `heads` heads, at least 2, whose K and V have rows of `dim` elements of `type`. `gaps` says
     * whether there are bytes between the rows of two tokens, for example rows of other heads. With
     * gaps, the result is at most the result without gaps. With fewer heads, the result is at most
     * the result with more heads. The result is 0 if decode_together takes
     * no such blocks or saves no time with them. NULL if decode_together is NULL. */
    int (*together_rows)(enum type type, int64_t dim, int heads, bool gaps);

    /* decode_together saves time only if K and V of the heads of a block have more bytes than this
     * number in all blocks together. Fewer bytes may be in a cache of the CPU, and decode_together
     * would then cost time. 0 if decode_together is NULL. */
    int64_t together_bytes;
};

/* 2^x is +0 if x rounds to less than LEAST_POWER. README.md says why. Let n be x, rounded, but at
 * least LEAST_POWER - 1. In the tiles of AVX2 and NEON, 2^x is 2^(n - POWER_HEADROOM) times a
 * polynomial whose coefficients have the factor 2^POWER_HEADROOM. This needs no comparison of n
 * with LEAST_POWER: for n = LEAST_POWER - 1 the exponent bits of the first factor are 0, so this
 * factor is +0. */
enum { LEAST_POWER = -100, POWER_HEADROOM = LEAST_POWER + 126 };

/* log2(e), rounded to binary64, for the scale of scores and for merging. */
#define LOG2_E 0x1.71547652b82fep+0

/* ln 2 in two parts. The first part is rounded down so that both parts are positive: if M is -inf,
 * both products with M are -inf. */
#define LN2_HI 0x1.62e42ep-1f
#define LN2_LO 0x1.efa39ep-25f

#endif
