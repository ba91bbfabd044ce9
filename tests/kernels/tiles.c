/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares entries of the kernel table with plain C code, written from the contracts in kernels.h.
 * The tests run on every instruction set, or on the instruction set that the first argument names.
 * Other files of this folder test the remaining entries. Each entry has its own test, so that a
 * failure names the entry. A round draws a shape and data from its number and the seed. The dims of
 * the rounds go through the values of AXIS_HEAD_DIM, with exceptions (draw_shape). Rows of the
 * caller lie in slots (tests/support/memory.h). Scratch of the library lies between canaries.
 *
 * Usage: tiles [ISA [SEED]]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "dispatch/cpu/isa.h"
#include "kernels/scalar/scalar.h"
#include "tests/cases/case.h"
#include "tests/support/memory.h"
#include "tests/support/units.h"

enum {
    WALKS = 4, /* how often the rounds of an entry go through the values of AXIS_HEAD_DIM */
    MAX_DIM = 576,
    MAX_ISAS = 8,
    PATTERN = 0xa5, /* a byte of memory that nobody has written to */
};

/* The kinds of numbers in the data. All but SPECIAL are finite. */
enum data {
    UNIFORM, /* in [-1, 1) */
    WIDE,    /* exponents are far apart */
    TINY,    /* subnormal numbers, or subnormal products */
    SPECIAL, /* NaN, infinities, zeros and the like in some rows */
    DATA,
};

struct round {
    const struct kernels *kernels;
    uint64_t random;
    int number;
    int head_dim, value_dim, keys;
    int rows;  /* number of rows; in a panel, this is the number of lanes in use */
    int lanes; /* number of lanes of a panel */
    enum data data;
    int64_t compared; /* values compared in all rounds so far */
    bool passed;
};

/* --- Scratch: aligned blocks with canaries before and after ----------------------------------- */

enum {
    CANARY = 16, /* fewest floats of a canary: a cache line, the alignment of scratch */
    MAX_BLOCKS = 16,
    POOL_FLOATS = 6 * MAX_LANES * (MAX_DIM + 8),
};

static struct {
    _Alignas(64) float memory[POOL_FLOATS];
    size_t used;
    int blocks;
    struct {
        size_t first, end;
    } gap[MAX_BLOCKS]; /* the canaries before each block, from float `first` to float `end` of
                          memory */
} pool;

static bool is_untouched(const void *memory, size_t size)
{
    const unsigned char *byte = memory;
    for (size_t i = 0; i < size; i++)
        if (byte[i] != PATTERN)
            return false;
    return true;
}

/* Allocates memory for `count` floats. The memory begins `misalignment` floats after an aligned
 * address. */
static float *take(size_t count, size_t misalignment)
{
    const size_t before = pool.used;
    const size_t first = (before + 2 * CANARY - 1) / CANARY * CANARY + misalignment;
    pool.used = first + count;
    assert_true(pool.blocks < MAX_BLOCKS && pool.used + CANARY <= POOL_FLOATS);
    pool.gap[pool.blocks].first = before;
    pool.gap[pool.blocks++].end = first;
    memset(pool.memory + before, PATTERN, (pool.used + CANARY - before) * sizeof(float));
    return pool.memory + first;
}

static float *take_lanes(const struct round *w, int64_t lines)
{
    return take((size_t)(lines * w->lanes), 0);
}

static void begin_scratch(void)
{
    pool.used = 0;
    pool.blocks = 0;
}

static bool canaries_are_untouched(void)
{
    bool untouched = is_untouched(pool.memory + pool.used, CANARY * sizeof(float));
    for (int i = 0; i < pool.blocks; i++)
        untouched &= is_untouched(pool.memory + pool.gap[i].first,
                                  (pool.gap[i].end - pool.gap[i].first) * sizeof(float));
    return untouched;
}

/* --- Rows of the caller, each at the end or the beginning of a slot --------------------------- */

/* Regions of slots in the order of memory. An unmapped slot lies before and after the rows of each
 * region. */
enum region {
    Q_ROWS,
    K_ROWS,
    V_ROWS,
    OUT_ROWS,
    LSE_ROWS,
    VISIBLE_ROW,
    K_SCALES,
    V_SCALES,
    BIAS_ROWS,
    SUM_ROWS,
    KEEP_ROWS,
};

enum {
    MAX_REGION_ROWS = KEY_BLOCK > MAX_LANES ? KEY_BLOCK : MAX_LANES,
    REGION_SLOTS = MAX_REGION_ROWS + 2,
};

/* Places `count` rows of `bytes` bytes each. */
static struct rows place_bytes(struct round *w, enum region region, int count, int64_t bytes)
{
    const int slot = (int)region * REGION_SLOTS + 1;
    assert_in_range(count, 1, MAX_REGION_ROWS);
    char *first = memory_slots(slot, count);
    memory_hide_slots(slot + count, 1);
    for (int i = 0; i < count; i++)
        memset(first + i * SLOT_STRIDE, PATTERN, SLOT_BYTES);
    if (random_below(&w->random, 2))
        first += SLOT_BYTES - bytes;
    if (random_below(&w->random, 2))
        return (struct rows){first + (count - 1) * SLOT_STRIDE, -SLOT_STRIDE, bytes};
    return (struct rows){first, SLOT_STRIDE, bytes};
}

static struct rows place_rows(struct round *w, enum region region, int count, int64_t dim)
{
    struct rows rows = place_bytes(w, region, count, dim * (int64_t)sizeof(float));
    rows.dim = dim;
    return rows;
}

static float *row_at(struct rows rows, int i)
{
    return (float *)(rows.first + i * rows.stride);
}

/* Returns whether the slot of a row is untouched outside the row. Overwrites the row with the
 * pattern. */
static bool is_all_else_untouched(float *row, int64_t dim)
{
    const uintptr_t slot = (uintptr_t)row & ~(uintptr_t)(SLOT_BYTES - 1);
    memset(row, PATTERN, (size_t)dim * sizeof *row);
    return is_untouched((const void *)slot, SLOT_BYTES);
}

/* --- Tiles of K: each at the end or the beginning of a place of its own ----------------------- */

enum {
    MAX_TILES = KEY_BLOCK / TILE_KEYS,
    PLACE_BYTES = 10 * SLOT_BYTES, /* bytes of a place */
    PLACE_STRIDE = PLACE_BYTES + SLOT_BYTES,
    PLACES_BYTES = 2 * MAX_TILES * PLACE_STRIDE + SLOT_BYTES,
};

_Static_assert(TILE_KEYS *MAX_DIM * sizeof(float) < PLACE_BYTES, "room for a tile of any type");

/* Places for the tiles of a block, then for their scales, each between unmapped pages. */
static char *places;

