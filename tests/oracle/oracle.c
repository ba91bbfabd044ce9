/* SPDX-License-Identifier: Apache-2.0
 *
 * The error bound of attention, derived for each step of the canonical order in kernels/README.md.
 * A hat marks a computed value: s^ is the computed s. One rounding multiplies a value by a factor
 * in [1/(1+u), 1+u] with u = 2^-24, so n roundings multiply it by a factor in [exp(-nu), exp(nu)].
 * A subnormal result also loses at most e = 2^-150.
 *
 * Scores. The product s of q and k_j is a sum of D fused multiply-adds, where D is head_dim. Each
 * of them rounds once: |s^ - s| <= (exp(Du) - 1) sum_d |q_d k_jd| + D e exp(Du). The factor c,
 * scale / ln 2, has a relative error of u, and of a few 2^-53 from binary64. The product s c is off
 * by |s^ - s| |c^| + |s| |c^ - c|, and is rounded once. With a softcap, c is scale / cap, and this
 * product is y. Then z = tanh y has two errors. The error of y moves z at most to tanh(|y| +- |y^ -
 * y|), because tanh is increasing. tanh itself is off by TANH_ULPS ulp, each of which is at most a
 * factor of 1 +- 2 u, or 2 e. z is multiplied by the constant cap / ln 2, which has the same error
 * as c. A bias is multiplied by a constant, 1 / ln 2 times the factor of the head. This constant
 * has a relative error of u. If it is beyond binary32, it is infinite. The product of the constant
 * and the bias is rounded once. A product below -2^126 / ln 2 is replaced by this number, which
 * also has a relative error of u. The choice between the product and this number adds no further
 * error. ALiBi's slope is rounded once. The distance is rounded once if it is beyond 2^24, and the
 * product of slope and distance is rounded once. If there are a bias and a slope, the sum of these
 * two products is rounded once. A fused multiply-add adds the sum, or the only one of the two
 * products, to the product of score and factor. So with a bias or a slope, the product of score and
 * factor has no rounding of its own. t_j is the score of key j after all these steps, in units of
 * ln 2. dt_j is the largest error of t^_j.
 *
 * Weights. M, the last maximum, is the ceil of some t^, so M <= top + 1 with top = max_j (t_j +
 * dt_j). No earlier maximum is larger. So for each maximum M', the rounding of t^_j - M' is off by
 * at most u (top + 1 - t_j + dt_j). exp2 is off by at most 1 ulp, a factor of 1 +- 2u. Let W_j =
 * 2^(t_j - M). A weight other than 0 is then W_j times a factor 1 + a_j in [exp(-H_j), exp(H_j)],
 * where
 *     H_j = ln 2 (dt_j + u (top + 1 - t_j + dt_j)) + 2u + O(u^2).
 * A weight is 0 if the argument of exp2 was below -100.5, or if a rescale was 0. A rescale of
 * 2^-101 or less counts as 0, and the weight before the rescale is at most 1 + 2u. So a weight that
 * becomes 0 loses at most 2^-100.5 (1 + 2u). The sink is one of the weights. Its t has a relative
 * error of u from the rounding to binary32, and of a few 2^-53 from binary64. Its v is 0.
 *
 * Sums of a chunk, in binary32. Rescales are powers of 2 or 0, and products with them are exact
 * except for the loss e. h_l counts the roundings of a weight on its way into l, the sum of the
 * weights: one for each addition of its block except the first, which adds to 0, and one for each
 * block of its chunk except the first. Only keys that the row sees count, so h_l is at most 127 +
 * 3. On its way into o, the weighted sum of v, a weight is also rounded in the product with v: h_o
 * = h_l + 1. Each product with v and each block can lose e. Later rescales only make this loss
 * smaller.
 *
 * Chunks, in binary64. The state of the first chunk becomes the total unchanged. The state of each
 * other chunk is multiplied by a power of 2. This product is exact: the state has 24 bits, none of
 * them below 2^-149, and the factor is 0 or at least 2^-100. The sum of the state and the rescaled
 * total is rounded once, a factor in [exp(-2^-53), exp(2^-53)]. The sum of the sink and l is
 * rounded once as well; to o the sink adds 0. Only the number of these roundings grows with the
 * number of keys. For 2^22 keys their error is 2^-40, which is tiny compared with u. A total that
 * is rescaled again and again can become subnormal. It then loses up to 2^-1075 when a chunk or the
 * sink is added.
 *
 * If an element of a chunk's o is not finite although the chunk's l is finite, the element is l P /
 * W. P and W are sums in binary64, by step 9 of the canonical order. P and W take the same weights
 * as l, but P takes them after dropout. So the element has the h_l roundings of l, and fewer than 4
 * * 512 roundings of 2^-53. h_o also counts a rounding for the product with v, which covers these
 * smaller roundings.
 *
 * Dropout. On its way into o, a weight is multiplied by a factor, which is at least 1 and has a
 * relative error of u. The product is rounded. The effect is the same as if v were multiplied by
 * the factor, and h_o counted two more roundings. A dropped weight is 0.
 *
 * Quotient. From here on, W is sum_j W_j. Let w_j = W_j / W and o = sum_j w_j v_j. Let 1 + f_j and
 * 1 + g_j be the factors of the roundings in the sums o^ and l^; a_j is the same in both. Then
 *     (o^ - o l^) / W = sum_j w_j a_j (v_j - o) + sum_j w_j (1 + a_j) (f_j v_j - g_j o)
 *                       + lost_o - o lost_l,
 * because sum_j w_j (v_j - o) = 0. The divisor is l^ / W >= exp(-h_l u) sum_j w_j exp(-H_j) -
 * lost_l. Here h_l and h_o include the roundings of binary64. The sum above, divided by this
 * divisor, is the error of o^ / l^. The quotient o^ / l^ is rounded to binary64 and then to
 * binary32. lost_o and lost_l are the losses from above, times the larger one of exp(h_o u) and
 * exp(h_l u), over W. W >= 2^(t_b - top - 1) sum_j 2^(t_j - t_b), where b is the key with the
 * largest t_b.
 *
 * Groups of integers. ATTNKIT_INTEGERS rounds the numbers x of a group to integers n with a common
 * scale S^. Let L be the largest |x|, and S = L / 32512. S^ has two roundings, one of them in the
 * constant 1 / 32512. The inverse of the scale has one rounding. The product of x and the inverse
 * is rounded to binary32, and then moves by at most 1/2 to an integer. Let y be this move times S,
 * so |y| <= S / 2 = L / 65024. Then n S^ is the sum of x with at most 4 roundings and y with at
 * most 2 roundings. If the product with the inverse is subnormal, y grows by e S, which is far less
 * than one rounding of y. No n is beyond 32512, because the roundings of 32512 do not reach
 * 32512.5. If L < 2^-100, every n is 0, and each x is lost.
 *
 * Scores of integers. The scale of a block of K is S_k, and n_k are its integers. The sum of n n_k
 * over a block is exact, and is then rounded to binary32. The product S^ S_k is rounded, and can be
 * so small that it loses e. The product with the sum of integers multiplies this loss by at most
 * 32512 sum |n_k|. A fused multiply-add for each of the D / 32 blocks has one rounding. So with h =
 * 6 + D / 32,
 *     |s^ - s| <= (exp(hu) - 1) sum_d |q_d k_d|
 *                 + exp(hu) (sum_d |y_d k_d| + 32512 e sum_d |n_kd| + h e).
 * An infinite product S^ S_k makes the score infinite, or NaN if the sum of integers is 0. A number
 * of q that is not finite makes the score NaN.
 *
 * Weighted sums of integers. For a block of keys and 32 columns of v, x_j is the weight of a seen
 * key times the scale d_j of its v, rounded. n_jc is the integer of its v in column c. If x_j is
 * subnormal, the loss e is so far below S that OWN_ERROR covers it. The sum of the products n_j
 * n_jc over the keys is rounded once, and its product with S^ is rounded once. Neither the sum nor
 * this product is subnormal. Together with the rounding of x_j and the 4 roundings above, h_o thus
 * counts 7 roundings instead of the additions within a block and the product with v. For
 * ATTNKIT_I8, h_o counts one more rounding: the oracle rounds the product of d_j and a byte to
 * v_jc, but the attention does not. The y_j add at most exp(h_o u) L / 65024 sum_j |n_jc| to
 * lost_o. This sum is over the keys with an x_j other than 0. If L < 2^-100, at most 2^-100 sum_j
 * |n_jc| is lost. Here L is in units of 2^M', where M' is the maximum that the weights of the block
 * are computed with. In units of 2^M with the last maximum M, L and the loss are the same or
 * smaller. So nothing is lost if L in units of 2^M is at least 2^-100. A d_j that is NaN or
 * infinite makes its 32 columns NaN, even if the weight is 0. For ATTNKIT_Q8_0 no o overflows, even
 * with dropout, because |v_jc| is at most 2^23. For ATTNKIT_I8 an o that overflows makes its
 * element infinite or NaN, and has no bound.
 *
 * Groups of products of bf16. ATTNKIT_BF16_PRODUCTS adds products in groups of 32. In a group, the
 * products of even index and of odd index are two chains of at most 16 fused multiply-adds. A
 * product q_d k_jd thus has at most 16 roundings in its chain, one more in the sum of the two
 * chains, and one for each group but the first, which adds to 0. So h is 16 plus D / 32, rounded
 * up. Elements with a magnitude below 2^-56 count as 0, and their products are lost. All other
 * products and sums are multiples of 2^-126, so that no sum loses e. An element that counts as 0,
 * times an infinity, is NaN.
 *
 * Parts of weights. L is the largest weight of a block, but at least 2^-100 and at most 1. The
 * weights of the block are divided by L: they are multiplied by f32(1 / L), with two roundings. A
 * quotient p becomes p', the sum of one or two bf16. The first bf16 is the nearest to p, and is off
 * by at most 2^-8 p. The second bf16 is the nearest to the difference of p and the first bf16, and
 * is off by at most 2^-8 of the difference. So p' is p times a factor of 1 +- 2^-8 with one bf16,
 * or of 1 +- 2^-16 with two. These factors are a part of a_j, because o and l take the same p'. p'
 * is a number of binary32, so that the sum of the parts in l has no rounding. A p below 2^-40
 * becomes 0. One fused multiply-add multiplies a sum of a block by L, and adds the product to o or
 * l. This fused multiply-add also rounds in the first block of a chunk, because L is no power of 2.
 * So h_l counts each block. The product of o or l and its rescale factor may lose e. On its way
 * into o, a product of a part and v has at most 16 roundings in its group, because the first
 * product of a chain is exact. The product has one more rounding for each sum of a group of its
 * block but the first, and one for each block of its chunk. A block has up to 4 groups for the
 * first part of its weights, and as many for the second part if there is one. The sum of the
 * magnitudes of the two parts is at most p' (1 + 2^-6). The products with elements of v of a
 * magnitude below 2^-56 are lost.
 *
 * Logarithm. If l^ is a sum in binary64, it is first rounded to binary32. ln l^ has the error of
 * l^, and 1 ulp of its own. Two fused multiply-adds, each with a rounding, add M ln 2 as M LN2_HI
 * and M LN2_LO. LN2_HI + LN2_LO is not quite ln 2. M is between t_b - dt_b and top + 1.
 *
 * Weights as an output. Scores have the errors above, but their factors have 1 in place of log2 e.
 * The slope and the factor of the bias are then exactly the numbers that the caller gave. A weight
 * of the softmax is the quotient of W_j (1 + a_j) and l^, or 0. l^ is first rounded to binary32, as
 * for the logarithm.
 *
 * Out of range. A t_j beyond binary32 counts as infinite: a negative t_j makes a weight of 0, a
 * positive t_j makes a row of NaN. The errors of scores near the limits of binary32 have no bound.
 *
 * The oracle's own roundings, of 2^-53 or 2^-64, are tiny compared with u. The factor OWN_ERROR
 * covers them.
 */
