/* SPDX-License-Identifier: Apache-2.0
 *
 * Golden cases of attention. The cases cover K and V of each type in each of its layouts, each mask
 * and each pair of masks. They also cover sets of score mods, the weights as an output, and
 * mixtures of these options. Other cases multiply K and V as integers, or bf16 in groups of
 * products.
 */
#include <stddef.h>

#include "tests/promises/golden/call.h"
#include "tests/promises/golden/kind.h"

/* --- Lists from which all kinds draw ---------------------------------------------------------- */

static const int64_t q_lens[] = {1, 1, 1, 2, 3, 5, 8, 16, 17, 33, 65, 129};
static const int64_t kv_lens[] = {1, 5, 15, 16, 17, 33, 64, 100, 127, 128, 129, 200, 257, 400};
static const int64_t long_kv_lens[] = {511, 513, 640, 1024, 1100, 1537};
static const int64_t dims[] = {1, 2, 3, 8, 15, 16, 17, 33, 40, 64, 65, 80, 128};
static const int64_t groups[] = {1, 3, 8, 16, 32};
static const int64_t page_sizes[] = {1, 5, 16, 48, 128, 256};

#define PICK(list, random) ((list)[random_below(random, sizeof(list) / sizeof(list)[0])])

static int64_t draw_dim(attnkit_type type, bool integers, int64_t *group, uint64_t *random)
{
    if (type == ATTNKIT_Q8_0)
        return 32 * (1 + random_below(random, 3));
    if (type == ATTNKIT_I8 && integers) {
        *group = 32 * random_below(random, 3);
        return *group > 0 ? *group * (1 + random_below(random, 2))
                          : 32 * (1 + random_below(random, 4));
    }
    if (type >= ATTNKIT_Q4_0 && type < ATTNKIT_F8_E4M3)
        return type == ATTNKIT_Q1_0 ? 128 : 64 * (1 + random_below(random, 2));
    if ((type == ATTNKIT_I8 || type == ATTNKIT_F8_E4M3) && golden_one_in(random, 2)) {
        *group = PICK(groups, random);
        return *group * (1 + random_below(random, 64 / *group));
    }
    return PICK(dims, random);
}

/* Draws a shape that the types of K and V allow. If number % 8 is 7, the case has many keys, mostly
 * several chunks. */
static void draw_shape(struct golden_attention *w, int number, uint64_t *random)
{
    const bool is_long = number % 8 == 7;
    const double limit = is_long ? 1.2e6 : 1.5e5; /* in multiply-adds, approximately */
    w->head_dim = draw_dim(w->k, w->integers, &w->k_group, random);
    w->value_dim = draw_dim(w->v, w->integers, &w->v_group, random);
    do {
        w->batch = 1 + random_below(random, GOLDEN_BATCH);
        w->kv_heads = 1 + random_below(random, 3);
        w->group = 1 + random_below(random, golden_one_in(random, 3) ? 8 : 3);
        w->q_len = PICK(q_lens, random);
        w->kv_len = is_long ? PICK(long_kv_lens, random) : PICK(kv_lens, random);
    } while ((double)(w->batch * w->kv_heads * w->group * w->q_len * w->kv_len) *
                 (double)(w->head_dim + w->value_dim + 24) >
             limit);
}

static void draw_types(struct golden_attention *w, uint64_t *random)
{
    w->q = (attnkit_type)random_below(random, 3);
    w->k = (attnkit_type)random_below(random, 5);
    w->v = (attnkit_type)random_below(random, 5);
    w->out = (attnkit_type)random_below(random, 3);
}

enum { LAYOUTS = 9 };

static void draw_layout(struct golden_attention *w, int layout, uint64_t *random)
{
    const int64_t page_size = PICK(page_sizes, random);
    w->tokens = layout == 1;
    w->tiled = layout == 2 || layout == 4 || layout == 8;
    w->packed_q = layout == 5 || layout >= 7;
    w->packed_kv = layout == 6 || layout == 7;
    if (layout == 3)
        w->page_size = page_size;
    if (layout == 4 || layout == 8)
        w->page_size = page_size % ATTNKIT_TILE_KEYS ? 32 : page_size;
}