static void map_places(void)
{
    places = mmap(NULL, PLACES_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(places != MAP_FAILED);
    for (int i = 0; i < 2 * MAX_TILES; i++)
        assert_int_equal(
            mprotect(places + SLOT_BYTES + i * PLACE_STRIDE, PLACE_BYTES, PROT_READ | PROT_WRITE),
            0);
}

/* Fills a place with bytes that are NaN in every type that has NaN. Returns the address of `bytes`
 * bytes in the place, at its edge or up to 15 elements of `align` bytes from its edge. */
static void *take_place(struct round *w, int index, int64_t bytes, int64_t align)
{
    if (!places)
        map_places();
    char *const first = places + SLOT_BYTES + index * PLACE_STRIDE;
    const int64_t gap = random_below(&w->random, 2) ? align * random_below(&w->random, 16) : 0;
    assert_true(gap + bytes <= PLACE_BYTES);
    memset(first, 0xff, PLACE_BYTES);
    return random_below(&w->random, 2) ? first + gap : first + PLACE_BYTES - bytes - gap;
}

/* --- Drawing ---------------------------------------------------------------------------------- */

static float draw(struct round *w)
{
    const float u = random_uniform(&w->random);
    switch (w->data) {
    case WIDE:
        return ldexpf(u, (int)random_below(&w->random, 80) - 40);
    case TINY:
        return u * (random_below(&w->random, 2) ? 0x1p-130f : 0x1p-70f);
    default:
        return u;
    }
}

/* Draws `count` values, which lie `step` floats apart. If the data is SPECIAL, one call in four
 * puts the same special value at several random places. */
static void draw_line(struct round *w, float *x, int64_t count, int64_t step)
{
    static const float specials[] = {NAN, INFINITY, -INFINITY, -0.0f, 3e38f, 1e-45f};
    const bool is_special = w->data == SPECIAL && random_below(&w->random, 4) == 0;
    const float special = specials[random_below(&w->random, 6)];
    const int one_in = 1 << random_below(&w->random, 6);
    for (int64_t i = 0; i < count; i++)
        x[i * step] = is_special && random_below(&w->random, one_in) == 0 ? special : draw(w);
}

/* Draws an array [lines][lanes] of numbers for a panel, one lane after the other. */
static void draw_lanes(struct round *w, float *x, int64_t lines)
{
    for (int lane = 0; lane < w->lanes; lane++)
        draw_line(w, x + lane, lines, w->lanes);
}

static struct rows draw_rows(struct round *w, enum region region, int count, int64_t dim)
{
    const struct rows rows = place_rows(w, region, count, dim);
    for (int i = 0; i < count; i++)
        draw_line(w, row_at(rows, i), dim, 1);
    return rows;
}

static float draw_scale(struct round *w)
{
    static const float scales[] = {0.18f, 1.44f, 100.0f, -0.3f, 0.0f};
    return scales[random_below(&w->random, 5)];
}

/* --- States ----------------------------------------------------------------------------------- */

/* The states of a panel or of decode. In this file, M is the maximum of a row, l is its sum of
 * weights, and o is its weighted sum of V. Element `column` of o of row `row` lies at st.out[row *
 * row_step + column * column_step]. */
struct states {
    struct state st;
    int rows;
    int64_t value_dim, row_step, column_step;
};

static struct states take_panel_states(const struct round *w)
{
    return (struct states){
        .st = {take_lanes(w, 1), take_lanes(w, 1), take_lanes(w, w->value_dim)},
        .rows = w->lanes,
        .value_dim = w->value_dim,
        .row_step = 1,
        .column_step = w->lanes,
    };
}

static struct states take_decode_states(const struct round *w)
{
    const size_t rows = (size_t)w->rows, values = rows * (size_t)w->value_dim;
    return (struct states){
        .st = {take(MAX_DECODE_ROWS, 1), take(MAX_DECODE_ROWS, 2), take(values, 3)},
        .rows = w->rows,
        .value_dim = w->value_dim,
        .row_step = w->value_dim,
        .column_step = 1,
    };
}

static float *out_at(const struct states *s, int row, int64_t column)
{
    return &s->st.out[row * s->row_step + column * s->column_step];
}

static size_t out_count(const struct states *s)
{
    return (size_t)(s->rows * s->value_dim);
}

/* Draws a maximum M and a sum l that can result from keys. If M is finite and no score is NaN, l is
 * at least 1/2: M is the largest score, rounded up, so the weight of this score is at least 1/2. */
static void draw_max_and_sum(struct round *w, float *row_max, float *row_sum)
{
    *row_max = (float)(random_below(&w->random, 300) - 150);
    *row_sum = 0.5f + 300.0f * (1.0f + random_uniform(&w->random));
    switch (random_below(&w->random, w->data == SPECIAL ? 8 : 4)) {
    case 0: /* no key seen, or only scores of -inf */
        *row_max = -INFINITY;
        *row_sum = 0.0f;
        break;
    case 5: /* a NaN among the scores */
        *row_sum = NAN;
        break;
    case 6: /* only NaN */
        *row_max = -INFINITY;
        *row_sum = NAN;
        break;
    case 7: /* a score of +inf */
        *row_max = INFINITY;
        *row_sum = NAN;
        break;
    }
}

/* Draws states that can result from keys. If l is NaN, every column of o is NaN. If l is 0, a
 * column is NaN if V was not finite in this column, and 0 otherwise. */
static void draw_states(struct round *w, struct states *s)
{
    for (int r = 0; r < s->rows; r++) {
        draw_max_and_sum(w, &s->st.row_max[r], &s->st.row_sum[r]);
        draw_line(w, out_at(s, r, 0), s->value_dim, s->column_step);
        for (int64_t c = 0; c < s->value_dim; c++) {
            float *o = out_at(s, r, c);
            if (isnan(s->st.row_sum[r]))
                *o = NAN;
            else if (s->st.row_sum[r] == 0.0f)
                *o = isfinite(*o) ? 0.0f : NAN;
        }
    }
}

static float odd_value(struct round *w)
{
    static const uint32_t bits[] = {0x7fc12345, 0xffc00000, 0x7f800000, 0xff800000,
                                    0x00000001, 0x807fffff, 0x80000000, 0x7f7fffff};
    return float_from_bits(bits[random_below(&w->random, 8)]);
}

/* Returns whether to put a single odd value, such as a NaN, among finite values. The kernel must
 * find this value if it is not finite. */
static bool is_one_odd(struct round *w)
{
    return w->data != SPECIAL && random_below(&w->random, 2);
}

/* Draws states that a caller may pass, even if they cannot result from keys: any l and any o. */
static void draw_odd_states(struct round *w, struct states *s)
{
    static const float sums[] = {INFINITY, -0.0f, 0x1p-149f, 0x1p-126f, FLT_MAX, NAN};
    draw_states(w, s);
    if (s->value_dim > 0 && is_one_odd(w)) {
        const int row = (int)random_below(&w->random, s->rows);
        *out_at(s, row, random_below(&w->random, s->value_dim)) = odd_value(w);
    }
    for (int r = 0; r < s->rows && w->data == SPECIAL; r++) {
        if (random_below(&w->random, 2))
            continue;
        if (random_below(&w->random, 2))
            s->st.row_sum[r] = sums[random_below(&w->random, 6)];
        for (int64_t i = random_below(&w->random, 4); i > 0 && s->value_dim > 0; i--)
            *out_at(s, r, random_below(&w->random, s->value_dim)) = odd_value(w);
    }
}

static void copy_states(const struct states *to, const struct states *from)
{
    memcpy(to->st.row_max, from->st.row_max, (size_t)from->rows * sizeof(float));
    memcpy(to->st.row_sum, from->st.row_sum, (size_t)from->rows * sizeof(float));
    memcpy(to->st.out, from->st.out, out_count(from) * sizeof(float));
}

/* --- Totals of a panel ------------------------------------------------------------------------ */

static double *take_doubles(size_t count)
{
    return (double *)take(2 * count, 0);
}

static struct total take_total(const struct round *w)
{
    const size_t lanes = (size_t)w->lanes;
    return (struct total){take_lanes(w, 1), take_doubles(lanes),
                          take_doubles(lanes * (size_t)w->value_dim)};
}

/* Draws a number near x that has more bits than binary32. With SPECIAL data, one number in 16 is
 * then multiplied by a power of two between 2^-1000 and 2^900. */
static double draw_wide(struct round *w, float x)
{
    static const double far[] = {0x1p130, 0x1p900, 0x1p-140, 0x1p-1000};
    const double wide = (double)x * (1.0 + 0x1p-27 * (double)random_uniform(&w->random));
    const bool is_far = w->data == SPECIAL && random_below(&w->random, 16) == 0;
    return is_far ? wide * far[random_below(&w->random, 4)] : wide;
}

static void draw_doubles(struct round *w, const float *from, double *to, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = draw_wide(w, from[i]);
}

/* Draws a total from states of draw_odd_states. */
static struct total draw_total(struct round *w)
{
    const struct total total = take_total(w);
    const size_t lanes = (size_t)w->lanes;
    struct states s = take_panel_states(w);
    draw_odd_states(w, &s);
    memcpy(total.row_max, s.st.row_max, lanes * sizeof(float));
    draw_doubles(w, s.st.row_sum, total.row_sum, lanes);
    draw_doubles(w, s.st.out, total.out, lanes * (size_t)w->value_dim);
    return total;
}

/* --- Comparing -------------------------------------------------------------------------------- */

/* The ways to compare numbers. With ANY_ZEROS, the sign of a zero does not count. Maxima are
 * compared with ANY_ZEROS. o of a struct state is also compared with ANY_ZEROS, because `finish`
 * drops the sign of a zero in o. check_decode is the exception: if a row sees a key, check_decode
 * compares its o with EXACT_ZEROS. out and the lse are compared with EXACT_BITS: every bit counts,
 * even of a NaN. With EXACT_ZEROS and ANY_ZEROS, any NaN equals any NaN. */
enum zeros { EXACT_ZEROS, ANY_ZEROS, EXACT_BITS };

static void expect(struct round *w, const char *what, const float *got, const float *expected,
                   size_t count, enum zeros zeros)
{
    w->compared += (int64_t)count;
    if (memcmp(got, expected, count * sizeof *got) == 0)
        return;
    for (size_t i = 0; i < count; i++) {
        const bool both_zero = got[i] == 0.0f && expected[i] == 0.0f;
        const bool is_same = zeros == EXACT_BITS ? memcmp(&got[i], &expected[i], sizeof *got) == 0
                                                 : same_numbers(&got[i], &expected[i], 1);
        if (is_same || (zeros == ANY_ZEROS && both_zero))
            continue;
        printf("# %s[%zu] of %zu is %a (%08x), not %a\n", what, i, count, (double)got[i],
               bits_from_float(got[i]), (double)expected[i]);
        fail();
    }
}

/* Compares numbers of a total, with the signs of zeros. Any NaN equals any NaN. */
static void expect_doubles(struct round *w, const char *what, const double *got,
                           const double *expected, size_t count)
{
    w->compared += (int64_t)count;
    for (size_t i = 0; i < count; i++) {
        if (memcmp(&got[i], &expected[i], sizeof *got) == 0 ||
            (isnan(got[i]) && isnan(expected[i])))
            continue;
        printf("# %s[%zu] of %zu is %a, not %a\n", what, i, count, got[i], expected[i]);
        fail();
    }
}

static void expect_bits(const char *what, uint64_t got, uint64_t expected)
{
    if (got != expected)
        printf("# %s: %#llx, not %#llx\n", what, (unsigned long long)got,
               (unsigned long long)expected);
    assert_true(got == expected);
}

static void expect_max_and_sum(struct round *w, const struct states *got,
                               const struct states *expected)
{
    const size_t rows = (size_t)got->rows;
    expect(w, "row_max", got->st.row_max, expected->st.row_max, rows, ANY_ZEROS);
    expect(w, "row_sum", got->st.row_sum, expected->st.row_sum, rows, EXACT_ZEROS);
}

static void expect_states(struct round *w, const struct states *got, const struct states *expected)
{
    expect_max_and_sum(w, got, expected);
    expect(w, "o", got->st.out, expected->st.out, out_count(got), ANY_ZEROS);
}

static void expect_total(struct round *w, const struct total *got, const struct total *expected)
{
    const size_t lanes = (size_t)w->lanes;
    expect(w, "row_max", got->row_max, expected->row_max, lanes, ANY_ZEROS);
    expect_doubles(w, "row_sum", got->row_sum, expected->row_sum, lanes);
    expect_doubles(w, "o", got->out, expected->out, lanes * (size_t)w->value_dim);
}

/* --- The contract in plain C ------------------------------------------------------------------ */

static float chain(const float *a, int64_t a_step, const float *b, int64_t b_step, int64_t count)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < count; i++)
        sum = fmaf(a[i * a_step], b[i * b_step], sum);
    return sum;
}