#include "tests/oracle/oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "tests/oracle/inputs.h"

typedef long double real;

static const real U = 0x1p-24L;
static const real LOSS = 0x1p-150L;
static const real U_64 = 0x1p-53L; /* u of binary64 */
static const real LOSS_64 = 0x1p-1075L;
static const real TANH_ULPS = 3;
static const real EXP2_ERROR = 0x1.000004p-23L;   /* at least -ln (1 - 2u) */
static const real WEIGHT_LOSS = 0x1.6a09eap-101L; /* at least 2^-100.5 (1 + 2u) */
static const real C_ERROR = 0x1p-24L + 0x1p-50L;
static const real OWN_ERROR = 1 + 0x1p-20L;
static const real LN_2 = 0.693147180559945309417232121458176568L;
static const real LEAST_BIAS = -0x1p126L;
static const real MOST_INTEGER = 32512;
static const real LEAST_LARGEST = 0x1p-100L;
static const real LEAST_BF16 = 0x1p-56L,
                  LEAST_P = 0x1p-40L * (1 + 0x1p-22L); /* with the roundings of the quotient */

/* --- Scores ---------------------------------------------------------------------------------- */

/* A true value, and the largest error of the computed value. */
struct value {
    real x, error;
};

/* Returns a value after one rounding. The value may be a product, a fused multiply-add or a sum. */
static struct value rounded(struct value v)
{
    return (struct value){v.x, v.error + U * (fabsl(v.x) + v.error) + LOSS};
}

