/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of the benches that measure single tiles (entries of a kernel table), such as
 * tile/scores/f32/avx2/D128. D128 is a head dim of 128 or, in linear maps, 128 inputs. A measured
 * call works on at most one block of keys and one panel of query rows, and all data is in the
 * caches. Tiles of linear maps compute 48 outputs of 128 rows, or 64 outputs of one row. Tiles that
 * consist of multiply-adds are compared with the roof of multiply-adds. The results file has the
 * nanoseconds per element of each tile's result.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cache/append.h"
#include "kernels/cache/spread.h"
#include "tests/support/random.h"
#include "bench/rows/rows.h"

enum {
    ROWS = 4,        /* number of rows of decode: the query heads of a KV head */
    OUTS = 64,       /* number of outputs of a linear map of few rows */
    PANEL_OUTS = 48, /* number of outputs of a linear map of many rows */
};

/* Operands for every tile. head_dim and value_dim are both `dim`. */
struct operands {
    const struct kernels *kernels;
    int64_t dim;
    float *q, *k, *v; /* rows of dim floats */
    float *q_t, *scores, *rescale, *exponents;
    char *f16, *q8_0;  /* the rows of k in these types */
    char *q8_0_matrix; /* OUTS rows in tiles */
    float *cos, *sin;  /* dim / 2 numbers of one position */
    float *out;
    struct state state;
    const float *q_rows[MAX_LANES];
    float *out_rows[MAX_LANES];
    int32_t visible[MAX_DECODE_ROWS];
    const char *k_rows[KEY_BLOCK], *v_rows[KEY_BLOCK]; /* operands of decode */
    float *memory;
};

/* ------------------------------------------------------------------------------ the operands */

/* Takes the next `count` floats of the memory, aligned to a cache line. */
static float *take(float **memory, int64_t count)
{
    const int64_t line = 16;
    float *taken = *memory;
    *memory += (count + line - 1) / line * line;
    return taken;
}

static struct state take_state(float **memory, int64_t dim)
{
    struct state st;
    st.out = take(memory, dim * MAX_LANES);
    st.row_max = take(memory, MAX_LANES);
    st.row_sum = take(memory, MAX_LANES);
    return st;
}

static size_t floats_needed(int64_t dim)
{
    return (size_t)(MAX_LANES * (12 * dim + 2 * KEY_BLOCK + 8));
}

/* Sets a state in which every row has already seen keys. */
static void begin_state(struct state st, int64_t dim)
{
    for (int lane = 0; lane < MAX_LANES; lane++) {
        st.row_max[lane] = 4.0f;
        st.row_sum[lane] = 1.0f;
    }
    memset(st.out, 0, (size_t)(dim * MAX_LANES) * sizeof(float));
}

static void narrow_rows(const struct operands *o, enum type type, char *rows)
{
    for (int row = 0; row < KEY_BLOCK; row++)
        o->kernels->narrow(type, o->k + row * o->dim, o->dim, 0,
                           rows + row * bytes_of(type, o->dim), NULL);
}

static void make_matrix(const struct operands *o)
{
    for (int out = 0; out < OUTS; out++)
        spread_row(TYPE_Q8_0, o->q8_0 + out * bytes_of(TYPE_Q8_0, o->dim), o->dim, out % TILE_KEYS,
                   o->q8_0_matrix + out / TILE_KEYS * TILE_KEYS * bytes_of(TYPE_Q8_0, o->dim));
}

