/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of 32 products of bf16, by TDPBF16PS of AMX. The instruction adds the 32 products of a
 * group in the order of step 17 of kernels/README.md, if the low halves of words hold the elements
 * of even index. No product and no sum is subnormal, because elements below 2^-56 in magnitude and
 * small weights are 0.
 *
 * A rectangle of sums has up to 2 x 2 tile registers: 32 lanes, and 32 keys or 32 columns of V.
 * Each group takes 4 TDPBF16PS and 4 loads of a register. If each weight is the sum of two bf16,
 * weighted V takes 8 TDPBF16PS and 6 loads for each group. TDPBF16PS limits the speed: Sapphire
 * Rapids starts one TDPBF16PS in 16 cycles, and one load in 8 cycles.
 */
#include "kernels/avx512/avx512.h"

#undef KERNEL
#define KERNEL(entry) attnkit_avx512_amx_##entry

#include "kernels/avx512/grouped/words.h"
#include "kernels/avx512_amx/tile_registers.h"

enum { GROUP_WORDS = GROUP_PRODUCTS / ELEMENTS };

/* --- Words ------------------------------------------------------------------------------------ */

/* Returns x, because the elements of its words are already in the order that these tiles need. */
static inline __m512i order_words(__m512i x)
{
    return x;
}

/* Defines pack_row. */
#include "kernels/avx512/grouped/row.h"

/* Makes the words [n][GROUP_WORDS] of a group of keys: the words of a column of V lie together. */
static void pack_group(const void *const row[GROUP_PRODUCTS], int keys, int64_t n, float *words)
{
    require_built(TYPE_BF16);
    for (int64_t c = 0; c < n; c += VECTOR) {
        const __mmask16 mask = first_mask(n - c);
        __m512 lines[VECTOR];
        for (int i = 0; i < GROUP_WORDS; i++)
            lines[i] = ELEMENTS * i < keys
                           ? _mm512_castsi512_ps(words_of_rows(row[2 * i + 1], row[2 * i], c, mask))
                           : _mm512_setzero_ps();
        transpose(lines);
        for (int64_t i = 0; i < VECTOR && i < n - c; i++)
            store_floats(words + (c + i) * GROUP_WORDS, lines[i]);
    }
}

/* Rounds the elements of a quad to bf16, in VECTOR lanes. Stores the rounded elements in `rounded`
 * as binary32, and their words at `words` and at words + lanes. x and `rounded` may be the same
 * array. */
static inline void round_quad(const floats x[QUAD_ELEMENTS], floats rounded[QUAD_ELEMENTS],
                              float *words, int lanes)
{
    for (int i = 0; i < QUAD_ELEMENTS; i++)
        rounded[i] = x[i];
    round_pair(&rounded[1], &rounded[0], words);
    round_pair(&rounded[3], &rounded[2], words + lanes);
}

/* Defines softmax. */
#include "kernels/vectors/grouped/softmax.h"

/* --- Products --------------------------------------------------------------------------------- */

/* The factors of the products: words of lines, and words of lanes. A line is a key of K or a column
 * of V. Word w of group g of line i is at lines + i * by_line + g * by_group + w * 4 bytes. Word n
 * of a lane, counted through all groups, is at lanes_at + n * lanes + lane. */
struct product_factors {
    const char *lines;
    ptrdiff_t by_line, by_group; /* bytes */
    const float *lanes_at;
    const float *low; /* as lanes_at, for the low parts of weights, or NULL */
    int lanes;
    int words; /* number of words of a line */
};

/* A rectangle of sums: `lines` lines from `line` on, and `width` lanes from `lane` on. */
struct rectangle {
    int64_t line;
    int lines; /* 2 * TILE_LINES, or at most TILE_LINES */
    int lane, width;
    float *sums;       /* the sum of the first line and lane */
    ptrdiff_t by_line; /* bytes between the sums of two lines */
};

/* `count` groups of words, from group `first` on. */
struct groups {
    int first, count;
    bool begins; /* whether sums begin with these groups */
};

/* Adds the products of a group to the sums. If loads_lines is false, the words of lines are still
 * in their registers. */
static inline __attribute__((always_inline)) void
add_group(const char *lines, ptrdiff_t by_line, const float *lanes, ptrdiff_t by_word,
          const bool loads_lines, const int line_tiles, const int lane_tiles)
{
    load_register(LANES_OF, lanes, by_word);
    if (lane_tiles == 2)
        load_register(LANES_OF + 1, lanes + TILE_FLOATS, by_word);
    if (loads_lines)
        load_register(LINES, lines, by_line);
    multiply_registers(SUMS, LINES, LANES_OF);
    if (lane_tiles == 2)
        multiply_registers(SUMS + 1, LINES, LANES_OF + 1);
    if (line_tiles == 1)
        return;
    if (loads_lines)
        load_register(LINES + 1, lines + TILE_LINES * by_line, by_line);
    multiply_registers(SUMS + 2, LINES + 1, LANES_OF);
    if (lane_tiles == 2)
        multiply_registers(SUMS + 3, LINES + 1, LANES_OF + 1);
}