/* Multiplies a value by a constant that has been rounded from binary64. */
static struct value scaled(struct value v, real constant)
{
    const real c = fabsl(constant), dc = c * C_ERROR + LOSS;
    return (struct value){v.x * constant, v.error * (c + dc) + fabsl(v.x) * dc};
}

static struct value sum(struct value a, struct value b)
{
    return (struct value){a.x + b.x, a.error + b.error};
}

/* Computes the tanh of a value. An infinite y has no error. */
static struct value tanh_of(struct value y)
{
    const real distance = fabsl(y.x), error = isinf(y.x) ? 0 : y.error;
    const real z = tanhl(distance), most = tanhl(distance + error);
    const real moved = fmaxl(most - z, z - tanhl(distance - error));
    return (struct value){copysignl(z, y.x), moved + TANH_ULPS * 2 * (U * most + LOSS)};
}

/* Numbers that all scores of a row share. */
struct scoring {
    struct query query;
    real scale, cap;  /* cap: 0 without a softcap */
    real chain, loss; /* exp(hu) - 1 and h e exp(hu); h is D, or 6 + D / 32 for integers, or for
                       * groups of products 16 plus D / 32, rounded up */
    float *q, *k;     /* the query row, and room for a key; both binary32 */
};

/* The steps from the product of q and k to the score that enters the softmax. */
enum step { SCALED, CAPPED, BIASED };

static bool has_integers(const struct query *q)
{
    return q->args->flags & ATTNKIT_INTEGERS;
}

static bool has_groups(const struct query *q)
{
    return q->args->flags & ATTNKIT_BF16_PRODUCTS;
}

/* Returns the product of two elements. If one of the elements counts as 0, adds the magnitude of
 * the product to *lost, or returns NaN if the other element is infinite. */
static real product_of(const struct scoring *s, float q, float k, real *lost)
{
    const real product = (real)q * k;
    if (!has_groups(&s->query) || !(fabsl((real)q) < LEAST_BF16 || fabsl((real)k) < LEAST_BF16))
        return product;
    if (isinf(q) || isinf(k))
        return NAN;
    *lost += fabsl(product);
    return product;
}

/* Returns the largest magnitude of a group of q. Returns infinity if a number of the group is not
 * finite. */
static float largest_of(const float *group)
{
    float largest = 0.0f;
    for (int i = 0; i < Q8_BLOCK; i++)
        largest = isnan(group[i]) ? INFINITY : fmaxf(fabsf(group[i]), largest);
    return largest;
}

/* Returns the dot product of a group of q and a block of K whose scales have an infinite product.
 * The sign of the sum of products of integers, times the sign of the scale of K, then decides
 * between the infinities. A sum of 0 makes NaN. */
static real infinite_product(const float *group, float largest, const struct integer_block *k)
{
    const float inverse = (float)MOST_INTEGER / largest;
    real sum = 0;
    for (int i = 0; i < Q8_BLOCK; i++)
        sum += (real)rintf(group[i] * inverse) * k->integers[i];
    return sum * k->scale * INFINITY;
}

/* Computes the product of a group of q and a block of K. Adds the magnitudes of the terms to
 * *magnitude. */
static struct value block_product(const struct scoring *s, int64_t key, int64_t block,
                                  real *magnitude)
{
    const struct integer_block k = query_k_block(&s->query, key, block);
    const float *const group = s->q + block * Q8_BLOCK;
    const float largest = largest_of(group);
    real x = 0, p = 0, integers = 0;
    for (int i = 0; i < Q8_BLOCK; i++) {
        const real product = (real)group[i] * k.integers[i] * k.scale;
        x += product;
        p += fabsl(product);
        integers += abs(k.integers[i]);
    }
    *magnitude += p;
    if (isinf(largest) || isnan(k.scale) || (isinf(k.scale) && largest < LEAST_LARGEST))
        return (struct value){NAN, 0};
    if (largest / MOST_INTEGER * fabsl(k.scale) > FLT_MAX)
        return (struct value){infinite_product(group, largest, &k), 0};
    if (largest < LEAST_LARGEST)
        return (struct value){x, p};
    const real moved = largest / (2 * MOST_INTEGER) * fabsl(k.scale) * integers;
    const real lost = LOSS * MOST_INTEGER * integers;
    return (struct value){x, s->chain * p + (1 + s->chain) * (moved + lost)};
}

