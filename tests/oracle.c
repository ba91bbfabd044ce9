/* SPDX-License-Identifier: Apache-2.0
 *
 * The bound, step by step of the canonical order. Computed values have a hat: s^. One rounding is
 * a factor in [1/(1+u), 1+u] with u = 2^-24, so n of them are one in [exp(-nu), exp(nu)]; where the
 * result is subnormal it also loses at most e = 2^-150.
 *
 * Scores. A chain of D has D roundings: |s^ - s| <= (exp(Du) - 1) sum_d |q_d k_jd| + D e exp(Du).
 * The factor c has u, and a few 2^-53 from binary64. t = s c is rounded once:
 * |t^ - t| <= u |s^ c^| + e + |s^ - s| |c^| + |s| |c^ - c| =: dt_j.
 *
 * Weights. M, the last maximum, is the ceil of some t^, so M <= top + 1 with top = max_j (t_j +
 * dt_j). No maximum on the way is above it: t^_j - M' is off by at most u (top + 1 - t_j + dt_j).
 * exp2 is off by 1 ulp, a factor of 1 +- 2u. So a weight is W_j = 2^(t_j - M) times a factor
 * 1 + a_j in [exp(-H_j), exp(H_j)],
 *     H_j = ln 2 (dt_j + u (top + 1 - t_j + dt_j)) + 2u + O(u^2),
 * less what it lost: e where the result of exp2 is subnormal, and e where a rescale was flushed
 * to 0, because that was at most e and the weight at most 1 + 2u.
 *
 * Sums. Rescales are powers of 2, their products are exact but for e. A weight goes into l through
 * the additions of its block except the first, which is to 0; through those of the blocks of its
 * chunk except the first; and of the chunks except the first: h_l roundings. Into o it goes through
 * the product with v besides: h_o = h_l + 1. Each product with v, each block and (twice) each chunk
 * can lose e, which later rescales only make smaller.
 *
 * Quotient. With W = sum_j W_j, w_j = W_j / W, o = sum_j w_j v_j, and 1 + f_j, 1 + g_j the factors
 * of the roundings in the two sums (a_j is the same in both),
 *     (o^ - o l^) / W = sum_j w_j a_j (v_j - o) + sum_j w_j (1 + a_j) (f_j v_j - g_j o)
 *                       + lost_o - o lost_l,
 * because sum_j w_j (v_j - o) = 0; and l^ / W >= exp(-h_l u) sum_j w_j exp(-H_j) - lost_l. Their
 * quotient is the error of o^ / l^, which is rounded once more. What is lost is the above, times
 * exp(h_o u), over W; and W >= 2^(t_b - top - 1) sum_j exp(x_j - x_b) for the best key b.
 *
 * Logarithm. ln l^ has the error of l^, then 1 ulp of its own; two fused roundings add M ln 2, and
 * LN2_HI + LN2_LO is not quite ln 2. M is between t_b - dt_b and top + 1.
 *
 * The oracle's own roundings are to all of this as 2^-53, or 2^-64, to u; a factor at the end is
 * for them.
 */
#include "oracle.h"

#include <math.h>
#include <stdlib.h>

#include "../kernels/kernels.h"

typedef long double real;

static const real U = 0x1p-24L;
static const real LOSS = 0x1p-150L;
static const real EXP2_ERROR = 0x1.000004p-23L;   /* at least -ln (1 - 2u) */
static const real WEIGHT_LOSS = 0x1.000004p-149L; /* at least e + e (1 + 2u) */
static const real C_ERROR = 0x1p-24L + 0x1p-50L;
static const real OWN_ERROR = 1 + 0x1p-20L;
static const real LN_2 = 0.693147180559945309417232121458176568L;

/* --- Where rows lie and what they see, by attnkit.h ------------------------------------------- */

/* The rows of one head. */
struct head {
    const char *first;
    int64_t stride;
};

static struct head find_head(const attnkit_attention_args *args, const void *tensor,
                             const int64_t strides[3], int64_t heads, int64_t rows, int64_t dim,
                             int64_t batch, int64_t head)
{
    const int64_t row = dim * (int64_t)sizeof(float);
    const int64_t dense[3] = {heads * rows * row, rows * row, row};
    const int64_t *s = args->flags & ATTNKIT_STRIDED ? strides : dense;
    return (struct head){(const char *)tensor + batch * s[0] + head * s[1], s[2]};
}

static const float *row_of(struct head head, int64_t row)
{
    return (const float *)(head.first + row * head.stride);
}