/* Computes the weighted sum of a column of V by a chain of fused multiply-adds over the keys. The
 * weights lie `step` floats apart. */
static float weighted_column(const float *p, int64_t step, struct rows v, int keys, int64_t column)
{
    return chain(p, step, row_at(v, 0) + column, v.stride / (int64_t)sizeof(float), keys);
}

/* Replaces the scores of a row by weights, and updates *row_max and *row_sum. The scores lie `step`
 * floats apart. Returns the factor by which the weighted sum of V must be multiplied. */
static float model_softmax(float *s, int64_t step, int keys, int visible, float scale_log2,
                           float *row_max, float *row_sum)
{
    float new_max = *row_max, sum = 0.0f;
    for (int key = 0; key < keys; key++) {
        float *t = &s[key * step];
        *t = key < visible ? *t * scale_log2 : -INFINITY;
        new_max = ceilf(*t) > new_max ? ceilf(*t) : new_max;
    }
    for (int key = 0; key < keys; key++) {
        s[key * step] = scalar_exp2(s[key * step] - finite_max(new_max));
        sum += s[key * step];
    }
    const float rescale = scalar_exp2(*row_max - finite_max(new_max));
    *row_sum = fmaf(*row_sum, rescale, sum);
    *row_max = new_max;
    return rescale;
}

static void model_adjust(const struct adjust *how, const float *bias, int n, float *s)
{
    for (int i = 0; i < n; i++) {
        const float x = how->capped ? scalar_tanh(s[i] * how->to_cap) : s[i];
        if (!bias)
            s[i] = x * how->factor;
        else
            s[i] = bias[i] == -INFINITY ? -INFINITY : fmaf(x, how->factor, bias[i]);
    }
}

/* Computes `decode` for one row. k and v are the rows of the block, widened. A row that sees no key
 * keeps its state. */
static void model_decode(const struct states *s, int row, const struct decode_block *block,
                         struct rows k, struct rows v, float scale_log2)
{
    const int visible = block->visible[row];
    if (visible == 0)
        return;
    float p[KEY_BLOCK];
    for (int key = 0; key < visible; key++)
        p[key] = chain(row_at(k, key), 1, block->q[row], 1, k.dim);
    if (block->adjust) {
        model_adjust(block->adjust, block->bias ? block->bias[row] : NULL, visible, p);
        scale_log2 = 1.0f;
    }
    const float rescale =
        model_softmax(p, 1, visible, visible, scale_log2, &s->st.row_max[row], &s->st.row_sum[row]);
    for (int key = 0; block->keep && key < visible; key++)
        p[key] *= block->keep[row][key];
    for (int64_t c = 0; c < v.dim; c++) {
        float *o = out_at(s, row, c);
        *o = fmaf(*o, rescale, weighted_column(p, 1, v, visible, c));
    }
}

static void model_fold(const struct round *w, const struct total *total, const struct states *chunk)
{
    for (int r = 0; r < w->lanes; r++) {
        const float old_max = total->row_max[r], chunk_max = chunk->st.row_max[r];
        const float new_max = old_max > chunk_max ? old_max : chunk_max;
        const double a = (double)scalar_exp2(old_max - finite_max(new_max));
        const double b = (double)scalar_exp2(chunk_max - finite_max(new_max));
        total->row_max[r] = new_max;
        total->row_sum[r] = fma(total->row_sum[r], a, (double)chunk->st.row_sum[r] * b);
        for (int64_t c = 0; c < w->value_dim; c++) {
            double *const o = &total->out[c * w->lanes + r];
            *o = fma(*o, a, (double)*out_at(chunk, r, c) * b);
        }
    }
}

/* The expected result of a row. */
struct finished {
    float *out; /* [value_dim] */
    float lse;
    bool finite, has_log; /* finite: all of out is finite; has_log: lse is promised, because l is
                             not subnormal */
};

static void set_result(struct finished *row, int64_t c, float quotient)
{
    row->out[c] = isnan(quotient) ? float_from_bits(0x7fc00000) : quotient + 0.0f;
    row->finite &= isfinite(quotient) != 0;
}

static void set_lse(struct finished *row, float row_max, float l)
{
    const float lse = fmaf(row_max, LN2_HI, fmaf(row_max, LN2_LO, scalar_log(l)));
    row->has_log = fpclassify(l) != FP_SUBNORMAL;
    row->lse = isnan(lse) ? float_from_bits(0x7fc00000) : lse;
}

static struct finished model_finish(const struct states *s, int row, float *out)
{
    const float l = s->st.row_sum[row];
    struct finished f = {.out = out, .finite = true};
    for (int64_t c = 0; c < s->value_dim; c++)
        set_result(&f, c, *out_at(s, row, c) / (l == 0.0f ? 1.0f : l));
    set_lse(&f, s->st.row_max[row], l);
    return f;
}

static struct finished model_finish_total(const struct round *w, const struct total *total, int row,
                                          float *out)
{
    const double l = total->row_sum[row], divisor = l == 0.0 ? 1.0 : l;
    struct finished f = {.out = out, .finite = true};
    for (int64_t c = 0; c < w->value_dim; c++)
        set_result(&f, c, (float)(total->out[c * w->lanes + row] / divisor));
    set_lse(&f, total->row_max[row], (float)l);
    return f;
}

/* --- The entries ------------------------------------------------------------------------------ */

static void check_exp2(struct round *w)
{
    const int n = w->value_dim;
    float *x = row_at(draw_rows(w, Q_ROWS, 1, n), 0);
    float *y = row_at(place_rows(w, OUT_ROWS, 1, n), 0);
    float *expected = take((size_t)n, 0);
    for (int i = 0; i < n; i++) {
        x[i] = 0.0f - 200.0f * fabsf(x[i]);
        expected[i] = scalar_exp2(x[i]);
    }
    w->kernels->exp2(x, y, (size_t)n);
    expect(w, "y", y, expected, (size_t)n, EXACT_ZEROS);
    assert_true(is_all_else_untouched(y, n));
}

static void check_pack_q(struct round *w)
{
    const int lanes = random_below(&w->random, 4) ? w->lanes : ROW_GROUP;
    const struct rows q = draw_rows(w, Q_ROWS, w->rows, w->head_dim);
    const size_t count = (size_t)(w->head_dim * lanes);
    float *q_t = take(count, 0), *expected = take(count, 0);
    const float *rows[MAX_LANES];
    for (int lane = 0; lane < lanes; lane++) {
        rows[lane] = row_at(q, lane < w->rows ? lane : w->rows - 1);
        for (int d = 0; d < w->head_dim; d++)
            expected[d * lanes + lane] = rows[lane][d];
    }
    w->kernels->pack_q(rows, lanes, w->head_dim, q_t);
    expect(w, "q_t", q_t, expected, count, EXACT_ZEROS);
}

static void check_scores(struct round *w)
{
    const int lanes = w->lanes;
    const struct rows k = draw_rows(w, K_ROWS, w->keys, w->head_dim);
    /* Rows that are only prefetched may lie in unmapped memory. */
    const struct rows ahead = {(const char *)(uintptr_t)SLOT_BYTES, 64, w->value_dim};
    float *q_t = take_lanes(w, w->head_dim);
    float *s = take_lanes(w, w->keys), *expected = take_lanes(w, w->keys);
    draw_lanes(w, q_t, w->head_dim);
    for (int key = 0; key < w->keys; key++)
        for (int lane = 0; lane < lanes; lane++)
            expected[key * lanes + lane] = chain(row_at(k, key), 1, q_t + lane, lanes, k.dim);
    w->kernels->scores(q_t, lanes, &k, w->keys, s, random_below(&w->random, 2) ? &ahead : NULL);
    expect(w, "s", s, expected, (size_t)(w->keys * lanes), EXACT_ZEROS);
}

/* Draws how many keys each lane sees, or returns NULL, which means that each lane sees all keys. */
static const int32_t *draw_visible_lanes(struct round *w)
{
    if (random_below(&w->random, 3) == 0)
        return NULL;
    const int lanes = w->lanes;
    int32_t *visible = (int32_t *)row_at(place_rows(w, VISIBLE_ROW, 1, lanes), 0);
    for (int lane = 0; lane < lanes; lane++)
        visible[lane] = (int32_t)random_below(&w->random, w->keys + 1);
    return visible;
}

static void check_softmax(struct round *w)
{
    const int lanes = w->lanes;
    const size_t scores = (size_t)(w->keys * lanes);
    const int32_t *visible = draw_visible_lanes(w);
    const float scale_log2 = draw_scale(w);
    struct states got = take_panel_states(w), expected = take_panel_states(w);
    float *s = take_lanes(w, w->keys), *expected_s = take_lanes(w, w->keys);
    float *rescale = take_lanes(w, 1), *expected_rescale = take_lanes(w, 1);
    draw_states(w, &got);
    copy_states(&expected, &got);
    draw_lanes(w, s, w->keys);
    memcpy(expected_s, s, scores * sizeof *s);
    for (int lane = 0; lane < lanes; lane++)
        expected_rescale[lane] =
            model_softmax(expected_s + lane, lanes, w->keys, visible ? visible[lane] : w->keys,
                          scale_log2, &expected.st.row_max[lane], &expected.st.row_sum[lane]);

    w->kernels->softmax(s, lanes, w->keys, visible, scale_log2, &got.st, rescale);
    expect(w, "s", s, expected_s, scores, EXACT_ZEROS);
    expect(w, "rescale", rescale, expected_rescale, (size_t)lanes, EXACT_ZEROS);
    expect_states(w, &got, &expected);
}