static struct value dot_of_integers(const struct scoring *s, int64_t key, real *magnitude)
{
    struct value x = {0, s->loss};
    *magnitude = 0;
    for (int64_t block = 0; block < s->query.args->head_dim / Q8_BLOCK; block++)
        x = sum(x, block_product(s, key, block, magnitude));
    return x;
}

/* Computes the product s of the query row and a key. Sets *magnitude to sum_d |q_d k_d|. */
static struct value dot(const struct scoring *s, int64_t key, real *magnitude)
{
    const int64_t dim = s->query.args->head_dim;
    real x = 0, p = 0, lost = 0;
    if (has_integers(&s->query))
        return dot_of_integers(s, key, magnitude);
    query_k(&s->query, key, s->k);
    for (int64_t d = 0; d < dim; d++) {
        const real product = product_of(s, s->q[d], s->k[d], &lost);
        x += product;
        p += fabsl(product);
    }
    *magnitude = p;
    return (struct value){x, isfinite(x) ? s->chain * p + s->loss + lost : 0};
}

/* Computes the bias of a key times the factor of the query head. A product below LEAST_BIAS becomes
 * LEAST_BIAS. If in_log2 is true, divides the result by ln 2. */
static struct value given_bias(const struct query *q, int64_t key, bool in_log2)
{
    const float *const scales = q->groups.scores.bias_scales;
    const real given = query_bias(q, key);
    real factor = scales ? scales[q->head] : 1;
    if (in_log2 && fabsl(factor) / LN_2 > FLT_MAX)
        factor = copysignl(INFINITY, factor);
    const bool is_least = given * factor < LEAST_BIAS;
    const struct value bias = {is_least ? LEAST_BIAS : given, 0};
    if (is_least)
        factor = 1;
    if (in_log2)
        return rounded(scaled(bias, factor / LN_2));
    return factor == 1 ? bias : rounded((struct value){bias.x * factor, 0});
}

static struct value alibi(const struct query *q, int64_t key, bool in_log2)
{
    const real x = (real)query_distance(q, key), slope = q->groups.scores.alibi_slopes[q->head];
    const struct value distance = {x, fabsl(x) > 0x1p24L ? U * fabsl(x) : 0};
    if (in_log2)
        return rounded(scaled(distance, slope / LN_2));
    return rounded((struct value){x * slope, distance.error * fabsl(slope)});
}

static struct value bias_of(const struct query *q, int64_t key, bool in_log2)
{
    if (!q->groups.scores.alibi_slopes)
        return given_bias(q, key, in_log2);
    if (!q->groups.scores.bias.data)
        return alibi(q, key, in_log2);
    return rounded(sum(given_bias(q, key, in_log2), alibi(q, key, in_log2)));
}

/* Computes the score of a key after the step `step`. If in_log2 is true, divides the score by ln
 * 2. */
static struct value score(const struct scoring *s, struct value dot_product, int64_t key,
                          enum step step, bool in_log2)
{
    const attnkit_score_mods *const mods = &s->query.groups.scores;
    const real unit = in_log2 ? 1 / LN_2 : 1;
    struct value x;
    if (s->cap > 0 && step != SCALED)
        x = scaled(tanh_of(rounded(scaled(dot_product, s->scale / s->cap))), s->cap * unit);
    else
        x = scaled(dot_product, s->scale * unit);
    if (step == BIASED && (mods->bias.data || mods->alibi_slopes))
        x = sum(x, bias_of(&s->query, key, in_log2));
    return rounded(x);
}

/* Sums the magnitudes of a score's terms: |scale| sum_d |q_d k_d| + |bias| + |slope * distance|. */
static real score_magnitude(const struct scoring *s, int64_t key, real dot_magnitude)
{
    const attnkit_score_mods *const mods = &s->query.groups.scores;
    real magnitude = fabsl(s->scale) * dot_magnitude;
    if (mods->bias.data)
        magnitude += fabsl(given_bias(&s->query, key, false).x);
    if (mods->alibi_slopes)
        magnitude += fabsl(alibi(&s->query, key, false).x);
    return magnitude;
}

static struct scoring new_scoring(const attnkit_attention_args *args, struct query query)
{
    struct scoring s = {.query = query, .cap = query.groups.scores.softcap};
    s.scale =
        args->flags & ATTNKIT_SCALE_GIVEN ? (real)args->scale : 1 / sqrtl((real)args->head_dim);
    const int64_t groups = (args->head_dim + GROUP_PRODUCTS - 1) / GROUP_PRODUCTS;
    const int64_t roundings = has_integers(&query) ? 6 + args->head_dim / Q8_BLOCK
                              : has_groups(&query) ? GROUP_PRODUCTS / 2 + groups
                                                   : args->head_dim;
    s.chain = expm1l(roundings * U);
    s.loss = roundings * LOSS * expl(roundings * U);
    s.q = malloc((size_t)(2 * args->head_dim) * sizeof *s.q);
    s.k = s.q + args->head_dim;
    query_q(&query, s.q);
    return s;
}

/* --- Keys and weights ------------------------------------------------------------------------ */

/* A visible key, or the sink. */
struct key {
    int64_t index;
    real x, magnitude; /* the score, and the sum of the magnitudes of its terms */
    real t, dt;        /* x / ln 2, and the largest error of t^ */
    real weight;       /* w */
    real low, high;    /* w exp(-H), w exp(H) */
    real lost;         /* the largest loss of w */
    real keep;         /* the factor that dropout gives the weight; 0 if dropped */
};

/* The keys that a row sees, and the numbers that all columns of the row share. Sums are divided by
 * W, unless a comment says otherwise. */