static void draw_numbers(struct golden_attention *w, uint64_t *random)
{
    static const enum golden_numbers numbers[] = {USUAL, USUAL, USUAL, PEAKED, SMALL, SPECIAL};
    w->numbers = PICK(numbers, random);
}

static void draw_positions(struct golden_attention *w, uint64_t *random)
{
    w->align = (attnkit_align)(1 + random_below(random, 3));
}

static void draw_causal(struct golden_attention *w, uint64_t *random)
{
    if (golden_one_in(random, 2)) {
        draw_positions(w, random);
        w->is_causal = true;
    }
    w->has_lens = golden_one_in(random, 3) && !w->packed_kv;
}

static uint64_t begin(struct golden_attention *w, uint64_t kind_seed, int number)
{
    uint64_t random = golden_random(kind_seed, number);
    *w = (struct golden_attention){.seed = random_bits(&random)};
    return random;
}

/* --- K and V ---------------------------------------------------------------------------------- */

static void describe_layouts(int number, struct golden_attention *w)
{
    uint64_t random = begin(w, 1, number);
    draw_layout(w, number % LAYOUTS, &random);
    draw_shape(w, number, &random);
    draw_numbers(w, &random);
    draw_causal(w, &random);
}

/* Describes a case in which K, V or both have the given type. q and out are binary32, binary16 or
 * bfloat16. */
static void describe_type(int number, attnkit_type type, uint64_t seed, struct golden_attention *w)
{
    uint64_t random = begin(w, seed, number);
    draw_types(w, &random);
    const int64_t other = random_below(&random, 4);
    w->k = other == 0 ? w->k : type;
    w->v = other == 1 ? w->v : type;
    draw_layout(w, number % LAYOUTS, &random);
    draw_shape(w, number, &random);
    draw_numbers(w, &random);
    draw_causal(w, &random);
}

static void describe_f16(int number, struct golden_attention *w)
{
    describe_type(number, ATTNKIT_F16, 2, w);
}

static void describe_bf16(int number, struct golden_attention *w)
{
    describe_type(number, ATTNKIT_BF16, 3, w);
}

static void describe_i8(int number, struct golden_attention *w)
{
    describe_type(number, ATTNKIT_I8, 4, w);
}

static void describe_q8_0(int number, struct golden_attention *w)
{
    describe_type(number, ATTNKIT_Q8_0, 5, w);
}

/* Describes a case with K and V of the types from Q4_0 to F8_E4M3. K of these types cannot lie in
 * tiles. The numbers go through all pairs of these types. */
static void describe_blocks(int number, struct golden_attention *w)
{
    enum { FIRST = ATTNKIT_Q4_0, TYPES = ATTNKIT_F8_E4M3 - ATTNKIT_Q4_0 + 1 };
    uint64_t random = begin(w, 19, number);
    draw_types(w, &random);
    w->k = (attnkit_type)(FIRST + number % TYPES);
    w->v = (attnkit_type)(FIRST + number / TYPES % TYPES);
    draw_layout(w, number % LAYOUTS, &random);
    w->tiled = false;
    draw_shape(w, number, &random);
    draw_numbers(w, &random);
    draw_causal(w, &random);
}

/* --- Masks ------------------------------------------------------------------------------------ */

static void draw_window(struct golden_attention *w, bool keeps_first, uint64_t *random)
{
    w->has_window = true;
    w->left = random_below(random, golden_one_in(random, 2) ? 4 : 300) - 1;
    w->right = random_below(random, golden_one_in(random, 2) ? 4 : 300) - 1;
    w->keep_first = keeps_first ? 1 + random_below(random, 150) : 0;
}

enum { MASKS = 14 };