static struct adjust draw_adjust(struct round *w)
{
    static const float to_cap[] = {0.002f, 0.18f, 1.0f, 30.0f};
    struct adjust how = {.capped = random_below(&w->random, 2), .factor = draw_scale(w)};
    how.to_cap = to_cap[random_below(&w->random, 4)];
    return how;
}

/* Draws scores or a bias. In half of the calls, some of the numbers are special. How many they are
 * on average is drawn once for each call. */
static void draw_scores(struct round *w, float *x, int count)
{
    static const float specials[] = {-INFINITY, -INFINITY, NAN, INFINITY, -0x1p126f, -0.0f};
    const int one_in = 1 << random_below(&w->random, 6);
    const bool is_special = random_below(&w->random, 2);
    for (int i = 0; i < count; i++)
        x[i] = is_special && random_below(&w->random, one_in) == 0
                   ? specials[random_below(&w->random, 6)]
                   : 10.0f * draw(w);
}

static void check_adjust(struct round *w)
{
    const int n = (int)random_below(&w->random, 4) * w->kernels->vector +
                  (int)random_below(&w->random, w->kernels->vector);
    const struct adjust how = draw_adjust(w);
    float *s = row_at(place_rows(w, OUT_ROWS, 1, n), 0);
    float *bias = random_below(&w->random, 3) ? row_at(place_rows(w, BIAS_ROWS, 1, n), 0) : NULL;
    draw_scores(w, s, n);
    if (bias)
        draw_scores(w, bias, n);
    float *expected = take((size_t)n, 0);
    memcpy(expected, s, (size_t)n * sizeof *s);
    model_adjust(&how, bias, n, expected);
    w->kernels->adjust(&how, bias, (size_t)n, s);
    expect(w, "t", s, expected, (size_t)n, EXACT_ZEROS);
    assert_true(n == 0 || is_all_else_untouched(s, n));
}

/* Draws weights and rescale factors like those that `softmax` returns. Weights are in [0, 1] or
 * NaN. Weights of keys that a lane does not see are 0 or NaN. Factors are powers of two, 0 or
 * NaN. */
static void draw_weights(struct round *w, float *p, float *rescale)
{
    const int lanes = w->lanes;
    draw_lanes(w, p, w->keys);
    for (int lane = 0; lane < lanes; lane++) {
        const int visible = (int)random_below(&w->random, 2 * w->keys);
        for (int key = 0; key < w->keys; key++) {
            float *x = &p[key * lanes + lane];
            if (!isnan(*x))
                *x = key < visible ? fminf(fabsf(*x), 1.0f) : 0.0f;
        }
        rescale[lane] = scalar_exp2(-(float)random_below(&w->random, 152));
        if (w->data == SPECIAL && random_below(&w->random, 8) == 0)
            rescale[lane] = NAN;
    }
}

static void check_weighted_v(struct round *w)
{
    const int lanes = w->lanes;
    const struct rows v = draw_rows(w, V_ROWS, w->keys, w->value_dim);
    float *p = take_lanes(w, w->keys), *rescale = take_lanes(w, 1);
    float *o = take_lanes(w, v.dim), *expected = take_lanes(w, v.dim);
    const bool first = random_below(&w->random, 4) == 0;
    /* Rows that are only prefetched may lie in unmapped memory. */
    const struct rows ahead = {(const char *)(uintptr_t)SLOT_BYTES, 64, w->head_dim};
    draw_weights(w, p, rescale);
    if (first)
        memset(rescale, 0, (size_t)lanes * sizeof *rescale);
    else
        draw_lanes(w, o, v.dim);
    for (int64_t c = 0; c < v.dim; c++)
        for (int lane = 0; lane < lanes; lane++)
            expected[c * lanes + lane] = fmaf(first ? 0.0f : o[c * lanes + lane], rescale[lane],
                                              weighted_column(p + lane, lanes, v, w->keys, c));
    w->kernels->weighted_v(p, lanes, first ? NULL : rescale, &v, w->keys, o,
                           random_below(&w->random, 2) ? &ahead : NULL);
    expect(w, "o", o, expected, (size_t)(v.dim * lanes), ANY_ZEROS);
}

static void check_begin_total(struct round *w)
{
    struct states chunk = take_panel_states(w);
    const struct total got = take_total(w), expected = take_total(w);
    draw_odd_states(w, &chunk);
    for (int r = 0; r < w->lanes; r++) {
        expected.row_max[r] = chunk.st.row_max[r];
        expected.row_sum[r] = (double)chunk.st.row_sum[r];
    }
    for (size_t i = 0; i < out_count(&chunk); i++)
        expected.out[i] = (double)chunk.st.out[i];
    w->kernels->begin_total(&got, &chunk.st, w->lanes, w->value_dim);
    expect_total(w, &got, &expected);
}

/* Changes the distance of some maxima from the maxima in `other`. The new distance is 0, or makes a
 * rescale factor 0, or makes it the smallest factor that is not 0. */
static void draw_distances(struct round *w, float *row_max, const float *other)
{
    for (int r = 0; r < w->lanes; r++)
        if (random_below(&w->random, 4) == 0 && isfinite(row_max[r]) && isfinite(other[r]))
            row_max[r] = other[r] + (float)((random_below(&w->random, 3) - 1) *
                                            (random_below(&w->random, 2) - LEAST_POWER));
}

static void check_fold(struct round *w)
{
    struct states chunk = take_panel_states(w);
    const struct total got = draw_total(w), expected = take_total(w);
    draw_odd_states(w, &chunk);
    draw_distances(w, chunk.st.row_max, got.row_max);
    memcpy(expected.row_max, got.row_max, (size_t)w->lanes * sizeof(float));
    memcpy(expected.row_sum, got.row_sum, (size_t)w->lanes * sizeof(double));
    memcpy(expected.out, got.out, out_count(&chunk) * sizeof(double));
    model_fold(w, &expected, &chunk);
    w->kernels->fold(&got, &chunk.st, w->lanes, w->value_dim);
    expect_total(w, &got, &expected);
}

/* The addresses of the results. They are NULL for rows that do not exist. */
struct outputs {
    float *out[MAX_LANES], *lse[MAX_LANES];
    bool with_lse;
};

static struct outputs place_outputs(struct round *w)
{
    struct outputs o = {.with_lse = random_below(&w->random, 2)};
    const struct rows out = place_rows(w, OUT_ROWS, w->rows, w->value_dim);
    const struct rows lse = place_rows(w, LSE_ROWS, w->rows, 1);
    for (int r = 0; r < w->rows; r++) {
        o.out[r] = row_at(out, r);
        o.lse[r] = row_at(lse, r);
    }
    return o;
}

/* Checks the outputs of a row. Returns the row's bit in the expected return value of `finish`. */
static uint64_t expect_output(struct round *w, const struct outputs *o, int r,
                              const struct finished *row)
{
    expect(w, "out", o->out[r], row->out, (size_t)w->value_dim, EXACT_BITS);
    assert_true(w->value_dim == 0 || is_all_else_untouched(o->out[r], w->value_dim));
    if (o->with_lse && row->has_log)
        expect(w, "lse", o->lse[r], &row->lse, 1, EXACT_BITS);
    assert_true(is_all_else_untouched(o->lse[r], o->with_lse ? 1 : 0));
    return (uint64_t)!row->finite << r;
}

static uint64_t expect_outputs(struct round *w, const struct outputs *o, const struct states *s)
{
    uint64_t not_finite = 0;
    float *const out = take((size_t)w->value_dim, 0);
    for (int r = 0; r < w->rows; r++) {
        const struct finished row = model_finish(s, r, out);
        not_finite |= expect_output(w, o, r, &row);
    }
    return not_finite;
}

/* Makes value_dim 0 in one of 16 rounds. Only the lse is then computed. */
static void draw_no_columns(struct round *w)
{
    if (random_below(&w->random, 16) == 0)
        w->value_dim = 0;
}

static void check_finish(struct round *w)
{
    draw_no_columns(w);
    struct states s = take_panel_states(w);
    const struct outputs o = place_outputs(w);
    draw_odd_states(w, &s);
    const uint64_t not_finite = w->kernels->finish(&s.st, w->lanes, w->value_dim, w->rows, o.out,
                                                   o.with_lse ? o.lse : NULL);
    expect_bits("rows not finite", not_finite, expect_outputs(w, &o, &s));
}

/* Divides again in binary64 where a value of out is not finite, as the callers of `finish_total`
 * and `quotient_row` do. Returns whether any value was not finite. */
static bool divide_again(const double *o, int64_t step, double divisor, int64_t n, float *out)
{
    bool found = false;
    for (int64_t c = 0; c < n; c++)
        if (!isfinite(out[c])) {
            const float quotient = (float)(o[c * step] / divisor);
            out[c] = isnan(quotient) ? float_from_bits(0x7fc00000) : quotient + 0.0f;
            found = true;
        }
    return found;
}

/* Draws o of a chunk, which finish_total reads instead of the total's o. Sets the total's o to NaN.
 * Stores the drawn o in model_out as binary64, and returns it as binary32. */
static const float *draw_chunk_out(struct round *w, const struct total *total, double *model_out)
{
    struct states s = take_panel_states(w);
    draw_odd_states(w, &s);
    for (size_t i = 0; i < out_count(&s); i++) {
        model_out[i] = (double)s.st.out[i];
        total->out[i] = (double)NAN;
    }
    return s.st.out;
}