static bool make_operands(struct operands *o, const struct kernels *kernels, int64_t dim)
{
    uint64_t seed = 1;
    const size_t count = floats_needed(dim);
    float *memory = aligned_alloc(64, count * sizeof(float));
    *o = (struct operands){.kernels = kernels, .dim = dim, .memory = memory};
    if (!memory)
        return false;
    for (size_t i = 0; i < count; i++)
        memory[i] = random_uniform(&seed);
    o->q = take(&memory, dim * MAX_LANES);
    o->k = take(&memory, dim * KEY_BLOCK);
    o->v = take(&memory, dim * KEY_BLOCK);
    o->q_t = take(&memory, dim * MAX_LANES);
    o->scores = take(&memory, KEY_BLOCK * MAX_LANES);
    o->exponents = take(&memory, KEY_BLOCK * MAX_LANES);
    o->rescale = take(&memory, MAX_LANES);
    o->f16 = (char *)take(&memory, dim * KEY_BLOCK / 2);
    o->q8_0 = (char *)take(&memory, dim * KEY_BLOCK / 2);
    o->q8_0_matrix = (char *)take(&memory, dim * OUTS / 2);
    o->cos = take(&memory, dim / 2);
    o->sin = take(&memory, dim / 2);
    o->state = take_state(&memory, dim);
    o->out = take(&memory, dim * MAX_LANES);
    begin_state(o->state, dim);
    for (int lane = 0; lane < MAX_LANES; lane++) {
        o->q_rows[lane] = o->q + lane * dim;
        o->out_rows[lane] = o->out + lane * dim;
        o->rescale[lane] = 1.0f;
    }
    for (int i = 0; i < KEY_BLOCK * MAX_LANES; i++)
        o->exponents[i] = -8.0f - 8.0f * o->exponents[i]; /* between -16 and 0, as in a softmax */
    for (int row = 0; row < ROWS; row++)
        o->visible[row] = KEY_BLOCK;
    for (int key = 0; key < KEY_BLOCK; key++) {
        o->k_rows[key] = (const char *)(o->k + key * dim);
        o->v_rows[key] = (const char *)(o->v + key * dim);
    }
    narrow_rows(o, TYPE_F16, o->f16);
    narrow_rows(o, TYPE_Q8_0, o->q8_0);
    make_matrix(o);
    for (int64_t i = 0; i < dim / 2; i++) {
        o->cos[i] = 0.6f;
        o->sin[i] = 0.8f;
    }
    return true;
}

static struct rows block_of(const float *first, int64_t dim)
{
    return (struct rows){(const char *)first, dim * (int64_t)sizeof(float), dim};
}

/* --------------------------------------------------------------------------------- the tiles */

static void call_pack_q(void *argument)
{
    const struct operands *const o = argument;
    o->kernels->pack_q(o->q_rows, o->kernels->lanes, o->dim, o->q_t);
}

static void call_scores(void *argument)
{
    const struct operands *const o = argument;
    const struct rows k = block_of(o->k, o->dim);
    o->kernels->scores(o->q_t, o->kernels->lanes, &k, KEY_BLOCK, o->scores, NULL);
}

/* Calls softmax. The tile works in place. So the weights of one call are the scores of the next
 * call. From the second call on, the scores are between 0 and 1. So these calls all take the same
 * time. */
static void call_softmax(void *argument)
{
    const struct operands *const o = argument;
    o->kernels->softmax(o->scores, o->kernels->lanes, KEY_BLOCK, NULL, 0.125f, &o->state,
                        o->rescale);
}

static void call_weighted_v(void *argument)
{
    const struct operands *const o = argument;
    const struct rows v = block_of(o->v, o->dim);
    o->kernels->weighted_v(o->scores, o->kernels->lanes, o->rescale, &v, KEY_BLOCK, o->state.out,
                           NULL);
}

static void call_finish(void *argument)
{
    const struct operands *const o = argument;
    o->kernels->finish(&o->state, o->kernels->lanes, o->dim, o->kernels->lanes, o->out_rows, NULL);
}

static void call_decode(void *argument)
{
    const struct operands *const o = argument;
    const struct decode_block block = {.q = o->q_rows,
                                       .visible = o->visible,
                                       .k = {.type = TYPE_F32, .dim = o->dim, .row = o->k_rows},
                                       .v = {.type = TYPE_F32, .dim = o->dim, .row = o->v_rows},
                                       .st = &o->state};
    o->kernels->decode(&block, ROWS, 0.125f);
}

