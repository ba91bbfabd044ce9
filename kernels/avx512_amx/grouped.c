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
 * Rapids starts one TDPBF16PS in 16 cycles, and one load in 8 cycles. A rectangle has 4 stores. A
 * store takes 16 cycles, in which no TDPBF16PS runs. Up to 16 vector instructions beside a
 * TDPBF16PS take no time. So the sums of a rectangle are finished (finish.h) while the next
 * rectangle is computed. Registers: 8 tmm. Finishing a line takes 6 zmm.
 */
#include "kernels/avx512/avx512.h"

#undef KERNEL
#define KERNEL(entry) attnkit_avx512_amx_##entry

#include "kernels/avx512/grouped/words.h"
#include "kernels/avx512_amx/finish.h"
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

/* Defines scale and softmax. */
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

/* `count` groups of words, from group `first` on. */
struct groups {
    int first, count;
    bool begins; /* whether sums begin with these groups */
};

/* Adds the products of a group to the sums. If loads_lines is false, the words of lines are still
 * in their registers. If `finish` is not NULL, lines of another rectangle are finished after each
 * TDPBF16PS: a few vector instructions take no time while TDPBF16PS is under way. */
static inline __attribute__((always_inline)) void
add_group(const char *lines, ptrdiff_t by_line, const float *lanes, ptrdiff_t by_word,
          const bool loads_lines, struct finish *finish, const enum purpose purpose,
          const int line_tiles, const int lane_tiles)
{
    load_register(LANES_OF, lanes, by_word);
    if (lane_tiles == 2)
        load_register(LANES_OF + 1, lanes + TILE_FLOATS, by_word);
    if (loads_lines)
        load_register(LINES, lines, by_line);
    multiply_registers(SUMS, LINES, LANES_OF);
    if (finish)
        finish_some(finish, purpose);
    if (lane_tiles == 2)
        multiply_registers(SUMS + 1, LINES, LANES_OF + 1);
    if (finish)
        finish_some(finish, purpose);
    if (line_tiles == 1)
        return;
    if (loads_lines)
        load_register(LINES + 1, lines + TILE_LINES * by_line, by_line);
    multiply_registers(SUMS + 2, LINES + 1, LANES_OF);
    if (finish)
        finish_some(finish, purpose);
    if (lane_tiles == 2)
        multiply_registers(SUMS + 3, LINES + 1, LANES_OF + 1);
    if (finish)
        finish_some(finish, purpose);
}

static inline __attribute__((always_inline)) void
begin_sums(float *sums, bool begins, const int line_tiles, const int lane_tiles)
{
    const ptrdiff_t by_line = SUMS_BY_LINE * sizeof(float);
    float *const second = sums + TILE_LINES * SUMS_BY_LINE;
    if (begins) {
        clear_register(SUMS);
        clear_register(SUMS + 1);
        clear_register(SUMS + 2);
        clear_register(SUMS + 3);
        return;
    }
    load_register(SUMS, sums, by_line);
    if (lane_tiles == 2)
        load_register(SUMS + 1, sums + TILE_FLOATS, by_line);
    if (line_tiles == 2)
        load_register(SUMS + 2, second, by_line);
    if (line_tiles == 2 && lane_tiles == 2)
        load_register(SUMS + 3, second + TILE_FLOATS, by_line);
}

static inline __attribute__((always_inline)) void end_sums(float *sums, const int line_tiles,
                                                           const int lane_tiles)
{
    const ptrdiff_t by_line = SUMS_BY_LINE * sizeof(float);
    float *const second = sums + TILE_LINES * SUMS_BY_LINE;
    store_register(SUMS, sums, by_line);
    if (lane_tiles == 2)
        store_register(SUMS + 1, sums + TILE_FLOATS, by_line);
    if (line_tiles == 2)
        store_register(SUMS + 2, second, by_line);
    if (line_tiles == 2 && lane_tiles == 2)
        store_register(SUMS + 3, second + TILE_FLOATS, by_line);
}

static inline __attribute__((always_inline)) void
add_groups(const struct product_factors *f, const struct rectangle *r, const struct groups *groups,
           struct finish *finish, const enum purpose purpose, const int line_tiles,
           const int lane_tiles)
{
    const int64_t by_group = (int64_t)GROUP_WORDS * f->lanes, next_group = f->by_group;
    const ptrdiff_t by_line = f->by_line, by_word = f->lanes * (ptrdiff_t)sizeof(float);
    const char *lines = f->lines + r->line * by_line + groups->first * f->by_group;
    const float *lanes = f->lanes_at + r->lane + groups->first * by_group;
    const ptrdiff_t low = f->low ? f->low - f->lanes_at : 0;
    begin_sums(r->sums, groups->begins, line_tiles, lane_tiles);
    for (int g = groups->count; g > 0; g--, lines += next_group, lanes += by_group) {
        add_group(lines, by_line, lanes, by_word, true, finish, purpose, line_tiles, lane_tiles);
        if (low)
            add_group(lines, by_line, lanes + low, by_word, false, finish, purpose, line_tiles,
                      lane_tiles);
    }
    end_sums(r->sums, line_tiles, lane_tiles);
}

/* Adds groups to the sums of rectangle r. The function is not inlined, so that all callers share
 * its code. */
static __attribute__((noinline)) void add_to_rectangle(const struct product_factors *f,
                                                       const struct rectangle *r,
                                                       const struct groups *groups)
{
    const bool two_lines = r->lines > TILE_LINES, two_lanes = r->width > TILE_FLOATS;
    if (two_lines && two_lanes)
        add_groups(f, r, groups, NULL, SCORES, 2, 2);
    else if (two_lines)
        add_groups(f, r, groups, NULL, SCORES, 2, 1);
    else if (two_lanes)
        add_groups(f, r, groups, NULL, SCORES, 1, 2);
    else
        add_groups(f, r, groups, NULL, SCORES, 1, 1);
}