static inline __attribute__((always_inline)) void
begin_sums(const struct rectangle *r, bool begins, const int line_tiles, const int lane_tiles)
{
    const float *const second = r->sums + TILE_LINES * (r->by_line / (ptrdiff_t)sizeof(float));
    if (begins) {
        clear_register(SUMS);
        clear_register(SUMS + 1);
        clear_register(SUMS + 2);
        clear_register(SUMS + 3);
        return;
    }
    load_register(SUMS, r->sums, r->by_line);
    if (lane_tiles == 2)
        load_register(SUMS + 1, r->sums + TILE_FLOATS, r->by_line);
    if (line_tiles == 2)
        load_register(SUMS + 2, second, r->by_line);
    if (line_tiles == 2 && lane_tiles == 2)
        load_register(SUMS + 3, second + TILE_FLOATS, r->by_line);
}

static inline __attribute__((always_inline)) void
end_sums(const struct rectangle *r, const int line_tiles, const int lane_tiles)
{
    float *const second = r->sums + TILE_LINES * (r->by_line / (ptrdiff_t)sizeof(float));
    store_register(SUMS, r->sums, r->by_line);
    if (lane_tiles == 2)
        store_register(SUMS + 1, r->sums + TILE_FLOATS, r->by_line);
    if (line_tiles == 2)
        store_register(SUMS + 2, second, r->by_line);
    if (line_tiles == 2 && lane_tiles == 2)
        store_register(SUMS + 3, second + TILE_FLOATS, r->by_line);
}

static inline __attribute__((always_inline)) void
add_groups(const struct product_factors *f, const struct rectangle *r, const struct groups *groups,
           const int line_tiles, const int lane_tiles)
{
    const int64_t by_group = (int64_t)GROUP_WORDS * f->lanes;
    const ptrdiff_t by_line = f->by_line, by_word = f->lanes * (ptrdiff_t)sizeof(float);
    const char *lines = f->lines + r->line * by_line + groups->first * f->by_group;
    const float *lanes = f->lanes_at + r->lane + groups->first * by_group;
    const ptrdiff_t low = f->low ? f->low - f->lanes_at : 0;
    begin_sums(r, groups->begins, line_tiles, lane_tiles);
    for (int g = 0; g < groups->count; g++, lines += f->by_group, lanes += by_group) {
        add_group(lines, by_line, lanes, by_word, true, line_tiles, lane_tiles);
        if (low)
            add_group(lines, by_line, lanes + low, by_word, false, line_tiles, lane_tiles);
    }
    end_sums(r, line_tiles, lane_tiles);
}

static __attribute__((noinline)) void add_to_rectangle(const struct product_factors *f,
                                                       const struct rectangle *r,
                                                       const struct groups *groups)
{
    const bool two_lines = r->lines > TILE_LINES, two_lanes = r->width > TILE_FLOATS;
    if (two_lines && two_lanes)
        add_groups(f, r, groups, 2, 2);
    else if (two_lines)
        add_groups(f, r, groups, 2, 1);
    else if (two_lanes)
        add_groups(f, r, groups, 1, 2);
    else
        add_groups(f, r, groups, 1, 1);
}

/* The shapes of the registers: arguments of shape_registers. */
struct shape {
    int lines, words;
};

static const struct shape full_shape = {TILE_LINES, GROUP_WORDS};

/* Gives the registers the shapes of `lines` and `words`, unless *now is already this pair. Updates
 * *now. A change takes some 200 cycles. */
static void set_shape(struct shape *now, int lines, int words)
{
    if (now->lines == lines && now->words == words)
        return;
    *now = (struct shape){lines, words};
    shape_registers(lines, words);
}

static void begin(void)
{
    shape_registers(full_shape.lines, full_shape.words);
}

static void end(void)
{
    release_registers();
}

static void sum_rectangle(const struct product_factors *f, const struct rectangle *r,
                          struct shape *now)
{
    const int lines = r->lines < TILE_LINES ? r->lines : TILE_LINES;
    const struct groups whole = {0, f->words / GROUP_WORDS, true};
    const struct groups rest = {whole.count, 1, whole.count == 0};
    if (whole.count > 0) {
        set_shape(now, lines, GROUP_WORDS);
        add_to_rectangle(f, r, &whole);
    }
    if (f->words % GROUP_WORDS > 0) {
        set_shape(now, lines, f->words % GROUP_WORDS);
        add_to_rectangle(f, r, &rest);
    }
}