static void draw_mask(struct golden_attention *w, int mask, uint64_t *random)
{
    switch (mask) {
    case 0:
    case 1:
    case 2:
        w->is_causal = true;
        w->align = (attnkit_align)(ATTNKIT_ALIGN_UPPER_LEFT + mask);
        break;
    case 3:
    case 4:
        draw_window(w, mask == 4, random);
        break;
    case 5:
        w->has_lens = true;
        break;
    case 6:
        w->has_segments = true;
        break;
    case 7:
    case 8:
        w->bytes = (attnkit_mask_kind)(ATTNKIT_MASK_ATTEND + mask - 7);
        break;
    case 9:
    case 10:
        w->bits = (attnkit_mask_kind)(ATTNKIT_MASK_ATTEND + mask - 9);
        break;
    default:
        w->has_bias = true;
        w->bias = (attnkit_type)(mask - 11);
    }
}

/* Draws the remaining options: the columns of masks, and positions if another option needs
 * positions. Removes the lengths if the keys are packed. */
static void finish(struct golden_attention *w, uint64_t *random)
{
    const bool needs_positions = w->has_window || w->has_slopes || w->dropout > 0.0;
    w->short_columns = golden_one_in(random, 4);
    w->shared_columns = golden_one_in(random, 4);
    w->has_lens = w->has_lens && !w->packed_kv;
    if (needs_positions && w->align == ATTNKIT_ALIGN_NONE)
        draw_positions(w, random);
}

/* Describes a case with one or two masks. The numbers go through each mask alone, then through each
 * pair of masks. */
static void describe_masks(int number, struct golden_attention *w)
{
    uint64_t random = begin(w, 6, number);
    const int other = number / MASKS % (MASKS + 1) - 1;
    if (golden_one_in(&random, 4))
        draw_types(w, &random);
    if (golden_one_in(&random, 3))
        draw_layout(w, (int)random_below(&random, LAYOUTS), &random);
    draw_shape(w, number, &random);
    draw_numbers(w, &random);
    if (other >= 0)
        draw_mask(w, other, &random);
    draw_mask(w, number % MASKS, &random);
    finish(w, &random);
}

/* --- Score mods and weights ------------------------------------------------------------------- */

enum { SCORE_SETS = 64 };

static void draw_scores(struct golden_attention *w, int set, uint64_t *random)
{
    if (set & 1)
        w->softcap = golden_one_in(random, 3) ? 0.5 : 30.0;
    w->has_slopes = set & 2;
    w->has_sinks = set & 4;
    if (set & 8)
        w->dropout = golden_one_in(random, 3) ? 0.9 : 0.1;
    w->has_bias = w->has_bias || set & 16;
    if (set & 32) {
        w->has_scale = true;
        w->scale = golden_one_in(random, 4) ? 0.0 : (double)random_uniform(random);
    }
}

static void describe_scores(int number, struct golden_attention *w)
{
    uint64_t random = begin(w, 7, number);
    if (golden_one_in(&random, 4))
        draw_types(w, &random);
    draw_shape(w, number, &random);
    draw_numbers(w, &random);
    draw_scores(w, number % SCORE_SETS, &random);
    draw_causal(w, &random);
    finish(w, &random);
}

static void describe_weights(int number, struct golden_attention *w)
{
    uint64_t random = begin(w, 8, number);
    w->weights = (attnkit_weights_kind)(ATTNKIT_WEIGHTS_SOFTMAX + number % 4);
    if (golden_one_in(&random, 2))
        draw_types(w, &random);
    draw_shape(w, number, &random);
    draw_numbers(w, &random);
    draw_scores(w, (int)random_below(&random, SCORE_SETS), &random);
    draw_causal(w, &random);
    if (golden_one_in(&random, 2))
        draw_mask(w, (int)random_below(&random, MASKS), &random);
    finish(w, &random);
}

/* --- All options together --------------------------------------------------------------------- */