static void widen_rows(const struct operands *o, enum type type, const char *rows)
{
    for (int row = 0; row < KEY_BLOCK; row++)
        o->kernels->widen(type, rows + row * bytes_of(type, o->dim), NULL, 0, o->dim,
                          o->v + row * o->dim);
}

static void call_widen_f16(void *argument)
{
    const struct operands *const o = argument;
    widen_rows(o, TYPE_F16, o->f16);
}

static void call_widen_q8_0(void *argument)
{
    const struct operands *const o = argument;
    widen_rows(o, TYPE_Q8_0, o->q8_0);
}

static void call_narrow_f16(void *argument)
{
    const struct operands *const o = argument;
    narrow_rows(o, TYPE_F16, o->f16);
}

static void call_narrow_q8_0(void *argument)
{
    const struct operands *const o = argument;
    narrow_rows(o, TYPE_Q8_0, o->q8_0);
}

static void rotate_rows(const struct operands *o, bool interleaved)
{
    for (int row = 0; row < KEY_BLOCK; row++)
        o->kernels->rotate(o->v + row * o->dim, o->cos, o->sin, o->dim / 2, interleaved);
}

static void call_rotate_interleaved(void *argument)
{
    rotate_rows(argument, true);
}

static void call_rotate_half(void *argument)
{
    rotate_rows(argument, false);
}

/* Computes a linear map. q serves as the matrix in tiles, and k as the input rows. The tile reads q
 * and k in the layouts of struct product. */
static void call_product(void *argument)
{
    const struct operands *const o = argument;
    const struct product product = {
        .x = o->k,
        .dim = o->dim,
        .rows = KEY_BLOCK,
        .w = o->q,
        .tile_step = o->dim * TILE_KEYS * (int64_t)sizeof(float),
        .y = o->scores,
        .y_stride = PANEL_OUTS * sizeof(float),
        .outs = PANEL_OUTS,
    };
    o->kernels->product(&product);
}

static void multiply_row(const struct operands *o, enum type type, const char *w)
{
    const float *const x = o->k;
    float *const y = o->scores;
    const struct few_product product = {
        .type = type, .x = &x, .rows = 1, .dim = o->dim, .w = w, .y = &y, .outs = OUTS};
    o->kernels->few_product(&product);
}

static void call_few_product_f32(void *argument)
{
    const struct operands *const o = argument;
    multiply_row(o, TYPE_F32, (const char *)o->q);
}

static void call_few_product_f16(void *argument)
{
    const struct operands *const o = argument;
    multiply_row(o, TYPE_F16, o->f16);
}

static void call_few_product_q8_0(void *argument)
{
    const struct operands *const o = argument;
    multiply_row(o, TYPE_Q8_0, o->q8_0_matrix);
}

static void call_exp2(void *argument)
{
    const struct operands *const o = argument;
    o->kernels->exp2(o->exponents, o->scores, KEY_BLOCK * MAX_LANES);
}

/* ------------------------------------------------------------------------------ their figures */

static struct work work_of_rows(const struct kernels *kernels, double dim)
{
    return (struct work){.elements = kernels->lanes * dim};
}

static struct work work_of_scores(const struct kernels *kernels, double dim)
{
    const double elements = KEY_BLOCK * kernels->lanes;
    return (struct work){.flops = 2.0 * elements * dim, .elements = elements};
}

static struct work work_of_softmax(const struct kernels *kernels, double dim)
{
    (void)dim;
    return (struct work){.elements = KEY_BLOCK * kernels->lanes};
}

static struct work work_of_weighted_v(const struct kernels *kernels, double dim)
{
    const double elements = kernels->lanes * dim;
    return (struct work){.flops = 2.0 * elements * KEY_BLOCK, .elements = elements};
}

static struct work work_of_decode(const struct kernels *kernels, double dim)
{
    (void)kernels;
    return (struct work){.flops = 4.0 * ROWS * KEY_BLOCK * dim, .elements = ROWS * dim};
}

static struct work work_of_keys(const struct kernels *kernels, double dim)
{
    (void)kernels;
    return (struct work){.elements = KEY_BLOCK * dim};
}