static int lines_of(int64_t left)
{
    if (left >= 2 * TILE_LINES)
        return 2 * TILE_LINES;
    return left < TILE_LINES ? (int)left : TILE_LINES;
}

static int width_of(int left)
{
    return left < 2 * TILE_FLOATS ? left : 2 * TILE_FLOATS;
}

static void scores(const float *q_t, int lanes, int rows, const struct rows *k, int keys, float *s)
{
    require_built(TYPE_BF16);
    (void)rows; /* a register is multiplied as a whole, with its spare lanes */
    const ptrdiff_t group_bytes = GROUP_WORDS * sizeof(float);
    const struct product_factors f = {k->first, k->stride, group_bytes, q_t,
                                      NULL,     lanes,     (int)k->dim};
    struct shape now = full_shape;
    struct rectangle r = {.by_line = lanes * (ptrdiff_t)sizeof(float)};
    for (r.line = 0; r.line < keys; r.line += r.lines) {
        r.lines = lines_of(keys - r.line);
        for (r.lane = 0; r.lane < lanes; r.lane += r.width) {
            r.width = width_of(lanes - r.lane);
            r.sums = s + r.line * lanes + r.lane;
            sum_rectangle(&f, &r, &now);
        }
    }
    set_shape(&now, full_shape.lines, full_shape.words);
}

/* Where the weighted sums of V are added: `o` has a float for each column and lane. In each lane,
 * the new sums are multiplied by `largest`, and the old o by `rescale`. */
struct weighted {
    const float *largest, *rescale; /* rescale is NULL if the old o counts as 0 */
    int lanes;
    float *o;
};

/* Adds the sums of a rectangle, times `largest`, to o * rescale, and writes the result to o. If
 * `rescaled` is false, the old o counts as 0. */
static inline __attribute__((always_inline)) void
add_lines_to_o(const struct rectangle *r, const struct weighted *to, const bool rescaled)
{
    for (int j = 0; j < r->width; j += VECTOR) {
        const floats largest = load_aligned(to->largest + r->lane + j);
        floats rescale = broadcast(0.0f);
        if (rescaled)
            rescale = load_aligned(to->rescale + r->lane + j);
        float *o = to->o + r->line * to->lanes + r->lane + j;
        for (int i = 0; i < r->lines; i++, o += to->lanes) {
            const floats sum = load_aligned(r->sums + i * 2 * TILE_FLOATS + j);
            floats moved = broadcast(0.0f);
            if (rescaled)
                moved = load_aligned(o) * rescale;
            store_aligned(o, fma_v(sum, largest, moved));
        }
    }
}

static void add_to_o(const struct rectangle *r, const struct weighted *to)
{
    if (to->rescale)
        add_lines_to_o(r, to, true);
    else
        add_lines_to_o(r, to, false);
}

/* The most sums of a rectangle. */
enum { RECTANGLE = 2 * TILE_LINES * 2 * TILE_FLOATS };

static void weighted_v(const float *parts, int lanes, int rows, const float *largest,
                       const float *rescale, const struct rows *v, int keys, bool is_short,
                       float *o)
{
    require_built(TYPE_BF16);
    (void)rows;
    _Alignas(VECTOR * sizeof(float)) float sums[RECTANGLE];
    const float *const low = is_short ? NULL : parts + KEY_BLOCK / ELEMENTS * lanes;
    const ptrdiff_t line_bytes = GROUP_WORDS * sizeof(float);
    const struct product_factors f = {v->first, line_bytes, GROUP_WORDS * v->stride,          parts,
                                      low,      lanes,      (int)whole_quads(keys) / ELEMENTS};
    const struct weighted to = {largest, rescale, lanes, o};
    struct shape now = full_shape;
    struct rectangle r = {.sums = sums, .by_line = 2 * TILE_FLOATS * sizeof(float)};
    for (r.line = 0; r.line < v->dim; r.line += r.lines) {
        r.lines = lines_of(v->dim - r.line);
        for (r.lane = 0; r.lane < lanes; r.lane += r.width) {
            r.width = width_of(lanes - r.lane);
            sum_rectangle(&f, &r, &now);
            add_to_o(&r, &to);
        }
    }
    set_shape(&now, full_shape.lines, full_shape.words);
}

extern const struct grouped_kernels KERNEL(grouped);
const struct grouped_kernels KERNEL(grouped) = {
    .elements = ELEMENTS,
    .begin = begin,
    .end = end,
    .pack_row = pack_row,
    .pack_group = pack_group,
    .scores = scores,
    .softmax = softmax,
    .weighted_v = weighted_v,
};