static void describe_options(int number, struct golden_attention *w)
{
    uint64_t random = begin(w, 9, number);
    draw_types(w, &random);
    draw_layout(w, (int)random_below(&random, LAYOUTS), &random);
    draw_shape(w, number, &random);
    draw_numbers(w, &random);
    draw_scores(w, (int)random_below(&random, SCORE_SETS), &random);
    for (int64_t masks = random_below(&random, 5); masks > 0; masks--)
        draw_mask(w, (int)random_below(&random, MASKS), &random);
    if (golden_one_in(&random, 4))
        w->weights = (attnkit_weights_kind)(1 + random_below(&random, 4));
    finish(w, &random);
}

/* --- Factors of a bias ------------------------------------------------------------------------ */

/* Describes a case whose bias has factors. The number chooses the type of the bias. The types of q,
 * K, V and out are drawn, and so are layout, score mods, causal, lengths and weights. */
static void describe_bias_scales(int number, struct golden_attention *w)
{
    uint64_t random = begin(w, 19, number);
    if (golden_one_in(&random, 4))
        draw_types(w, &random);
    if (golden_one_in(&random, 3))
        draw_layout(w, (int)random_below(&random, LAYOUTS), &random);
    draw_shape(w, number, &random);
    draw_numbers(w, &random);
    draw_scores(w, (int)random_below(&random, SCORE_SETS), &random);
    draw_causal(w, &random);
    w->has_bias = w->has_bias_scales = true;
    w->bias = (attnkit_type)(number % 3);
    if (golden_one_in(&random, 3))
        w->weights = (attnkit_weights_kind)(1 + random_below(&random, 4));
    finish(w, &random);
}

/* --- Cells ------------------------------------------------------------------------------------ */

/* Describes a call whose keys lie in cells. Half of the cases also draw masks and score mods. Cells
 * allow only the layouts 0 (head-major), 1 (token-major) and 5 (packed query rows) of
 * draw_layout. */
static void describe_cells(int number, struct golden_attention *w)
{
    static const int layouts[] = {0, 1, 5};
    uint64_t random = begin(w, 30, number);
    w->cells = true;
    draw_types(w, &random);
    draw_layout(w, layouts[number % 3], &random);
    draw_shape(w, number, &random);
    draw_numbers(w, &random);
    draw_causal(w, &random);
    if (number % 2) {
        draw_scores(w, (int)random_below(&random, SCORE_SETS), &random);
        for (int64_t masks = 1 + random_below(&random, 2); masks > 0; masks--)
            draw_mask(w, (int)random_below(&random, MASKS), &random);
    }
    if (golden_one_in(&random, 4))
        w->weights = (attnkit_weights_kind)(1 + random_below(&random, 4));
    finish(w, &random);
}

/* --- Integers --------------------------------------------------------------------------------- */

/* The ways in which calls with integers store K and V: layouts for draw_layout. In the last
 * CELL_WAYS ways, the keys also lie in cells. */
struct ways {
    const int *layouts;
    int count;
};

enum { CELL_WAYS = 2 };

/* Describes a call that multiplies K and V of the given types as integers. The number chooses one
 * of the ways. Half of the cases also draw masks and score mods. */
static void describe_integers_of(int number, attnkit_type k, attnkit_type v, struct ways ways,
                                 uint64_t seed, struct golden_attention *w)
{
    uint64_t random = begin(w, seed, number);
    draw_types(w, &random);
    w->k = k;
    w->v = v;
    w->integers = true;
    w->cells = number % ways.count >= ways.count - CELL_WAYS;
    draw_layout(w, ways.layouts[number % ways.count], &random);
    draw_shape(w, number / ways.count, &random);
    draw_numbers(w, &random);
    draw_causal(w, &random);
    if (number / ways.count % 2) {
        draw_scores(w, (int)random_below(&random, SCORE_SETS), &random);
        for (int64_t masks = random_below(&random, 3); masks > 0; masks--)
            draw_mask(w, (int)random_below(&random, MASKS), &random);
    }
    finish(w, &random);
}

static void describe_integers(int number, struct golden_attention *w)
{
    static const int layouts[] = {0, 1, 3, 5, 6, 7, 0, 5};
    const struct ways ways = {layouts, sizeof layouts / sizeof layouts[0]};
    describe_integers_of(number, ATTNKIT_Q8_0, ATTNKIT_Q8_0, ways, 31, w);
}