static void check_finish_total(struct round *w)
{
    draw_no_columns(w);
    const struct outputs o = place_outputs(w);
    const struct total total = draw_total(w);
    const struct total model = {total.row_max, total.row_sum,
                                take_doubles((size_t)(w->lanes * w->value_dim))};
    memcpy(model.out, total.out, (size_t)(w->lanes * w->value_dim) * sizeof(double));
    const float *const chunk_out =
        random_below(&w->random, 2) ? draw_chunk_out(w, &total, model.out) : NULL;
    const uint64_t not_finite = w->kernels->finish_total(&total, chunk_out, w->lanes, w->value_dim,
                                                         w->rows, o.out, o.with_lse ? o.lse : NULL);
    uint64_t expected = 0;
    float *const out = take((size_t)w->value_dim, 0);
    for (int r = 0; r < w->rows; r++) {
        const double l = model.row_sum[r];
        const bool found =
            divide_again(model.out + r, w->lanes, l == 0.0 ? 1.0 : l, w->value_dim, o.out[r]);
        const struct finished row = model_finish_total(w, &model, r, out);
        expect_output(w, &o, r, &row);
        expected |= (uint64_t)found << r;
    }
    expect_bits("rows not finite", not_finite, expected);
}

/* Draws the number of keys that each row sees. The numbers of the rows are equal, or random, or
 * increase as in a causal mask. Returns the largest of these numbers. */
static int draw_visible_rows(struct round *w, int32_t *visible)
{
    const int kind = (int)random_below(&w->random, 3);
    const int rows_in_step = 1 + (int)random_below(&w->random, 4);
    int most = 0;
    for (int r = 0; r < w->rows; r++) {
        const int hidden = (w->rows - 1 - r) / rows_in_step;
        visible[r] = kind == 0          ? w->keys
                     : kind == 1        ? (int32_t)random_below(&w->random, w->keys + 1)
                     : w->keys > hidden ? w->keys - hidden
                                        : 0;
        most = visible[r] > most ? visible[r] : most;
    }
    return most;
}

/* K or V for decode: rows in their stored type, and the same rows widened for the plain C code. */
struct stored {
    struct key_rows rows;
    const char *row[KEY_BLOCK];
    const float *scales[KEY_BLOCK];
    struct rows wide;
};

static void set_row(struct stored *s, int key, struct key_row row)
{
    s->row[key] = row.data;
    s->scales[key] = row.scales;
}

/* Gives key `key` the row and the scales of key `from`. */
static void repeat_row(struct stored *s, int key, int from)
{
    set_row(s, key, (struct key_row){s->row[from], s->scales[from]});
}

/* Draws an element type that rows of `dim` elements can have. */
static enum type draw_type(struct round *w, int64_t dim)
{
    const enum type type = (enum type)random_below(&w->random, 5);
    return type == TYPE_Q8_0 && dim % Q8_BLOCK != 0 ? TYPE_I8 : type;
}

/* Draws the number of elements that share a scale: the whole row, or a group size that the decode
 * kernels support. */
static int64_t draw_group(struct round *w, int64_t dim)
{
    int64_t group = MAX_VECTOR * (1 + random_below(&w->random, 4));
    return dim % group == 0 ? group : dim;
}

/* Draws the elements of a row. TYPE_I8 and TYPE_Q8_0 get random bytes. Other types get numbers of
 * the round's kind of data. With SPECIAL data, a quarter of the rows have random bits: in all
 * elements of a 16-bit type, or in all scales of TYPE_Q8_0. */
static void draw_row(struct round *w, const struct key_rows *rows, char *data, float *scales)
{
    const int64_t bytes = bytes_of(rows->type, rows->dim);
    const bool any_bits = w->data == SPECIAL && random_below(&w->random, 4) == 0;
    float line[MAX_DIM];
    draw_line(w, line, rows->dim, 1);
    switch (rows->type) {
    case TYPE_F32:
        memcpy(data, line, (size_t)bytes);
        break;
    case TYPE_I8:
    case TYPE_Q8_0:
        for (int64_t i = 0; i < bytes; i++)
            data[i] = (char)random_below(&w->random, 256);
        draw_line(w, line, rows->dim, 1);
        if (rows->type == TYPE_I8)
            memcpy(scales, line, (size_t)(rows->dim / rows->scale_group) * sizeof *scales);
        for (int64_t at = 0; rows->type == TYPE_Q8_0 && !any_bits && at < bytes;
             at += Q8_BLOCK_BYTES) {
            const uint16_t scale = f16_from_float(line[at / Q8_BLOCK_BYTES]);
            memcpy(data + at, &scale, sizeof scale);
        }
        break;
    default:
        attnkit_scalar_narrow(rows->type, line, rows->dim, 0, data, NULL);
        for (int64_t i = 0; any_bits && i < bytes; i++)
            data[i] = (char)random_below(&w->random, 256);
    }
}

/* Draws `count` rows in slots, in shuffled order. The last row is repeated up to the end of the
 * last vector of keys, because the kernel may read whole vectors. */
static void draw_stored(struct round *w, struct stored *s, enum region region,
                        enum region scale_region, int count, int64_t dim)
{
    const enum type type = draw_type(w, dim);
    const int64_t group = type == TYPE_I8 ? draw_group(w, dim) : 0;
    const int64_t groups = group ? dim / group : 1;
    s->rows = (struct key_rows){.type = type,
                                .dim = dim,
                                .scale_group = group,
                                .row = s->row,
                                .scales = type == TYPE_I8 ? s->scales : NULL};
    const struct rows data = place_bytes(w, region, count, bytes_of(type, dim));
    const struct rows scales = place_rows(w, scale_region, count, groups);
    s->wide = (struct rows){(const char *)take((size_t)(count * dim), 0),
                            dim * (int64_t)sizeof(float), dim};
    for (int i = 0; i < KEY_BLOCK; i++) {
        if (i >= count) { /* rows past the last vector may be unmapped */
            set_row(s, i, (struct key_row){NULL, NULL});
            if (i < (count + MAX_VECTOR - 1) / MAX_VECTOR * MAX_VECTOR)
                repeat_row(s, i, count - 1);
            continue;
        }
        /* Shuffles the rows. Steps of 7 reach each row once if count is no multiple of 7. */
        const int place = count % 7 ? i * 7 % count : i;
        char *const at = (char *)(uintptr_t)data.first + place * data.stride;
        float *const row_scales = row_at(scales, place);
        draw_row(w, &s->rows, at, row_scales);
        attnkit_scalar_widen(type, at, row_scales, group, dim, row_at(s->wide, i));
        set_row(s, i, (struct key_row){at, type == TYPE_I8 ? row_scales : NULL});
    }
}

/* Copies the first `count` rows one after the other into guarded memory, and sets s->row to the
 * copies. All later entries of s->row point to the last copy. */
static struct guarded make_adjacent(struct round *w, struct stored *s, int count)
{
    const int64_t bytes = bytes_of(s->rows.type, s->rows.dim);
    struct guarded memory = memory_guarded((size_t)(count * bytes), 0, random_below(&w->random, 2));
    for (int i = 0; i < KEY_BLOCK && s->row[i]; i++) {
        char *const at = (char *)memory.data + (i < count ? i : count - 1) * bytes;
        memcpy(at, s->row[i], (size_t)bytes);
        s->row[i] = at;
    }
    return memory;
}

/* Copies element i of a row to element i * TILE_KEYS of `to`. */
static void spread(char *to, const char *row, int64_t size, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        memcpy(to + i * TILE_KEYS * size, row + i * size, (size_t)size);
}

/* Copies a row into a tile as the row of key `key`. */
static void put_row(enum type type, char *tile, int key, const char *row, int64_t dim)
{
    const int64_t size = bytes_of(type, 1);
    if (type != TYPE_Q8_0) {
        spread(tile + key * size, row, size, dim);
        return;
    }
    for (; dim > 0; dim -= Q8_BLOCK, row += Q8_BLOCK_BYTES, tile += TILE_KEYS * Q8_BLOCK_BYTES) {
        memcpy(tile + key * 2, row, 2);
        spread(tile + TILE_KEYS * 2 + key, row + 2, 1, Q8_BLOCK);
    }
}

/* Draws the number of elements that share a scale in a tile: any divisor of dim. */
static int64_t draw_tile_group(struct round *w, int64_t dim)
{
    int64_t group = 1 + random_below(&w->random, dim);
    while (dim % group != 0)
        group--;
    return group;
}

/* Returns the address that the library uses for a key of a tile: the address that the key's row
 * would have if the tile held TILE_KEYS rows, one after the other. */
static struct key_row row_of_tile(const struct key_rows *k, struct key_row tile, int key)
{
    const int64_t in_tile = key % TILE_KEYS;
    tile.data += in_tile * bytes_of(k->type, k->dim);
    if (tile.scales)
        tile.scales += in_tile * (k->dim / k->scale_group);
    return tile;
}

/* Draws the tile that begins with key `first` of the block. The block has `count` keys. Places in
 * the tile past the last key of the block are NaN. */
