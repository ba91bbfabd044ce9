/* SPDX-License-Identifier: Apache-2.0
 *
 * Tries, with crafted numbers, the tiles of a unit for groups of products. isa.c does not use the
 * unit if a score, an element of o or a number of the softmax has other bits than with the scalar
 * tiles. A trial takes some milliseconds, so only units that a program has to enable are tried.
 */
#include "dispatch/cpu/probe.h"

#include "kernels/scalar/scalar.h"

/* A panel of GROUP_LANES lanes, which is too small for the tiles of large panels. The trial finds
 * out whether the instructions give the right bits, and the tests find out whether the tiles use
 * them in the right way. The numbers of keys and of dimensions are multiples neither of a tile nor
 * of a group of products. Both numbers, rounded up to whole quads, are GROUP_QUADS. */
enum { GROUP_LANES = 16, GROUP_KEYS = 37, GROUP_DIM = 38, GROUP_QUADS = 40 };

struct group_trial {
    uint16_t q[GROUP_LANES][GROUP_DIM], k[GROUP_KEYS][GROUP_DIM], v[GROUP_KEYS][GROUP_DIM];
    _Alignas(MAX_VECTOR * sizeof(float)) float scores[GROUP_KEYS * GROUP_LANES];
};

struct group_results {
    _Alignas(MAX_VECTOR * sizeof(float)) float s[GROUP_KEYS * GROUP_LANES], maxima[GROUP_LANES];
    _Alignas(MAX_VECTOR * sizeof(float)) float o[GROUP_DIM * GROUP_LANES];
    _Alignas(MAX_VECTOR * sizeof(float)) float max[GROUP_LANES], sum[GROUP_LANES];
    _Alignas(MAX_VECTOR * sizeof(float)) float rescale[GROUP_LANES];
};

/* Draws bf16 of both signs, with exponents from -spread to spread. Half of the numbers have only
 * one bit of fraction, so that sums are often 0, or lie halfway between two numbers of binary32. */
static void draw_bf16(uint32_t *random, uint16_t *numbers, int count, int spread)
{
    for (int i = 0; i < count; i++) {
        *random = *random * 1664525u + 1013904223u;
        const uint32_t bits = *random >> 8, mantissa = bits & 0x100 ? bits & 0x7f : bits & 0x40;
        const uint32_t exponent = (uint32_t)(127 - spread) + (bits >> 10) % (2 * spread + 1);
        numbers[i] = (uint16_t)((bits & 0x80) << 8 | exponent << 7 | mantissa);
    }
}

static void draw_trial(uint32_t *random, int spread, struct group_trial *t)
{
    draw_bf16(random, t->q[0], GROUP_LANES * GROUP_DIM, spread);
    draw_bf16(random, t->k[0], GROUP_KEYS * GROUP_DIM, spread);
    draw_bf16(random, t->v[0], GROUP_KEYS * GROUP_DIM, spread);
    for (int i = 0; i < GROUP_KEYS * GROUP_LANES; i++) {
        *random = *random * 1664525u + 1013904223u;
        t->scores[i] = (float)(*random >> 8) * -0x1p-19f;
    }
}

/* Computes scores with a scale of 1. If at_once, `scores` scales them, else `scale` does. */
static void score_trial(const struct grouped_kernels *g, const struct group_trial *t, bool at_once,
                        struct group_results *r)
{
    const struct scaling scaling = {1.0f, NULL, r->maxima};
    _Alignas(MAX_VECTOR * sizeof(float)) float q_t[GROUP_QUADS * GROUP_LANES];
    float words[GROUP_KEYS * GROUP_QUADS];
    const int count = GROUP_QUADS / g->elements;
    const struct rows k = {(const char *)words, count * (ptrdiff_t)sizeof(float), count};
    for (int lane = 0; lane < GROUP_LANES; lane++) {
        g->pack_row(t->q[lane], GROUP_DIM, words);
        for (int i = 0; i < count; i++)
            q_t[i * GROUP_LANES + lane] = words[i];
    }
    for (int key = 0; key < GROUP_KEYS; key++)
        g->pack_row(t->k[key], GROUP_DIM, words + key * count);
    g->scores(q_t, GROUP_LANES, GROUP_LANES, &k, GROUP_KEYS, at_once ? &scaling : NULL, r->s);
    if (!at_once)
        g->scale(r->s, GROUP_LANES, GROUP_KEYS, &scaling);
}