struct row {
    struct key *keys; /* `count` keys, then the sink if there is one */
    int64_t count, terms;
    float *v;      /* [terms][value_dim]; 0 for the sink */
    float *scales; /* [terms][value_dim / Q8_BLOCK], scales of V's blocks; NULL without integers */
    bool rounds_v; /* the elements of v are rounded products of scales and integers */
    int64_t value_dim;
    int parts;        /* bf16 in a weight; 0 without groups of products */
    real weight_loss; /* a W_j that becomes 0 is at most this */
    bool drops;
    real score_magnitude;
    real best_x, best_dt, top; /* best_x = max_j x_j; top = max_j (t_j + dt_j) */
    real log_sum;              /* ln sum_j exp(x_j - best_x) */
    real f, g;                 /* at least exp(h_o u) - 1, exp(h_l u) - 1 */
    real lost_by_sums;         /* the largest loss of the sum l or o, not yet divided by W */
    bool is_folded; /* whether l is a sum in binary64: of more than one chunk, or of a chunk and a
                       sink */
    real loss_unit; /* the factor of losses: at least exp(h u) / W for h_o and h_l */
    real lost_l;
    real l_low, l_high; /* l^ is between l_low and l_high */
    bool is_nan;
};

static float *term_v(const struct row *r, int64_t term)
{
    return r->v + term * r->value_dim;
}

static float *term_scales(const struct row *r, int64_t term)
{
    return r->scales + term * (r->value_dim / Q8_BLOCK);
}

/* Reads the scales of a key's V. A scale that is not finite makes its elements NaN. */
static void read_scales(const struct row *r, const struct query *q, int64_t key, int64_t term)
{
    float *const v = term_v(r, term), *const scales = term_scales(r, term);
    for (int64_t block = 0; block < r->value_dim / Q8_BLOCK; block++) {
        scales[block] = query_v_block(q, key, block).scale;
        for (int i = 0; i < Q8_BLOCK && !isfinite(scales[block]); i++)
            v[block * Q8_BLOCK + i] = NAN;
    }
}

/* Adds a term to the row and returns it. A score below the range of binary32 counts as
 * -infinity. */
static struct key *add_term(struct row *r, int64_t index, struct value t, real magnitude)
{
    struct key *const key = &r->keys[r->terms++];
    if (t.x < -(real)FLT_MAX)
        t.x = -INFINITY;
    *key = (struct key){
        .index = index, .x = t.x * LN_2, .magnitude = magnitude, .t = t.x, .dt = t.error};
    r->is_nan |= isnan(t.x) || t.x > (real)FLT_MAX;
    if (t.x == -INFINITY || r->is_nan)
        return key;
    r->top = t.x + t.error > r->top ? t.x + t.error : r->top;
    if (key->x > r->best_x) {
        r->best_x = key->x;
        r->best_dt = t.error;
    }
    return key;
}

static void add_key(struct row *r, const struct scoring *s, int64_t j)
{
    real made_of;
    const struct value product = dot(s, j, &made_of);
    const struct value t = score(s, product, j, BIASED, true);
    query_v(&s->query, j, term_v(r, r->terms));
    if (r->scales)
        read_scales(r, &s->query, j, r->terms);
    struct key *const key = add_term(r, j, t, score_magnitude(s, j, made_of));
    key->keep = query_drops(&s->query, j) ? 0 : 1 / (1 - (real)s->query.groups.scores.dropout);
}

static void add_sink(struct row *r, real sink)
{
    if (sink == -INFINITY)
        return;
    const real t = sink / LN_2;
    memset(term_v(r, r->terms), 0, (size_t)r->value_dim * sizeof(float));
    add_term(r, -1, (struct value){t, fabsl(t) * C_ERROR + LOSS}, 0);
}

static struct row see_keys(const struct scoring *s)
{
    const attnkit_score_mods *const mods = &s->query.groups.scores;
    const int64_t room = s->query.keys + 1; /* one more for a sink */
    struct row r = {.value_dim = s->query.value_dim,
                    .rounds_v = s->query.args->v.type == ATTNKIT_I8,
                    .drops = mods->dropout > 0.0};
    r.parts = has_groups(&s->query) ? 1 + !(s->query.args->flags & ATTNKIT_SHORT_WEIGHTS) : 0;
    r.weight_loss = r.parts > 0 ? LEAST_P : WEIGHT_LOSS;
    r.keys = malloc((size_t)room * sizeof *r.keys);
    r.v = malloc((size_t)(room * r.value_dim) * sizeof *r.v);
    if (has_integers(&s->query))
        r.scales = malloc((size_t)(room * (r.value_dim / Q8_BLOCK)) * sizeof *r.scales);
    r.best_x = r.top = -INFINITY;
    for (int64_t j = 0; j < s->query.keys; j++)
        if (query_sees(&s->query, j))
            add_key(&r, s, j);
    r.count = r.terms;
    if (mods->sinks)
        add_sink(&r, mods->sinks[s->query.head]);
    return r;
}

/* Computes exp(x) with a relative error of 2^-52. If exp(x) is in the range of binary64, exp_of
 * takes a tenth of the time of expl. */
static real exp_of(real x)
{
    const double nearest = (double)x;
    return fabs(nearest) < 700.0 ? exp(nearest) * (1 + (x - nearest)) : expl(x);
}

/* Sets `low` to at most w exp(-h), and `high` to at least w exp(h). log_weight is ln w. For h up to
 * 1, exp(h) < 1 + h + h^2. */
static void widen_weight(struct key *key, real log_weight, real h)
{
    const real factor = 1 + h + h * h;
    key->low = h < 1 ? key->weight / factor : expl(log_weight - h);
    key->high = h < 1 ? key->weight * factor : expl(log_weight + h);
}

/* Returns the error of a weight that is divided by L and rounded to one or two bf16. The error is
 * an exponent: the weight is off by at most a factor of exp(error). Returns 0 without groups of
 * products. */
static real split_error(const struct row *r)
{
    const real unit = r->parts == 1 ? 0x1p-8L : 0x1p-16L;
    return r->parts > 0 ? 2 * U - log1pl(-unit) : 0;
}

/* Computes the weights. A score of -infinity has weight 0, even if all scores are -infinity. */
static void weigh_keys(struct row *r)
{
    real total = 0;
    for (int64_t j = 0; j < r->terms && r->best_x > -INFINITY; j++)
        total += r->keys[j].weight = exp_of(r->keys[j].x - r->best_x);
    r->log_sum = logl(total);
    for (int64_t j = 0; j < r->terms; j++) {
        struct key *key = &r->keys[j];
        const real h =
            LN_2 * (key->dt + U * (r->top + 1 - key->t + key->dt)) + EXP2_ERROR + split_error(r);
        if (key->x == -INFINITY)
            continue;
        key->weight /= total;
        widen_weight(key, key->x - r->best_x - r->log_sum, h);
    }
}