static inline __attribute__((always_inline)) void
add_for_purpose(const struct product_factors *f, const struct rectangle *r,
                const struct groups *groups, const struct rectangle *before,
                const struct results *to, const enum purpose purpose)
{
    struct finish finish = begin_finish(before, to, purpose, 2);
    add_groups(f, r, groups, &finish, purpose, 2, 2);
    end_finish(&finish, before, to, purpose, 2);
}

/* Adds groups to the sums of rectangle r, and meanwhile finishes the sums of rectangle `before`.
 * Both rectangles have 2 x 2 registers. */
static __attribute__((noinline)) void add_and_finish(const struct product_factors *f,
                                                     const struct rectangle *r,
                                                     const struct groups *groups,
                                                     const struct rectangle *before,
                                                     const struct results *to)
{
    switch (to->purpose) {
    case SCORES:
        add_for_purpose(f, r, groups, before, to, SCORES);
        break;
    case FIRST_V:
        add_for_purpose(f, r, groups, before, to, FIRST_V);
        break;
    default:
        add_for_purpose(f, r, groups, before, to, MORE_V);
    }
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

static bool is_full(const struct rectangle *r)
{
    return r->lines > TILE_LINES && r->width > TILE_FLOATS;
}

/* Computes the sums of rectangle r, and finishes the sums of rectangle `before`. */
static void sum_rectangle(const struct product_factors *f, const struct rectangle *r,
                          const struct rectangle *before, const struct results *to,
                          struct shape *now)
{
    const int lines = r->lines < TILE_LINES ? r->lines : TILE_LINES;
    const struct groups whole = {0, f->words / GROUP_WORDS, true};
    const struct groups rest = {whole.count, 1, whole.count == 0};
    const bool beside = whole.count > 0 && is_full(r) && is_full(before);
    if (!beside && before->lines > 0)
        finish_rectangle(before, to);
    if (whole.count > 0)
        set_shape(now, lines, GROUP_WORDS);
    if (beside)
        add_and_finish(f, r, &whole, before, to);
    else if (whole.count > 0)
        add_to_rectangle(f, r, &whole);
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

/* Computes and finishes the sums of `lines` lines. There is room for the sums of two rectangles:
 * while the sums of a rectangle are computed, the sums of the rectangle before it are finished. */
static void sum_lines(const struct product_factors *f, int64_t lines, const struct results *to)
{
    _Alignas(VECTOR * sizeof(float)) float sums[2][RECTANGLE];
    struct rectangle two[2] = {{.sums = sums[0]}, {.sums = sums[1]}};
    struct rectangle *r = &two[0], *before = &two[1];
    struct shape now = full_shape;
    int height;
    for (int64_t line = 0; line < lines; line += height) {
        height = lines_of(lines - line);
        for (int lane = 0; lane < f->lanes; lane += 2 * TILE_FLOATS) {
            r->line = line;
            r->lines = height;
            r->lane = lane;
            r->width = width_of(f->lanes - lane);
            sum_rectangle(f, r, before, to, &now);
            struct rectangle *const done = r;
            r = before;
            before = done;
        }
    }
    finish_rectangle(before, to);
    set_shape(&now, full_shape.lines, full_shape.words);
}

static void scores(const float *q_t, int lanes, int rows, const struct rows *k, int keys,
                   const struct scaling *scaling, float *s)
{
    require_built(TYPE_BF16);
    (void)rows; /* a register is multiplied as a whole, with its spare lanes */
    const bool scales = scaling && !scaling->visible;
    _Alignas(VECTOR * sizeof(float)) float factor[MAX_LANES], most[MAX_LANES];
    const ptrdiff_t group_bytes = GROUP_WORDS * sizeof(float);
    const struct product_factors f = {k->first, k->stride, group_bytes, q_t,
                                      NULL,     lanes,     (int)k->dim};
    const struct results to = {
        .purpose = SCORES,
        .to = s,
        .factor = factor,
        .most = scales ? scaling->maxima : most,
        .lanes = lanes,
    };
    for (int lane = 0; lane < lanes; lane += VECTOR) {
        store_aligned(factor + lane, broadcast(scales ? scaling->scale_log2 : 1.0f));
        store_aligned(to.most + lane, minus_infinity());
    }
    sum_lines(&f, keys, &to);
    if (scaling && !scales)
        scale(s, lanes, keys, scaling);
}

static void weighted_v(const float *parts, int lanes, int rows, const float *largest,
                       const float *rescale, const struct rows *v, int keys, bool is_short,
                       float *o)
{
    require_built(TYPE_BF16);
    (void)rows;
    const float *const low = is_short ? NULL : parts + KEY_BLOCK / ELEMENTS * lanes;
    const ptrdiff_t line_bytes = GROUP_WORDS * sizeof(float);
    const struct product_factors f = {v->first, line_bytes, GROUP_WORDS * v->stride,          parts,
                                      low,      lanes,      (int)whole_quads(keys) / ELEMENTS};
    const struct results to = {
        .purpose = rescale ? MORE_V : FIRST_V,
        .to = o,
        .factor = largest,
        .rescale = rescale,
        .lanes = lanes,
    };
    sum_lines(&f, v->dim, &to);
}

extern const struct grouped_kernels KERNEL(grouped);
const struct grouped_kernels KERNEL(grouped) = {
    .elements = ELEMENTS,
    .begin = begin,
    .end = end,
    .pack_row = pack_row,
    .pack_group = pack_group,
    .scores = scores,
    .scale = scale,
    .softmax = softmax,
    .weighted_v = weighted_v,
};