static void draw_tile(struct round *w, struct stored *s, int index, int first, int count)
{
    const struct key_rows *const k = &s->rows;
    const int64_t groups = k->type == TYPE_I8 ? k->dim / k->scale_group : 0;
    const int64_t align = k->type == TYPE_Q8_0 ? 2 : bytes_of(k->type, 1);
    char *const data = take_place(w, index, TILE_KEYS * bytes_of(k->type, k->dim), align);
    float *const scales =
        take_place(w, MAX_TILES + index, TILE_KEYS * groups * (int64_t)sizeof(float), 4);
    const struct key_row tile = {data, groups ? scales : NULL};
    for (int key = first; key < first + TILE_KEYS; key++) {
        if (key >= count) {
            repeat_row(s, key, count - 1);
            continue;
        }
        set_row(s, key, row_of_tile(k, tile, key));
        char row[MAX_DIM * sizeof(float)];
        float row_scales[MAX_DIM];
        draw_row(w, k, row, row_scales);
        attnkit_scalar_widen(k->type, row, row_scales, k->scale_group, k->dim,
                             row_at(s->wide, key));
        put_row(k->type, data, key - first, row, k->dim);
        for (int64_t g = 0; g < groups; g++)
            scales[g * TILE_KEYS + key - first] = row_scales[g];
    }
}

/* Draws K in tiles, which lie in shuffled order. */
static void draw_tiled(struct round *w, struct stored *s, int count, int64_t dim)
{
    const enum type type = draw_type(w, dim);
    const int tiles = (count + TILE_KEYS - 1) / TILE_KEYS;
    s->rows = (struct key_rows){.type = type,
                                .tiled = true,
                                .dim = dim,
                                .scale_group = type == TYPE_I8 ? draw_tile_group(w, dim) : 0,
                                .row = s->row,
                                .scales = type == TYPE_I8 ? s->scales : NULL};
    s->wide = (struct rows){(const char *)take((size_t)(count * dim), 0),
                            dim * (int64_t)sizeof(float), dim};
    for (int i = 0; i < tiles; i++)
        draw_tile(w, s, tiles % 7 ? i * 7 % tiles : i, i * TILE_KEYS, count);
    for (int key = tiles * TILE_KEYS; key < KEY_BLOCK; key++)
        set_row(s, key, (struct key_row){NULL, NULL});
}

/* Operands that only some calls of decode have. Each line ends, or begins, at an unmapped page, and
 * has NaN for keys that its row does not see. */
struct additions {
    struct adjust adjust;
    const float *bias[MAX_DECODE_ROWS], *keep[MAX_DECODE_ROWS];
};

static void draw_additions(struct round *w, struct additions *x, struct decode_block *block)
{
    const struct rows bias = place_rows(w, BIAS_ROWS, w->rows, KEY_BLOCK);
    const struct rows keep = place_rows(w, KEEP_ROWS, w->rows, KEY_BLOCK);
    for (int r = 0; r < w->rows; r++) {
        x->bias[r] = row_at(bias, r);
        x->keep[r] = row_at(keep, r);
        draw_scores(w, row_at(bias, r), KEY_BLOCK);
        for (int key = 0; key < KEY_BLOCK; key++) {
            row_at(keep, r)[key] = random_below(&w->random, 4) ? 4.0f / 3.0f : 0.0f;
            if (key >= block->visible[r])
                row_at(bias, r)[key] = row_at(keep, r)[key] = NAN;
        }
    }
    x->adjust = draw_adjust(w);
    if (random_below(&w->random, 2))
        block->adjust = &x->adjust;
    if (block->adjust && random_below(&w->random, 2))
        block->bias = x->bias;
    if (random_below(&w->random, 2))
        block->keep = x->keep;
}

/* Sets addresses that are prefetched and never loaded. If `adjacent`, they are as far apart as
 * adjacent rows of K. Otherwise all are NULL. */
static void set_nowhere(const struct round *w, enum type type, bool adjacent,
                        const char *nowhere[KEY_BLOCK])
{
    for (int key = 0; key < KEY_BLOCK; key++)
        nowhere[key] =
            adjacent ? (const char *)(uintptr_t)(key * bytes_of(type, w->head_dim)) : NULL;
}

static void check_decode(struct round *w)
{
    int32_t *visible = (int32_t *)row_at(place_rows(w, VISIBLE_ROW, 1, w->rows), 0);
    int most = draw_visible_rows(w, visible);
    if (most == 0)
        visible[w->rows - 1] = most = 1;
    const struct rows q = draw_rows(w, Q_ROWS, w->rows, w->head_dim);
    static struct stored k, v;
    static const char *nowhere[KEY_BLOCK];
    if (random_below(&w->random, 2))
        draw_tiled(w, &k, most, w->head_dim);
    else
        draw_stored(w, &k, K_ROWS, K_SCALES, most, w->head_dim);
    draw_stored(w, &v, V_ROWS, V_SCALES, most, w->value_dim);
    struct guarded adjacent = {0};
    if (random_below(&w->random, 2))
        adjacent = make_adjacent(w, &v, most);
    set_nowhere(w, k.rows.type, adjacent.data != NULL, nowhere);
    const float scale_log2 = draw_scale(w);
    struct states got = take_decode_states(w), expected = take_decode_states(w);
    draw_states(w, &got);
    copy_states(&expected, &got);
    const float *q_rows[MAX_DECODE_ROWS];
    struct decode_block block = {.q = q_rows,
                                 .visible = visible,
                                 .k = k.rows,
                                 .v = v.rows,
                                 .st = &got.st,
                                 .far = random_below(&w->random, 2),
                                 .large = random_below(&w->random, 2),
                                 .next_keys = (int)random_below(&w->random, KEY_BLOCK + 1),
                                 .next_k = nowhere,
                                 .with_k = nowhere};
    struct additions additions;
    if (random_below(&w->random, 2))
        draw_additions(w, &additions, &block);
    for (int r = 0; r < w->rows; r++)
        q_rows[r] = row_at(q, r);
    for (int r = 0; r < w->rows; r++)
        model_decode(&expected, r, &block, k.wide, v.wide, scale_log2);
    w->kernels->decode(&block, w->rows, scale_log2);
    expect_max_and_sum(w, &got, &expected);
    /* The kernel may leave a row that sees no key unchanged, or add +0 to it. */
    for (int r = 0; r < w->rows; r++)
        expect(w, "o", out_at(&got, r, 0), out_at(&expected, r, 0), (size_t)w->value_dim,
               visible[r] > 0 ? EXACT_ZEROS : ANY_ZEROS);
    if (adjacent.data)
        memory_unguard(&adjacent);
}

static void check_decode_finish(struct round *w)
{
    draw_no_columns(w);
    struct states s = take_decode_states(w);
    struct states in_place = take_decode_states(w);
    const struct outputs o = place_outputs(w);
    float *lines[MAX_DECODE_ROWS];
    draw_odd_states(w, &s);
    copy_states(&in_place, &s);
    for (int r = 0; r < w->rows; r++)
        lines[r] = out_at(&in_place, r, 0);
    const uint64_t not_finite =
        w->kernels->decode_finish(&s.st, w->rows, w->value_dim, o.out, o.with_lse ? o.lse : NULL);
    const uint64_t found =
        w->kernels->decode_finish(&in_place.st, w->rows, w->value_dim, lines, NULL);
    for (int r = 0; r < w->rows; r++)
        expect(w, "out in place", lines[r], o.out[r], (size_t)w->value_dim, EXACT_BITS);
    const uint64_t expected = expect_outputs(w, &o, &s);
    expect_bits("rows not finite", not_finite, expected);
    expect_bits("rows not finite in place", found, expected);
}

/* Draws o of one row of a total, in memory between unmapped pages, and copies o to `copy`. */
static struct guarded draw_guarded_doubles(struct round *w, double *copy)
{
    const size_t count = (size_t)w->value_dim;
    const struct guarded line =
        memory_guarded(count * sizeof(double), 0, random_below(&w->random, 2));
    float *const near = take(count, 0);
    draw_line(w, near, w->value_dim, 1);
    if (is_one_odd(w))
        near[random_below(&w->random, w->value_dim)] = odd_value(w);
    draw_doubles(w, near, copy, count);
    memcpy(line.data, copy, count * sizeof(double));
    return line;
}

/* Draws a factor: a power of two, 0, NaN, or a power of two times a number in [0.5, 1). */
static double draw_factor(struct round *w)
{
    const float power = scalar_exp2(-(float)random_below(&w->random, 110));
    switch (random_below(&w->random, 8)) {
    case 0:
        return w->data == SPECIAL ? (double)NAN : 1.0;
    case 1:
    case 2:
        return 1.0;
    case 3:
    case 4:
        return (double)power * (0.75 + 0.25 * (double)random_uniform(&w->random));
    default:
        return (double)power;
    }
}

static void check_fold_row(struct round *w)
{
    double *const expected = take_doubles((size_t)w->value_dim);
    struct guarded o = draw_guarded_doubles(w, expected);
    const float *const chunk = row_at(draw_rows(w, V_ROWS, 1, w->value_dim), 0);
    const double a = draw_factor(w), b = draw_factor(w);
    for (int c = 0; c < w->value_dim; c++)
        expected[c] = fma(expected[c], a, (double)chunk[c] * b);
    w->kernels->fold_row((double *)o.data, chunk, a, b, w->value_dim);
    expect_doubles(w, "o", (const double *)o.data, expected, (size_t)w->value_dim);
    memory_unguard(&o);
}

/* Changes a quarter of the values so that their quotients are nearly halfway between two binary32
 * numbers. */
static void draw_halves(struct round *w, double divisor, double *o)
{
    for (int c = 0; c < w->value_dim; c++) {
        const float x = random_uniform(&w->random), next = nextafterf(x, 2.0f);
        const double off = (double)(random_below(&w->random, 33) - 16) * 0x1p-53;
        if (random_below(&w->random, 4) == 0)
            o[c] = ((double)x + (double)next) / 2.0 * (1.0 + off) * divisor;
    }
}