/* --- Sums ------------------------------------------------------------------------------------ */

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Bounds the roundings of a weight on its way into l and into o. Only blocks and chunks with keys
 * that the row sees count. Sets r->f, r->g, r->lost_by_sums and r->is_folded. */
static void count_roundings(struct row *r)
{
    int64_t blocks = 0, chunks = 0, in_block = 0, in_chunk = 0, most_keys = 1, most_blocks = 1;
    for (int64_t j = 0; j < r->count; j++) {
        const int64_t key = r->keys[j].index, last = j > 0 ? r->keys[j - 1].index : -CHUNK_KEYS;
        const bool new_block = key / KEY_BLOCK != last / KEY_BLOCK;
        const bool new_chunk = key / CHUNK_KEYS != last / CHUNK_KEYS;
        blocks += new_block;
        chunks += new_chunk;
        in_block = new_block ? 1 : in_block + 1;
        in_chunk = new_chunk ? 1 : in_chunk + new_block;
        most_keys = larger(most_keys, in_block);
        most_blocks = larger(most_blocks, in_chunk);
    }
    const int64_t later_blocks = most_blocks - 1;
    const int64_t additions = most_keys - 1 + (r->parts > 0 ? most_blocks : later_blocks);
    const int64_t in_groups = GROUP_PRODUCTS / 2 + r->parts * (KEY_BLOCK / GROUP_PRODUCTS) - 1;
    const int64_t to_o = r->scales      ? 1 + 4 + 2 + r->rounds_v + later_blocks
                         : r->parts > 0 ? in_groups + most_blocks
                                        : additions + 1;
    const int64_t folds = larger(r->terms - r->count + chunks - 1, 0);
    r->g = expm1l(additions * U + folds * U_64);
    r->f = expm1l(to_o * U + folds * U_64 + (r->drops ? U + C_ERROR : 0));
    if (r->parts > 0)
        r->f *= 1 + 0x1p-6L;
    r->lost_by_sums = blocks * LOSS * (r->parts > 0 ? 2 : 1) + folds * LOSS_64;
    r->is_folded = folds > 0;
}

/* Returns the larger one of f and g. With integers, o can have fewer roundings than l. */
static real larger_growth(const struct row *r)
{
    return fmaxl(r->f, r->g);
}

/* Returns the largest loss of a weight. A weight that may be so small that it counts as 0 can be
 * lost as a whole. Other weights lose nothing. */
static real lost_weight(const struct row *r, const struct key *key)
{
    const real limit = r->loss_unit * r->weight_loss;
    return key->low <= limit ? fminl((1 + larger_growth(r)) * key->high, limit) : 0;
}

static void bound_sum(struct row *r)
{
    real low = 0, high = 0;
    r->loss_unit = (1 + larger_growth(r)) * expl(LN_2 * (r->top + 1) - r->best_x - r->log_sum);
    r->lost_l = r->loss_unit * r->lost_by_sums;
    for (int64_t j = 0; j < r->terms; j++) {
        struct key *const key = &r->keys[j];
        key->lost = lost_weight(r, key);
        r->score_magnitude += key->weight * key->magnitude;
        r->lost_l += key->lost;
        low += key->low;
        high += key->high;
    }
    r->l_low = low / (1 + r->g) - r->lost_l;
    r->l_high = high * (1 + r->g) + r->lost_l;
}

/* --- Results --------------------------------------------------------------------------------- */

static struct oracle_element element(real value, real magnitude, real error)
{
    const real bound = error + (U + 2 * U_64) * (fabsl(value) + error) + LOSS;
    return (struct oracle_element){.value = (double)value,
                                   .magnitude = (double)magnitude,
                                   .bound = (double)(bound * OWN_ERROR)};
}

static struct oracle_element exactly(double value)
{
    return (struct oracle_element){.value = value};
}

/* The sums of a column. o is the sum of w_j v_j. `magnitude` is the sum of w_j |v_j|. `scores` is
 * the sum over j of w_j |v_j| m_j, where m_j is the sum of the magnitudes of the terms of x_j.
 * `error` is the largest error of o without losses. `lost` is the loss by weights, and by elements
 * of V, that count as 0. In all sums v_j is multiplied by the factor of dropout. */
struct column {
    double v_sum; /* the sum of |v_j|; NaN or infinite if an element of V is NaN or infinite */
    real o, magnitude, scores;
    real error, lost;
};

/* The terms of this many keys are summed in binary64. This sum has a relative error of 2^-46, and
 * takes a fifth of the time of a sum in `real`. It is then added to a sum in `real`. */
enum { PIECE = 128 };

static double clamped(real x)
{
    return x < (real)DBL_MAX ? (double)x : DBL_MAX;
}

/* Adds the terms of the keys from `first` to `end` to the sums of all columns. `sums` is scratch
 * memory for 4 numbers of each column. */
static void add_means(const struct row *r, int64_t first, int64_t end, double *sums,
                      struct column *columns)
{
    const int64_t dim = r->value_dim;
    double *const v_sum = sums, *const o = v_sum + dim, *const magnitude = o + dim,
                  *const scores = magnitude + dim;
    memset(sums, 0, (size_t)(4 * dim) * sizeof *sums);
    for (int64_t j = first; j < end; j++) {
        const struct key *const key = &r->keys[j];
        const float *const v = term_v(r, j);
        const double keep = (double)key->keep, weight = (double)key->weight,
                     made_of = (double)key->magnitude;
        for (int64_t c = 0; c < dim; c++) {
            const double kept = keep * v[c], weighted = weight * kept;
            v_sum[c] += fabs(kept);
            o[c] += weighted;
            magnitude[c] += fabs(weighted);
            scores[c] += fabs(weighted) * made_of;
        }
    }
    for (int64_t c = 0; c < dim; c++) {
        columns[c].v_sum += v_sum[c];
        columns[c].o += o[c];
        columns[c].magnitude += magnitude[c];
        columns[c].scores += scores[c];
    }
}