static int64_t count_visible(const attnkit_attention_args *args, int64_t batch, int64_t row)
{
    const int64_t keys = args->kv_lens ? args->kv_lens[batch] : args->kv_len;
    if (!(args->flags & ATTNKIT_CAUSAL))
        return keys;
    int64_t position = row;
    if (args->align == ATTNKIT_ALIGN_BOTTOM_RIGHT)
        position = keys - args->q_len + row;
    if (args->align == ATTNKIT_ALIGN_OFFSETS)
        position = args->q_offsets[batch] + row;
    if (position < 0)
        return 0;
    return position < keys ? position + 1 : keys;
}

/* --- Scores and weights ---------------------------------------------------------------------- */

/* One visible key. */
struct key {
    real x, magnitude; /* scale sum_d q_d k_d, and |scale| sum_d |q_d k_d| */
    real t, dt;        /* x / ln 2, and how far t^ can be from it */
    real weight;       /* w */
    real low, high;    /* w exp(-H), w exp(H) */
};

/* The visible keys of a row, and what its columns have in common. Sums are in units of W. */
struct row {
    struct key *keys;
    int64_t count;
    struct head v;
    real score_magnitude;
    real best_x, best_dt, top; /* best_x = max_j x_j; top as above */
    real log_sum;              /* ln sum_j exp(x_j - best_x) */
    real f, g;                 /* exp(h_o u) - 1, exp(h_l u) - 1 */
    real folds;                /* roundings of blocks and chunks that can lose e */
    real loss_unit;            /* what a loss of 1 is in units of W, at most */
    real lost_l;
    real l_low, l_high; /* l^ is between them */
};

static struct key score_key(const float *q, const float *k, int64_t head_dim, real scale)
{
    real s = 0, p = 0;
    for (int64_t d = 0; d < head_dim; d++) {
        const real product = (real)q[d] * k[d];
        s += product;
        p += fabsl(product);
    }
    const real c = fabsl(scale) / LN_2, dc = c * C_ERROR + LOSS;
    const real ds = expm1l(head_dim * U) * p + head_dim * LOSS * expl(head_dim * U);
    return (struct key){
        .x = s * scale,
        .magnitude = p * fabsl(scale),
        .t = s * scale / LN_2,
        .dt = U * (fabsl(s) + ds) * (c + dc) + LOSS + ds * (c + dc) + fabsl(s) * dc,
    };
}

static void score_keys(struct row *r, const attnkit_attention_args *args, const float *q,
                       struct head k)
{
    const real scale =
        args->flags & ATTNKIT_SCALE_GIVEN ? (real)args->scale : 1 / sqrtl((real)args->head_dim);
    r->best_x = r->top = -INFINITY;
    for (int64_t j = 0; j < r->count; j++) {
        const struct key key = score_key(q, row_of(k, j), args->head_dim, scale);
        r->keys[j] = key;
        r->top = fmaxl(r->top, key.t + key.dt);
        if (key.x > r->best_x) {
            r->best_x = key.x;
            r->best_dt = key.dt;
        }
    }
}

static void weigh_keys(struct row *r)
{
    real sum = 0;
    for (int64_t j = 0; j < r->count; j++)
        sum += expl(r->keys[j].x - r->best_x);
    r->log_sum = logl(sum);
    for (int64_t j = 0; j < r->count; j++) {
        struct key *key = &r->keys[j];
        const real h = LN_2 * (key->dt + U * (r->top + 1 - key->t + key->dt)) + EXP2_ERROR;
        const real log_weight = key->x - r->best_x - r->log_sum;
        key->weight = expl(log_weight);
        key->low = expl(log_weight - h);
        key->high = expl(log_weight + h);
    }
}

/* --- Sums ------------------------------------------------------------------------------------ */

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void count_roundings(struct row *r)
{
    const int64_t blocks = (r->count + KEY_BLOCK - 1) / KEY_BLOCK;
    const int64_t chunks = (r->count + CHUNK_KEYS - 1) / CHUNK_KEYS;
    const int64_t h_l =
        smaller(r->count, KEY_BLOCK) - 1 + smaller(blocks, CHUNK_KEYS / KEY_BLOCK) - 1 + chunks - 1;
    r->g = expm1l(h_l * U);
    r->f = expm1l((h_l + 1) * U);
    r->folds = (real)(blocks + 2 * chunks);
}