/* Describes a call with K and V of ATTNKIT_I8, or with one of them of ATTNKIT_I8 and the other of
 * ATTNKIT_Q8_0. */
static void describe_integers_i8(int number, struct golden_attention *w)
{
    static const int layouts[] = {0, 1, 2, 3, 4, 5, 6, 8, 0, 5};
    const struct ways ways = {layouts, sizeof layouts / sizeof layouts[0]};
    const int types = number / ways.count / 2 % 4;
    describe_integers_of(number, types == 1 ? ATTNKIT_Q8_0 : ATTNKIT_I8,
                         types == 2 ? ATTNKIT_Q8_0 : ATTNKIT_I8, ways, 33, w);
}

/* --- Products of bf16 ------------------------------------------------------------------------- */

/* Describes a call that multiplies bf16 in groups of products, with weights of one or two bf16. The
 * cases go through all layouts without tiles, and through cells. Half of the cases also draw masks
 * and score mods. No case has dropout. */
static void describe_products(int number, struct golden_attention *w)
{
    static const int layouts[] = {0, 1, 3, 5, 6, 7, 0, 5};
    enum { WITH_CELLS = 6, WAYS = 8 };
    uint64_t random = begin(w, 32, number);
    draw_types(w, &random);
    w->q = w->k = w->v = ATTNKIT_BF16;
    w->parts = 1 + number / (2 * WAYS) % 2;
    w->cells = number % WAYS >= WITH_CELLS;
    draw_layout(w, layouts[number % WAYS], &random);
    draw_shape(w, number / WAYS, &random);
    draw_numbers(w, &random);
    draw_causal(w, &random);
    if (number / WAYS % 2) {
        draw_scores(w, (int)random_below(&random, SCORE_SETS), &random);
        for (int64_t masks = random_below(&random, 3); masks > 0; masks--)
            draw_mask(w, (int)random_below(&random, MASKS), &random);
    }
    w->dropout = 0.0;
    finish(w, &random);
}

/* --- Kinds ------------------------------------------------------------------------------------ */

static uint64_t hash_of(const struct golden_kind *kind, int number, int way, const char *isa)
{
    (void)way;
    struct golden_attention what;
    kind->describe(number, &what);
    struct golden_call *const c = golden_call_new(&what);
    const uint64_t hash = golden_call_hash(c, isa);
    golden_call_free(c);
    return hash;
}

static void print(const struct golden_kind *kind, int number)
{
    struct golden_attention what;
    kind->describe(number, &what);
    golden_attention_print(&what);
}

static const struct golden_kind kinds[] = {
    {"attention-layouts", 180, 1, hash_of, print, describe_layouts},
    {"attention-f16", 450, 1, hash_of, print, describe_f16},
    {"attention-bf16", 450, 1, hash_of, print, describe_bf16},
    {"attention-i8", 450, 1, hash_of, print, describe_i8},
    {"attention-q8_0", 450, 1, hash_of, print, describe_q8_0},
    {"attention-masks", 420, 1, hash_of, print, describe_masks},
    {"attention-scores", 384, 1, hash_of, print, describe_scores},
    {"attention-weights", 200, 1, hash_of, print, describe_weights},
    {"attention-options", 500, 1, hash_of, print, describe_options},
    {"attention-bias-scales", 210, 1, hash_of, print, describe_bias_scales},
    {"attention-cells", 240, 1, hash_of, print, describe_cells},
    {"attention-blocks", 256, 1, hash_of, print, describe_blocks},
    {"attention-integers", 320, 1, hash_of, print, describe_integers},
    {"attention-products", 320, 1, hash_of, print, describe_products},
    {"attention-integers-i8", 320, 1, hash_of, print, describe_integers_i8},
};

const struct golden_kinds golden_attention = {kinds, sizeof kinds / sizeof kinds[0]};