/* Adds to all columns the errors of the keys from `first` to `end`. The sums o of the columns must
 * be complete. `sums` is scratch memory for 3 numbers of each column. */
static void add_errors(const struct row *r, int64_t first, int64_t end, double *sums,
                       struct column *columns)
{
    const int64_t dim = r->value_dim;
    const double f = (double)r->f, g = (double)r->g;
    double *const o = sums, *const error = o + dim, *const lost = error + dim;
    for (int64_t c = 0; c < dim; c++) {
        o[c] = (double)columns[c].o;
        error[c] = lost[c] = 0.0;
    }
    for (int64_t j = first; j < end; j++) {
        const struct key *const key = &r->keys[j];
        const float *const v = term_v(r, j);
        const double keep = (double)key->keep, most_lost = clamped(key->lost),
                     high = clamped(key->high), off = clamped(key->high - key->weight);
        for (int64_t c = 0; c < dim; c++) {
            const double kept = keep * v[c];
            error[c] += off * fabs(kept - o[c]) + high * (f * fabs(kept) + g * fabs(o[c]));
            const bool is_0 = r->parts > 0 && fabs(kept) < (double)LEAST_BF16;
            lost[c] += (is_0 ? fmax(high, most_lost) * (1.0 + f) : most_lost) * fabs(kept);
        }
    }
    for (int64_t c = 0; c < dim; c++) {
        columns[c].error += error[c];
        columns[c].lost += lost[c];
    }
}

/* A group of integers: the weights of a block of keys, times the scales of these keys for 32
 * columns of V. */
struct group {
    real low, high;           /* limits of the largest weight times scale, in units of W */
    real integers[Q8_BLOCK];  /* for each column: sum of the magnitudes of V's integers */
    real magnitude[Q8_BLOCK]; /* for each column: at least the sum of w_j |v_j| */
};

static struct group group_of(const struct row *r, int64_t first, int64_t end, int64_t block)
{
    struct group group = {0};
    for (int64_t j = first; j < end; j++) {
        const struct key *const key = &r->keys[j];
        const float *const v = term_v(r, j) + block * Q8_BLOCK;
        const real scale = fabsl((real)term_scales(r, j)[block]), factor = key->keep * scale;
        const real high = factor * clamped(key->high);
        if (!(high > 0))
            continue;
        group.high = fmaxl(group.high, high);
        group.low = fmaxl(group.low, factor * (key->low - key->lost));
        for (int c = 0; c < Q8_BLOCK; c++) {
            group.integers[c] += fabsl((real)v[c]) / scale;
            group.magnitude[c] += high * (fabsl((real)v[c]) / scale);
        }
    }
    return group;
}

/* Adds errors to the 32 columns of block `block` of each row of V. The errors arise because weights
 * are rounded to integers. The keys from `first` to `end` are the seen keys of one block of 128
 * keys. */
static void add_group(const struct row *r, int64_t first, int64_t end, int64_t block,
                      struct column *columns)
{
    const struct group group = group_of(r, first, end, block);
    const real limit = r->loss_unit * LEAST_LARGEST;
    const bool may_be_0 = group.low / (1 + r->f) <= limit;
    for (int c = 0; c < Q8_BLOCK; c++) {
        struct column *const column = &columns[block * Q8_BLOCK + c];
        column->error += (1 + r->f) * group.high / (2 * MOST_INTEGER) * group.integers[c];
        if (may_be_0)
            column->lost += fminl((1 + r->f) * group.magnitude[c], limit * group.integers[c]);
    }
}

static void add_groups(const struct row *r, struct column *columns)
{
    for (int64_t first = 0, end = 0; first < r->count; first = end) {
        const int64_t keys = r->keys[first].index / KEY_BLOCK;
        while (end < r->count && r->keys[end].index / KEY_BLOCK == keys)
            end++;
        for (int64_t block = 0; block < r->value_dim / Q8_BLOCK; block++)
            add_group(r, first, end, block, columns);
    }
}

static void sum_columns(const struct row *r, struct column *columns)
{
    double *const sums = malloc((size_t)(4 * r->value_dim + 1) * sizeof *sums);
    for (int64_t j = 0; j < r->terms; j += PIECE)
        add_means(r, j, smaller(j + PIECE, r->terms), sums, columns);
    for (int64_t j = 0; j < r->terms; j += PIECE)
        add_errors(r, j, smaller(j + PIECE, r->terms), sums, columns);
    if (r->scales)
        add_groups(r, columns);
    free(sums);
}

/* Computes the element of a column. If V has an infinity in the column, the result may be either
 * infinity, or NaN: another infinity, or a weight that counts as 0, can make NaN. So the bound is
 * infinite. */
static struct oracle_element element_of(const struct row *r, const struct column *column)
{
    if (r->is_nan || isnan(column->v_sum))
        return exactly(NAN);
    if (isinf(column->v_sum))
        return (struct oracle_element){.value = INFINITY, .magnitude = INFINITY, .bound = INFINITY};
    if (r->best_x == -INFINITY)
        return exactly(0.0);
    const real lost_o = column->lost + r->loss_unit * (r->count * LOSS + r->lost_by_sums);
    const real error = column->error + lost_o + fabsl(column->o) * r->lost_l;
    struct oracle_element e =
        element(column->o, column->magnitude, r->l_low > 0 ? error / r->l_low : INFINITY);
    e.unit = (double)(U * (column->magnitude +
                           fmaxl(column->magnitude * r->score_magnitude, column->scores)) +
                      (r->count + 4) * 2 * LOSS + column->lost);
    return e;
}

/* Returns the largest relative error of the rounding of l^ from binary64 to binary32. Returns 0 if
 * l^ is a sum in binary32. */
static real narrowing(const struct row *r)
{
    return r->is_folded ? U : 0;
}