static void check_quotient_row(struct round *w)
{
    static const double odd[] = {1.0, 0x1p-1074, 0x1p-130, 0x1p130, (double)INFINITY, (double)NAN};
    double *const copy = take_doubles((size_t)w->value_dim);
    struct guarded o = draw_guarded_doubles(w, copy);
    float *const out = row_at(place_rows(w, OUT_ROWS, 1, w->value_dim), 0);
    double divisor = draw_wide(w, 0.5f + 300.0f * (1.0f + random_uniform(&w->random)));
    if (w->data == SPECIAL && random_below(&w->random, 2))
        divisor = odd[random_below(&w->random, 6)];
    draw_halves(w, divisor, copy);
    memcpy(o.data, copy, (size_t)w->value_dim * sizeof *copy);
    struct finished row = {.out = take((size_t)w->value_dim, 0), .finite = true};
    for (int c = 0; c < w->value_dim; c++)
        set_result(&row, c, (float)(copy[c] / divisor));
    const bool not_finite =
        w->kernels->quotient_row((const double *)o.data, divisor, w->value_dim, out);
    memory_unguard(&o);
    expect_bits("not finite", not_finite, divide_again(copy, 1, divisor, w->value_dim, out));
    expect(w, "out", out, row.out, (size_t)w->value_dim, EXACT_BITS);
    assert_true(is_all_else_untouched(out, w->value_dim));
}

/* In this entry a lane is a head. Each element of a query row or of a key is a vector with a number
 * for each head. */
static void check_head_scores(struct round *w)
{
    const int vector = w->kernels->vector, lanes = w->rows * vector, key_lanes = w->keys * vector;
    float *q_t = take((size_t)(w->head_dim * lanes), 0);
    float *k_t = take((size_t)(w->head_dim * key_lanes), 0);
    float *s = take((size_t)(w->keys * lanes), 0), *expected = take((size_t)(w->keys * lanes), 0);
    for (int lane = 0; lane < lanes; lane++)
        draw_line(w, q_t + lane, w->head_dim, lanes);
    for (int lane = 0; lane < key_lanes; lane++)
        draw_line(w, k_t + lane, w->head_dim, key_lanes);
    for (int key = 0; key < w->keys; key++)
        for (int lane = 0; lane < lanes; lane++)
            expected[key * lanes + lane] = chain(k_t + key * vector + lane % vector, key_lanes,
                                                 q_t + lane, lanes, w->head_dim);
    w->kernels->head_scores(q_t, k_t, w->rows, w->keys, w->head_dim, s);
    expect(w, "s", s, expected, (size_t)(w->keys * lanes), EXACT_ZEROS);
}

static void check_head_out(struct round *w)
{
    const int vector = w->kernels->vector, lanes = w->rows * vector;
    const int head = (int)random_below(&w->random, vector);
    int32_t *visible = (int32_t *)row_at(place_rows(w, VISIBLE_ROW, 1, lanes), 0);
    int seen = 0;
    for (int r = 0; r < w->rows; r++) {
        if (r == 0 || random_below(&w->random, 2))
            seen += (int)random_below(&w->random, w->keys - seen + 1);
        visible[r * vector + head] = seen;
    }
    const struct rows v = draw_rows(w, V_ROWS, seen ? seen : 1, w->value_dim);
    if (is_one_odd(w))
        row_at(v, 0)[random_below(&w->random, w->value_dim)] = odd_value(w);
    float *p = take((size_t)(w->keys * lanes), 0), *divisor = take((size_t)lanes, 0);
    draw_line(w, p, w->keys * lanes, 1);
    draw_line(w, divisor, lanes, 1);
    for (int lane = 0; lane < lanes; lane++)
        divisor[lane] = divisor[lane] == 0.0f ? 1.0f : divisor[lane];
    const struct outputs o = place_outputs(w);
    const struct head_weights weights = {p + head, divisor + head, visible + head, lanes};
    const uint64_t not_finite = w->kernels->head_out(&weights, &v, w->rows, o.out);
    uint64_t expected = 0;
    float *const out = take((size_t)w->value_dim, 0);
    for (int r = 0; r < w->rows; r++) {
        struct finished row = {.out = out, .finite = true};
        const int lane = r * vector + head;
        for (int c = 0; c < w->value_dim; c++)
            set_result(&row, c,
                       weighted_column(p + lane, lanes, v, visible[lane], c) / divisor[lane]);
        expect(w, "out", o.out[r], row.out, (size_t)w->value_dim, EXACT_BITS);
        assert_true(is_all_else_untouched(o.out[r], w->value_dim));
        expected |= (uint64_t)!row.finite << r;
    }
    expect_bits("rows not finite", not_finite, expected);
}

/* --- Linear maps ------------------------------------------------------------------------------ */

/* Checks rows of w->value_dim values, and that no byte outside these rows was written. */
static void expect_rows(struct round *w, struct rows got, const float *expected)
{
    for (int i = 0; i < w->rows; i++) {
        expect(w, "y", row_at(got, i), expected + i * w->value_dim, (size_t)w->value_dim,
               EXACT_ZEROS);
        assert_true(is_all_else_untouched(row_at(got, i), w->value_dim));
    }
}

static enum type draw_matrix_type(struct round *w)
{
    static const enum type types[] = {TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_Q8_0};
    return types[random_below(&w->random, w->head_dim % Q8_BLOCK == 0 ? 4 : 3)];
}

/* A packed matrix. Spare outputs of its last tile are NaN. `wide` is the matrix for the plain C
 * code, with a binary32 row for each output. */
struct matrix {
    enum type type;
    int64_t tile_bytes;
    int tiles;
    float *wide;
};

/* Makes a matrix of w->value_dim outputs and w->head_dim inputs. */
static struct matrix new_matrix(const struct round *w, enum type type)
{
    return (struct matrix){.type = type,
                           .tile_bytes = TILE_KEYS * bytes_of(type, w->head_dim),
                           .tiles = (w->value_dim + TILE_KEYS - 1) / TILE_KEYS,
                           .wide = take((size_t)(w->value_dim * w->head_dim), 0)};
}

/* Draws a matrix in tiles. The tiles lie `step` bytes apart. */
static void draw_matrix(struct round *w, const struct matrix *m, char *tiles, ptrdiff_t step)
{
    const struct key_rows stored = {.type = m->type, .dim = w->head_dim};
    for (int o = 0; o < w->value_dim; o++) {
        char row[MAX_DIM * sizeof(float)];
        draw_row(w, &stored, row, NULL);
        attnkit_scalar_widen(m->type, row, NULL, 0, w->head_dim, m->wide + o * w->head_dim);
        put_row(m->type, tiles + o / TILE_KEYS * step, o % TILE_KEYS, row, w->head_dim);
    }
}

/* Computes output o of a row of y by the contract. */
static float model_product(const struct round *w, const float *x, const struct matrix *m, int o,
                           float y, const float *bias)
{
    for (int d = 0; d < w->head_dim; d++)
        y = fmaf(x[d], m->wide[o * w->head_dim + d], y);
    return bias ? y + bias[o] : y;
}

static void check_widen_matrix(struct round *w)
{
    const enum type type = draw_matrix_type(w);
    w->value_dim = TILE_KEYS;
    const struct matrix m = new_matrix(w, type);
    char *const tile = take_place(w, 0, m.tile_bytes, type == TYPE_F32 ? 64 : 32);
    draw_matrix(w, &m, tile, 0);
    const size_t count = (size_t)(TILE_KEYS * w->head_dim);
    float *const got = take(count, 0), *const expected = take(count, 0);
    for (int o = 0; o < TILE_KEYS; o++)
        for (int d = 0; d < w->head_dim; d++)
            expected[d * TILE_KEYS + o] = m.wide[o * w->head_dim + d];
    w->kernels->widen_matrix(type, tile, w->head_dim, got);
    expect(w, "out", got, expected, count, EXACT_ZEROS);
}

/* Arranges x in the groups of rows that struct product takes, in memory that ends at an unmapped
 * page. Lanes without a row are NaN. */
static struct guarded grouped(const struct round *w, struct rows x)
{
    const int lanes = (w->rows + ROW_GROUP - 1) / ROW_GROUP * ROW_GROUP;
    const struct guarded memory =
        memory_guarded((size_t)(lanes * w->head_dim) * sizeof(float), 0, true);
    float *group = (float *)memory.data;
    for (int i = 0; i < lanes * w->head_dim; i++)
        group[i] = NAN;
    for (int first = 0, rows; first < w->rows; first += rows, group += w->head_dim * ROW_GROUP) {
        rows = tile_height(w->rows - first, ROW_GROUP);
        for (int i = 0; i < rows; i++)
            for (int d = 0; d < w->head_dim; d++)
                group[d * ROW_GROUP + i] = row_at(x, first + i)[d];
    }
    return memory;
}