static void weigh_trial(const struct grouped_kernels *g, const struct group_trial *t, bool is_short,
                        struct group_results *r)
{
    enum { PARTS = 2 * KEY_BLOCK * GROUP_LANES };
    _Alignas(MAX_VECTOR * sizeof(float)) float parts[PARTS];
    _Alignas(MAX_VECTOR * sizeof(float)) float largest[GROUP_LANES];
    _Alignas(MAX_VECTOR * sizeof(float)) float scores[GROUP_KEYS * GROUP_LANES];
    const struct state st = {.row_max = r->max, .row_sum = r->sum};
    const struct weight_parts to = {largest, parts};
    const struct scaling scaling = {1.0f, NULL, largest};
    float words[GROUP_QUADS * GROUP_DIM]; /* enough: a word has at least one key */
    const struct rows v = {(const char *)words, GROUP_DIM * sizeof(float), GROUP_DIM};
    for (int lane = 0; lane < GROUP_LANES; lane++) {
        r->max[lane] = -INFINITY;
        r->sum[lane] = 0.0f;
    }
    for (int key = 0; key < GROUP_KEYS; key += GROUP_PRODUCTS) {
        const void *row[GROUP_PRODUCTS];
        const int left = (int)whole_quads(GROUP_KEYS) - key;
        for (int i = 0; i < GROUP_PRODUCTS; i++)
            row[i] = key + i < GROUP_KEYS ? t->v[key + i] : NULL;
        g->pack_group(row, left < GROUP_PRODUCTS ? left : GROUP_PRODUCTS, GROUP_DIM,
                      words + key / g->elements * GROUP_DIM);
    }
    memcpy(scores, t->scores, sizeof scores);
    g->scale(scores, GROUP_LANES, GROUP_KEYS, &scaling);
    g->softmax(scores, GROUP_LANES, GROUP_KEYS, largest, &st, is_short, r->rescale, &to);
    g->weighted_v(parts, GROUP_LANES, GROUP_LANES, largest, NULL, &v, GROUP_KEYS, is_short, r->o);
}

static __attribute__((noinline)) void run_trial(const struct grouped_kernels *g,
                                                const struct group_trial *t, bool is_short,
                                                struct group_results *r)
{
    if (g->begin)
        g->begin();
    score_trial(g, t, is_short, r);
    weigh_trial(g, t, is_short, r);
    if (g->end)
        g->end();
}

/* Returns whether the numbers are the same. All NaN count as the same. */
static bool are_same(const float *x, const float *y, int count)
{
    for (int i = 0; i < count; i++)
        if (memcmp(&x[i], &y[i], sizeof *x) != 0 && (x[i] == x[i] || y[i] == y[i]))
            return false;
    return true;
}

static bool are_same_results(const struct group_results *x, const struct group_results *y)
{
    return are_same(x->s, y->s, GROUP_KEYS * GROUP_LANES) &&
           are_same(x->maxima, y->maxima, GROUP_LANES) &&
           are_same(x->o, y->o, GROUP_DIM * GROUP_LANES) && are_same(x->max, y->max, GROUP_LANES) &&
           are_same(x->sum, y->sum, GROUP_LANES) && are_same(x->rescale, y->rescale, GROUP_LANES);
}

bool attnkit_groups_keep_bits(const struct grouped_kernels *grouped, int lanes)
{
    static const int spreads[] = {1, 4, 30, 75}; /* with 75, sums overflow */
    uint32_t random = 1;
    if (lanes < GROUP_LANES)
        return false;
    for (int i = 0; i < 4; i++) {
        struct group_trial trial;
        struct group_results right, own;
        draw_trial(&random, spreads[i], &trial);
        run_trial(&attnkit_scalar_grouped, &trial, i % 2, &right);
        run_trial(grouped, &trial, i % 2, &own);
        if (!are_same_results(&own, &right))
            return false;
    }
    return true;
}