/* Returns the largest error of lse: of ln l^ and the two roundings after it. */
static double bound_lse(const struct row *r, real lse)
{
    const real most_m = fmaxl(fabsl(r->top + 1), fabsl(r->best_x / LN_2 - r->best_dt));
    const real most_log = fmaxl(fabsl(r->log_sum + LN_2 * r->best_dt),
                                fabsl(r->log_sum + r->best_x - LN_2 * (r->top + 1)));
    const real l_error =
        r->l_low > 0 ? fmaxl(logl(r->l_high), -logl(r->l_low)) + narrowing(r) : INFINITY;
    const real log_error = 2 * U * (most_log + l_error);
    const real constant = most_m * fabsl(LN_2 - (real)LN2_HI - (real)LN2_LO);
    const real inner = U * (most_m * (real)LN2_LO + most_log + l_error + log_error) + LOSS;
    const real error = l_error + log_error + constant + inner;
    return (double)((error + U * (fabsl(lse) + error) + LOSS) * OWN_ERROR);
}

static struct oracle_row results_of(const struct row *r, struct oracle_element *out)
{
    const real lse = r->best_x + r->log_sum;
    struct column *const columns = calloc((size_t)r->value_dim + 1, sizeof *columns);
    sum_columns(r, columns);
    for (int64_t c = 0; c < r->value_dim; c++)
        out[c] = element_of(r, &columns[c]);
    free(columns);
    if (r->is_nan)
        return (struct oracle_row){.keys = r->count, .lse = NAN};
    if (r->best_x == -INFINITY)
        return (struct oracle_row){.keys = r->count, .lse = -INFINITY};
    return (struct oracle_row){.keys = r->count,
                               .score_magnitude = (double)r->score_magnitude,
                               .lse = (double)lse,
                               .lse_bound = bound_lse(r, lse)};
}

static struct oracle_element softmax_weight(const struct row *r, const struct key *key)
{
    if (r->is_nan)
        return exactly(NAN);
    if (key->x == -INFINITY)
        return exactly(0.0);
    const real factor = 1 + narrowing(r);
    const real high = key->high / r->l_low * factor,
               low = (key->low - key->lost) / r->l_high / factor;
    const real error = r->l_low > 0 ? fmaxl(high - key->weight, key->weight - low) : INFINITY;
    return element(key->weight, key->weight, error);
}

static void softmax_weights(const struct row *r, int64_t columns, struct oracle_element *weights)
{
    for (int64_t j = 0; j < columns; j++)
        weights[j] = exactly(0.0);
    for (int64_t j = 0; j < r->count; j++)
        weights[r->keys[j].index] = softmax_weight(r, &r->keys[j]);
}

static void score_weights(const struct scoring *s, enum step step, struct oracle_element *weights)
{
    for (int64_t j = 0; j < s->query.args->kv_len; j++) {
        real magnitude;
        weights[j] = exactly(-INFINITY);
        if (j >= s->query.keys || (step == BIASED && !query_sees(&s->query, j)))
            continue;
        const struct value x = score(s, dot(s, j, &magnitude), j, step, false);
        weights[j] = exactly((double)x.x);
        if (isfinite(x.x))
            weights[j].bound = (double)(x.error * OWN_ERROR);
    }
}

static void weights_of(const struct scoring *s, const struct row *r, struct oracle_element *weights)
{
    switch (s->query.groups.weights.kind) {
    case ATTNKIT_WEIGHTS_SOFTMAX:
        softmax_weights(r, s->query.args->kv_len, weights);
        break;
    case ATTNKIT_WEIGHTS_BIASED:
        score_weights(s, BIASED, weights);
        break;
    case ATTNKIT_WEIGHTS_CAPPED:
        score_weights(s, CAPPED, weights);
        break;
    default:
        score_weights(s, SCALED, weights);
    }
}

struct oracle_row oracle_row(const attnkit_attention_args *args, int64_t batch, int64_t head,
                             int64_t row, struct oracle_element *out,
                             struct oracle_element *weights)
{
    const struct scoring s = new_scoring(args, query_of(args, batch, head, row));
    struct row r = see_keys(&s);
    weigh_keys(&r);
    count_roundings(&r);
    bound_sum(&r);
    const struct oracle_row results = results_of(&r, out);
    if (weights)
        weights_of(&s, &r, weights);
    free(r.keys);
    free(r.v);
    free(r.scales);
    free(s.q);
    return results;
}

double oracle_unit(const struct oracle_row *row, const struct oracle_element *element)
{
    return 0x1p-24 * element->magnitude * (1 + row->score_magnitude) +
           (double)(row->keys + 4) * 0x1p-149;
}

/* The error of the last rounding, to the type of the result: `unit` is relative, `loss` is the
 * error of a subnormal result. */
struct last_rounding {
    double unit, loss;
    double overflow; /* a magnitude from here on rounds to infinity */
};

static struct last_rounding rounding_to(attnkit_type type)
{
    switch (type) {
    case ATTNKIT_F16:
        return (struct last_rounding){0x1p-11, 0x1p-25, 65520.0};
    case ATTNKIT_BF16:
        return (struct last_rounding){0x1p-8, 0x1p-134, 0x1.ffp127};
    default:
        return (struct last_rounding){0.0, 0.0, 0x1.ffffffp127};
    }
}

double oracle_judge(const struct oracle_element *truth, attnkit_type type, double result)
{
    const struct last_rounding last = rounding_to(type);
    const double most = fabs(truth->value) + truth->bound;
    if (isnan(truth->value))
        return isnan(result) ? 0.0 : INFINITY;
    if (isinf(truth->value))
        return result == truth->value || (truth->bound > 0.0 && !isfinite(result)) ? 0.0 : INFINITY;
    if (isinf(result) && most >= last.overflow)
        return 0.0;
    const double error = fabs(result - truth->value);
    const double bound = truth->bound + last.unit * most + last.loss;
    return error == 0.0 ? 0.0 : error <= DBL_MAX ? error / bound : INFINITY;
}