/* Tiles, rows of y and the bias each lie between unmapped pages. */
static void check_product(struct round *w)
{
    const struct matrix m = new_matrix(w, TYPE_F32);
    char *const tiles = take_place(w, 0, m.tile_bytes, 64);
    for (int i = 1; i < m.tiles; i++)
        memset(tiles + i * PLACE_STRIDE, 0xff, (size_t)m.tile_bytes);
    draw_matrix(w, &m, tiles, PLACE_STRIDE);
    const struct rows x = draw_rows(w, Q_ROWS, w->rows, w->head_dim);
    const struct rows y = draw_rows(w, OUT_ROWS, w->rows, w->value_dim);
    const struct rows bias = draw_rows(w, BIAS_ROWS, 1, w->value_dim);
    const struct rows apart = draw_rows(w, SUM_ROWS, w->rows, w->value_dim);
    const int64_t from =
        random_below(&w->random, 3); /* the sums begin at +0, at y, or at numbers elsewhere */
    const struct rows sums = from == 1 ? y : apart;
    const struct next_tiles ahead = {(const char *)(uintptr_t)SLOT_BYTES, m.tile_bytes,
                                     random_below(&w->random, m.tiles + 1), m.tile_bytes};
    struct guarded groups = grouped(w, x);
    const struct product product = {.x = (const float *)groups.data,
                                    .dim = w->head_dim,
                                    .rows = w->rows,
                                    .w = (const float *)tiles,
                                    .tile_step = PLACE_STRIDE,
                                    .y = row_at(y, 0),
                                    .y_stride = y.stride,
                                    .outs = w->value_dim,
                                    .sums = from == 0 ? NULL : row_at(sums, 0),
                                    .sums_stride = sums.stride,
                                    .bias = random_below(&w->random, 2) ? row_at(bias, 0) : NULL,
                                    .ahead = ahead};
    float *const expected = take((size_t)(w->rows * w->value_dim), 0);
    for (int i = 0; i < w->rows; i++)
        for (int o = 0; o < w->value_dim; o++)
            expected[i * w->value_dim + o] = model_product(
                w, row_at(x, i), &m, o, product.sums ? row_at(sums, i)[o] : 0.0f, product.bias);
    w->kernels->product(&product);
    memory_unguard(&groups);
    expect_rows(w, y, expected);
}

static void check_few_product(struct round *w)
{
    const struct matrix m = new_matrix(w, draw_matrix_type(w));
    const size_t size = (size_t)(m.tiles * m.tile_bytes + 63) / 64 * 64;
    struct guarded tiles = memory_guarded(size, 0, random_below(&w->random, 2));
    memset(tiles.data, 0xff, size);
    draw_matrix(w, &m, tiles.data, m.tile_bytes);
    const int most = m.type == TYPE_F32 ? w->kernels->f32_matrix_rows : w->kernels->matrix_rows;
    w->rows = 1 + (int)random_below(&w->random, most);
    const struct rows x = draw_rows(w, Q_ROWS, w->rows, w->head_dim);
    const struct rows y = place_rows(w, OUT_ROWS, w->rows, w->value_dim);
    const struct rows bias = draw_rows(w, BIAS_ROWS, 1, w->value_dim);
    const float *x_rows[MAX_MATRIX_ROWS];
    float *y_rows[MAX_MATRIX_ROWS];
    for (int i = 0; i < w->rows; i++) {
        x_rows[i] = row_at(x, i);
        y_rows[i] = row_at(y, i);
    }
    const struct few_product product = {.type = m.type,
                                        .x = x_rows,
                                        .rows = w->rows,
                                        .dim = w->head_dim,
                                        .w = tiles.data,
                                        .y = y_rows,
                                        .outs = w->value_dim,
                                        .bias =
                                            random_below(&w->random, 2) ? row_at(bias, 0) : NULL};
    float *const expected = take((size_t)(w->rows * w->value_dim), 0);
    for (int i = 0; i < w->rows; i++)
        for (int o = 0; o < w->value_dim; o++)
            expected[i * w->value_dim + o] = model_product(w, x_rows[i], &m, o, 0.0f, product.bias);
    w->kernels->few_product(&product);
    memory_unguard(&tiles);
    expect_rows(w, y, expected);
}

/* --- Rounds ----------------------------------------------------------------------------------- */

static const struct entry {
    const char *name;
    void (*check)(struct round *w);
    enum { PANEL, DECODE, HEADS, HEADS_SQUARE, MATRIX } shape;
} entries[] = {
    {"exp2", check_exp2, PANEL},
    {"pack_q", check_pack_q, PANEL},
    {"scores", check_scores, PANEL},
    {"softmax", check_softmax, PANEL},
    {"adjust", check_adjust, PANEL},
    {"weighted_v", check_weighted_v, PANEL},
    {"begin_total", check_begin_total, PANEL},
    {"fold", check_fold, PANEL},
    {"finish", check_finish, PANEL},
    {"finish_total", check_finish_total, PANEL},
    {"decode", check_decode, DECODE},
    {"decode_finish", check_decode_finish, DECODE},
    {"fold_row", check_fold_row, DECODE},
    {"quotient_row", check_quotient_row, DECODE},
    {"head_scores", check_head_scores, HEADS_SQUARE},
    {"head_out", check_head_out, HEADS},
    {"widen_matrix", check_widen_matrix, MATRIX},
    {"product", check_product, MATRIX},
    {"few_product", check_few_product, MATRIX},
};

enum { ENTRIES = sizeof entries / sizeof entries[0] };

/* A kernel table entry of an instruction set, and its current round. */
struct subject {
    const struct entry *entry;
    char name[64];
    uint64_t seed; /* seed of round 0; the next round has the next seed */
    struct round round;
};

enum {
    MOST_MATRIX_ROWS = 20, /* the most rows that a round draws for a matrix */
    MOST_OUTPUTS = 5 * TILE_KEYS,
};

static int whole_blocks(int dim)
{
    return (dim + Q8_BLOCK - 1) / Q8_BLOCK * Q8_BLOCK;
}

/* Draws the shape of a round. From round to round, head_dim and value_dim go together through the
 * values of AXIS_HEAD_DIM. In decode, head_dim and value_dim both cost time. So only one of the two
 * dims goes through these values, and the other dim is small. In a quarter of the rounds of decode,
 * both dims are rounded up to whole blocks, so that TYPE_Q8_0 is possible. For a matrix, head_dim
 * is the number of inputs. In a third of the rounds, head_dim is rounded up to whole blocks.
 * value_dim is the number of outputs, and is drawn. */
static void draw_shape(struct round *w, const struct entry *entry)
{
    const int *dims;
    const int count = axis_values(AXIS_HEAD_DIM, &dims), walk = w->number / count;
    const int most_vectors = w->kernels->lanes / w->kernels->vector;
    w->lanes = w->kernels->vector * (1 + (int)random_below(&w->random, most_vectors));
    const int most_rows = entry->shape == PANEL    ? w->lanes
                          : entry->shape == DECODE ? w->kernels->decode_rows
                          : entry->shape == MATRIX ? MOST_MATRIX_ROWS
                                                   : most_vectors;
    w->head_dim = w->value_dim = dims[w->number % count];
    if (entry->shape == DECODE)
        *(walk % 2 ? &w->head_dim : &w->value_dim) = 1 + (int)random_below(&w->random, 40);
    if (entry->shape == DECODE && random_below(&w->random, 4) == 0) {
        w->head_dim = whole_blocks(w->head_dim);
        w->value_dim = whole_blocks(w->value_dim);
    }
    if (entry->shape == MATRIX) {
        w->value_dim = 1 + (int)random_below(&w->random, MOST_OUTPUTS);
        if (random_below(&w->random, 3) == 0)
            w->head_dim = whole_blocks(w->head_dim);
    }
    const int most_keys = entry->shape == HEADS_SQUARE ? most_vectors
                          : entry->shape == HEADS      ? FEW_KEYS
                                                       : KEY_BLOCK;
    w->keys = 1 + (w->number + walk) % most_keys;
    w->rows = 1 + (int)random_below(&w->random, most_rows);
    w->data = (enum data)random_below(&w->random, DATA);
}

static void entry_keeps_the_contract(void **state)
{
    struct subject *s = *state;
    const int *dims;
    const int rounds = WALKS * axis_values(AXIS_HEAD_DIM, &dims);
    for (int number = 0; number < rounds; number++) {
        s->round.passed = false;
        s->round.number = number;
        s->round.random = s->seed + (uint64_t)number;
        draw_shape(&s->round, s->entry);
        begin_scratch();
        s->entry->check(&s->round);
        assert_true(canaries_are_untouched());
        s->round.passed = true;
    }
    printf("# %s: %d rounds with seed %llu, %lld values\n", s->name, rounds,
           (unsigned long long)s->seed, (long long)s->round.compared);
}

/* Prints the round that failed. This function runs after every test, even after a test that ended
 * in a signal. */
static int print_failed_round(void **state)
{
    const struct subject *s = *state;
    const struct round *w = &s->round;
    if (!w->passed)
        printf("# %s: seed %llu, round %d: head_dim=%d value_dim=%d keys=%d rows=%d lanes=%d "
               "data=%d\n",
               s->name, (unsigned long long)s->seed, w->number, w->head_dim, w->value_dim, w->keys,
               w->rows, w->lanes, (int)w->data);
    return 0;
}

int main(int argc, char **argv)
{
    static struct subject subjects[MAX_ISAS * ENTRIES];
    static struct CMUnitTest tests[MAX_ISAS * ENTRIES];
    size_t count = 0;
    const struct isa *isas;
    const int isa_count = attnkit_isas(&isas);
    expect_isa(argc, argv);
    for (int i = 0; i < isa_count && i < MAX_ISAS; i++) {
        const bool wanted = argc < 2 || strcmp(argv[1], isas[i].name) == 0;
        if (!wanted || !attnkit_isa_can_run(&isas[i]))
            continue;
        for (int j = 0; j < ENTRIES; j++, count++) {
            struct subject *s = &subjects[count];
            s->entry = &entries[j];
            snprintf(s->name, sizeof s->name, "%s: %s", isas[i].name, entries[j].name);
            s->seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
            s->round.kernels = isas[i].kernels;
            tests[count] =
                (struct CMUnitTest){s->name, entry_keeps_the_contract, NULL, print_failed_round, s};
        }
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = _cmocka_run_group_tests("tiles", tests, count, NULL, NULL);
    memory_end();
    if (places)
        munmap(places, PLACES_BYTES);
    return failed;
}