static struct work work_of_product(const struct kernels *kernels, double dim)
{
    (void)kernels;
    return (struct work){.flops = 2.0 * KEY_BLOCK * PANEL_OUTS * dim,
                         .elements = KEY_BLOCK * PANEL_OUTS};
}

static struct work work_of_few_product(const struct kernels *kernels, double dim)
{
    (void)kernels;
    return (struct work){.flops = 2.0 * OUTS * dim, .elements = OUTS};
}

static struct work work_of_exp2(const struct kernels *kernels, double dim)
{
    (void)kernels, (void)dim;
    return (struct work){.elements = KEY_BLOCK * MAX_LANES};
}

/* The tiles. Only scores, weighted_v, decode and the tiles of linear maps have FLOPs. A tile
 * without FLOPs has no roof. */
static const struct tile {
    const char *name, *type;
    void (*call)(void *operands);
    struct work (*work)(const struct kernels *kernels, double dim);
    bool any_dim; /* the head dim does not matter */
} tiles[] = {
    {"pack_q", "f32", call_pack_q, work_of_rows, false},
    {"scores", "f32", call_scores, work_of_scores, false},
    {"softmax", "f32", call_softmax, work_of_softmax, true},
    {"exp2", "f32", call_exp2, work_of_exp2, true},
    {"weighted_v", "f32", call_weighted_v, work_of_weighted_v, false},
    {"finish", "f32", call_finish, work_of_rows, false},
    {"decode", "f32", call_decode, work_of_decode, false},
    {"product", "f32", call_product, work_of_product, false},
    {"few_product", "f32", call_few_product_f32, work_of_few_product, false},
    {"few_product", "f16", call_few_product_f16, work_of_few_product, false},
    {"few_product", "q8_0", call_few_product_q8_0, work_of_few_product, false},
    {"widen", "f16", call_widen_f16, work_of_keys, false},
    {"widen", "q8_0", call_widen_q8_0, work_of_keys, false},
    {"narrow", "f16", call_narrow_f16, work_of_keys, false},
    {"narrow", "q8_0", call_narrow_q8_0, work_of_keys, false},
    {"rotate_interleaved", "f32", call_rotate_interleaved, work_of_keys, false},
    {"rotate_half", "f32", call_rotate_half, work_of_keys, false},
};

static void run(const struct row *row, struct patience patience, struct result *result)
{
    const struct tile *const tile = row->detail;
    struct operands operands;
    struct roof roof;
    if (!roof_fma(&roof, row->isa->name, NULL)) {
        row_fails(result, "no loops for the roof of %s", row->isa->name);
        return;
    }
    if (!make_operands(&operands, row->isa->kernels, row->number)) {
        row_fails(result, "no memory");
        return;
    }
    result->work = tile->work(row->isa->kernels, (double)row->number);
    const struct subject subject = {tile->call, &operands, result->work.flops, NULL};
    patience.seconds /= 5.0;
    measure(&subject, result->work.flops > 0.0 ? &roof : NULL, patience, &result->figures);
    free(operands.memory);
}

/* ---------------------------------------------------------------------------------- the rows */

static void add_tile(struct row_list *rows, const struct tile *tile, const struct isa *isa)
{
    static const int64_t dims[] = {64, 128};
    for (size_t i = 0; i < sizeof dims / sizeof *dims && !(i > 0 && tile->any_dim); i++) {
        struct row *row = rows_add(rows, "tile/%s/%s/%s", tile->name, tile->type, isa->name);
        if (!tile->any_dim)
            snprintf(row->name + strlen(row->name), 16, "/D%d", (int)dims[i]);
        row->isa = isa;
        row->number = dims[i];
        row->detail = tile;
        row->run = run;
    }
}

void add_tile_rows(struct row_list *rows)
{
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = count - 1; i >= 0; i--)
        for (size_t t = 0; attnkit_isa_can_run(&isas[i]) && t < sizeof tiles / sizeof *tiles; t++)
            add_tile(rows, &tiles[t], &isas[i]);
}