static void bound_sum(struct row *r)
{
    real low = 0, high = 0;
    for (int64_t j = 0; j < r->count; j++) {
        r->score_magnitude += r->keys[j].weight * r->keys[j].magnitude;
        low += r->keys[j].low;
        high += r->keys[j].high;
    }
    r->loss_unit = (1 + r->f) * expl(LN_2 * (r->top + 1) - r->best_x - r->log_sum);
    r->lost_l = r->loss_unit * (r->count * WEIGHT_LOSS + r->folds * LOSS);
    r->l_low = low / (1 + r->g) - r->lost_l;
    r->l_high = high * (1 + r->g) + r->lost_l;
}

/* --- Results --------------------------------------------------------------------------------- */

static struct oracle_element attend_column(const struct row *r, int64_t column)
{
    real o = 0, magnitude = 0, v_sum = 0;
    for (int64_t j = 0; j < r->count; j++) {
        const real v = row_of(r->v, j)[column];
        o += r->keys[j].weight * v;
        magnitude += r->keys[j].weight * fabsl(v);
        v_sum += fabsl(v);
    }
    real weights = 0, roundings = 0;
    for (int64_t j = 0; j < r->count; j++) {
        const struct key *key = &r->keys[j];
        const real v = row_of(r->v, j)[column];
        weights += (key->high - key->weight) * fabsl(v - o);
        roundings += key->high * (r->f * fabsl(v) + r->g * fabsl(o));
    }
    const real lost_o = r->loss_unit * (v_sum * WEIGHT_LOSS + (r->count + r->folds) * LOSS);
    const real error =
        r->l_low > 0 ? (weights + roundings + lost_o + fabsl(o) * r->lost_l) / r->l_low : INFINITY;
    const real bound = error + U * (fabsl(o) + error) + LOSS;
    return (struct oracle_element){(double)o, (double)magnitude, (double)(bound * OWN_ERROR)};
}

/* How far ln l^ and the two roundings after it can be off. */
static double bound_lse(const struct row *r, real lse)
{
    const real most_m = fmaxl(fabsl(r->top + 1), fabsl(r->best_x / LN_2 - r->best_dt));
    const real most_log = fmaxl(fabsl(r->log_sum + LN_2 * r->best_dt),
                                fabsl(r->log_sum + r->best_x - LN_2 * (r->top + 1)));
    const real l_error = r->l_low > 0 ? fmaxl(logl(r->l_high), -logl(r->l_low)) : INFINITY;
    const real log_error = 2 * U * (most_log + l_error);
    const real constant = most_m * fabsl(LN_2 - (real)LN2_HI - (real)LN2_LO);
    const real inner = U * (most_m * (real)LN2_LO + most_log + l_error + log_error) + LOSS;
    const real error = l_error + log_error + constant + inner;
    return (double)((error + U * (fabsl(lse) + error) + LOSS) * OWN_ERROR);
}

static struct oracle_row no_keys(int64_t value_dim, struct oracle_element *out)
{
    for (int64_t c = 0; c < value_dim; c++)
        out[c] = (struct oracle_element){0};
    return (struct oracle_row){.lse = -INFINITY};
}

struct oracle_row oracle_row(const attnkit_attention_args *args, int64_t batch, int64_t head,
                             int64_t row, struct oracle_element *out)
{
    const int64_t value_dim = args->value_dim ? args->value_dim : args->head_dim;
    const int64_t kv_head = head / (args->q_heads / args->kv_heads);
    const struct head q = find_head(args, args->q, args->q_strides, args->q_heads, args->q_len,
                                    args->head_dim, batch, head);
    const struct head k = find_head(args, args->k, args->k_strides, args->kv_heads, args->kv_len,
                                    args->head_dim, batch, kv_head);
    struct row r = {.count = count_visible(args, batch, row)};
    r.v = find_head(args, args->v, args->v_strides, args->kv_heads, args->kv_len, value_dim, batch,
                    kv_head);
    if (r.count == 0)
        return no_keys(value_dim, out);

    r.keys = malloc((size_t)r.count * sizeof *r.keys);
    score_keys(&r, args, row_of(q, row), k);
    weigh_keys(&r);
    count_roundings(&r);
    bound_sum(&r);
    for (int64_t c = 0; c < value_dim; c++)
        out[c] = attend_column(&r, c);
    free(r.keys);
    const real lse = r.best_x + r.log_sum;
    return (struct oracle_row){.keys = r.count,
                               .score_magnitude = (double)r.score_magnitude,
                               .lse = (double)lse,
                               .lse_bound = bound_lse(&r, lse)};
}

double oracle_unit(const struct oracle_row *row, const struct oracle_element *element)
{
    return 0x1p-24 * element->magnitude * (1 + row->score_magnitude) +
           (double)(row->keys + 4) * 0x1p-149;
}
