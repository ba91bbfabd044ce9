/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares instructions for bf16, bytes and int16 with their models, the C functions that imitate
 * the instructions. The results must agree bit for bit on crafted and random numbers. Any NaN
 * equals any NaN. The program reports an instruction as skipped if the CPU lacks it, or if the
 * program may not use it. Without ATTNKIT_BF16_PRODUCTS, the library computes dot products of
 * floats by chains of fused multiply-adds. VDPBF16PS may replace a chain only where the bits are
 * the same. LEAST_SUM is a limit of exponents. The last test checks that the model of VDPBF16PS has
 * the bits of the chain down to this limit, but not always below it.
 *
 *   units [CASES | --list]
 *
 * An instruction is tested on at least 16 * CASES lanes of 32 bits. CASES is 3,000 by default.
 * --list prints the names of the instructions.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/random.h"
#include "tests/units/instructions.h"

enum {
    DEFAULT_CASES = 3000,
    LANES = 16, /* 32-bit lanes in a vector */
    CHAIN_CASES = 20000,
    BF16_ONE = 0x3f80,
    BF16_BIAS = 127,
    LEAST_SUM = -112, /* Let no element of q and k be subnormal. If the exponents of q and k add up
                       * to at least LEAST_SUM, no product or sum of a chain is subnormal. */
};

enum numbers { ANY, NEAR_ONE, NEAR_SMALLEST, NEAR_LARGEST, CRAFTED, CANCELLING, KINDS };

static const uint16_t crafted[] = {
    0x0000, 0x8000, 0x0001, 0x8001, 0x007f, 0x0080, 0x8080, 0x0081, 0x00ff, 0x0100,
    0x3f7f, 0x3f80, 0xbf80, 0x3f81, 0x3fff, 0x4000, 0x1f80, 0x2000, 0x203f, 0x5f80,
    0x5fff, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0xffc1, 0x7f81,
};
static const uint8_t crafted_bytes[] = {0x00, 0x01, 0x7e, 0x7f, 0x80, 0x81, 0xfe, 0xff};

static uint32_t below(uint64_t *random, int64_t n)
{
    return (uint32_t)random_below(random, n);
}

/* Draws a bf16 with a biased exponent from `least` to `largest`. The bf16 is the high half of the
 * word that the function returns, so that the word is the same number in binary32. */
static uint32_t with_exponent(uint64_t *random, int least, int largest)
{
    const uint32_t sign_and_digits = below(random, 1 << 8);
    const uint32_t exponent = (uint32_t)least + below(random, largest - least + 1);
    return (sign_and_digits >> 7) << 31 | exponent << 23 | (sign_and_digits & 0x7f) << 16;
}

static uint32_t draw_bf16(uint64_t *random, enum numbers kind)
{
    switch (kind) {
    case NEAR_ONE:
    case CANCELLING:
        return with_exponent(random, 120, 134) >> 16;
    case NEAR_SMALLEST:
        return with_exponent(random, 56, 72) >> 16;
    case NEAR_LARGEST:
        return with_exponent(random, 186, 194) >> 16;
    case CRAFTED:
        return crafted[below(random, sizeof crafted / sizeof crafted[0])];
    default:
        return below(random, 1 << 16);
    }
}

static uint32_t draw_pair(uint64_t *random, const struct instruction *in, enum numbers kind)
{
    uint32_t word = 0;
    if (in->is_bf16)
        return draw_bf16(random, kind) << 16 | draw_bf16(random, kind);
    if (kind != CRAFTED)
        return (uint32_t)random_bits(random);
    for (int i = 0; i < 4; i++)
        word = word << 8 | crafted_bytes[below(random, sizeof crafted_bytes)];
    return word;
}

/* Returns the negated product of the odd elements of a and b, after adding a whole number from -2
 * to 2 to the bits of this product. */
static uint32_t draw_opposite(uint64_t *random, uint32_t a, uint32_t b)
{
    const uint32_t product = model_flushed_fma(a & 0xffff0000u, b & 0xffff0000u, 0);
    return (product ^ 0x80000000u) + below(random, 5) - 2;
}

static uint32_t draw_float_sum(uint64_t *random, enum numbers kind, uint32_t a, uint32_t b)
{
    const uint32_t low_digits = below(random, 1 << 16);
    switch (kind) {
    case NEAR_ONE:
        return with_exponent(random, 105, 140) | low_digits;
    case NEAR_SMALLEST:
        return with_exponent(random, 0, 12) | low_digits;
    case NEAR_LARGEST:
        return with_exponent(random, 246, 254) | low_digits;
    case CRAFTED:
        return draw_bf16(random, CRAFTED) << 16 | (below(random, 2) ? low_digits : 0);
    case CANCELLING:
        return draw_opposite(random, a, b);
    default:
        return (uint32_t)random_bits(random);
    }
}

static uint32_t draw_int_sum(uint64_t *random, enum numbers kind)
{
    return kind == CRAFTED ? 0x80000000u + below(random, 1 << 10) - (1u << 9)
                           : (uint32_t)random_bits(random);
}

struct factors {
    uint32_t acc[MOST_WORDS], a[MOST_WORDS], b[MOST_WORDS];
};

static void draw(uint64_t *random, const struct instruction *in, enum numbers kind,
                 struct factors *f)
{
    for (int i = 0; i < in->words; i++) {
        f->a[i] = draw_pair(random, in, kind);
        f->b[i] = draw_pair(random, in, kind);
        f->acc[i] = in->is_bf16 ? draw_float_sum(random, kind, f->a[i], f->b[i])
                                : draw_int_sum(random, kind);
    }
}

static bool is_nan(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

static bool is_same(const struct instruction *in, uint32_t a, uint32_t b)
{
    return a == b || (in->is_bf16 && is_nan(a) && is_nan(b));
}

static void expect(const struct instruction *in, const struct factors *f, uint32_t *acc)
{
    memcpy(acc, f->acc, sizeof f->acc);
    if (in->whole) {
        in->whole(acc, f->a, f->b);
        return;
    }
    for (int i = 0; i < in->words; i++)
        acc[i] = in->lane(acc[i], f->a[i], f->b[i]);
}

/* Returns how many results differ from the results of the model. `told` is the number of
 * differences in earlier calls. Only the first 5 differences of an instruction are printed. */
static int compare(const struct instruction *in, const struct factors *f, enum numbers kind,
                   int told)
{
    uint32_t expected[MOST_WORDS], got[MOST_WORDS];
    expect(in, f, expected);
    memcpy(got, f->acc, sizeof got);
    in->run(got, f->a, f->b);
    int wrong = 0;
    for (int i = 0; i < in->words; i++) {
        if (is_same(in, got[i], expected[i]))
            continue;
        if (told + wrong++ < 5)
            printf("# %s, numbers %d, lane %d: acc %08x a %08x b %08x is %08x, not %08x\n",
                   in->name, (int)kind, i, f->acc[i], f->a[i], f->b[i], got[i], expected[i]);
    }
    return wrong;
}

static bool check_instruction(const struct instruction *in, int cases)
{
    static struct factors f;
    uint64_t random = 30;
    int wrong = 0;
    long lanes = 0;
    for (int i = 0; i < cases * LANES; i += in->words) {
        const enum numbers kind = (enum numbers)(i / in->words % KINDS);
        draw(&random, in, kind, &f);
        wrong += compare(in, &f, kind, wrong);
        lanes += in->words;
    }
    printf("# unit %s: %ld bits in %ld lanes, %d differ\n", in->name, 32 * lanes, lanes, wrong);
    return wrong == 0;
}

/* Compares chains of fused multiply-adds over four pairs, odd element first, with the model of
 * VDPBF16PS. The elements of q are at least 2^least_q in magnitude. The elements of k are at least
 * 2^least_k in magnitude. But if least_q is -BF16_BIAS, q also has subnormal elements and zeros.
 * Returns how many of the CHAIN_CASES chains differ. */
static int chain_differs(int least_q, int least_k)
{
    uint64_t random = 31;
    int differ = 0;
    for (int i = 0; i < CHAIN_CASES; i++) {
        uint32_t acc = 0;
        float chain = 0;
        for (int step = 0; step < 4; step++) {
            const uint32_t q[2] = {
                with_exponent(&random, least_q + BF16_BIAS, least_q + BF16_BIAS + 3),
                with_exponent(&random, least_q + BF16_BIAS, least_q + BF16_BIAS + 3)};
            const uint32_t k[2] = {
                with_exponent(&random, least_k + BF16_BIAS, least_k + BF16_BIAS + 3),
                with_exponent(&random, least_k + BF16_BIAS, least_k + BF16_BIAS + 3)};
            for (int e = 1; e >= 0; e--) {
                float x, y;
                memcpy(&x, &q[e], sizeof x);
                memcpy(&y, &k[e], sizeof y);
                chain = fmaf(x, y, chain);
            }
            acc = model_vdpbf16ps(acc, q[1] | q[0] >> 16, k[1] | k[0] >> 16);
        }
        differ += memcmp(&acc, &chain, sizeof acc) != 0;
    }
    return differ;
}

/* Checks when a chain of fused multiply-adds has the bits of the model of VDPBF16PS. If no element
 * is subnormal and LEAST_SUM is the least sum of the exponents of q and k, every chain must have
 * these bits. If the least sum is LEAST_SUM - 8, some chains must differ. With subnormal elements,
 * some chains must differ as well. */
static bool check_chain(void)
{
    bool ok = true;
    for (int q = BF16_BIAS - 1 + LEAST_SUM; q >= 1 - BF16_BIAS; q -= 7) {
        const int differ = chain_differs(q, LEAST_SUM - q);
        if (differ)
            printf("# from 2^%d and 2^%d: %d chains differ\n", q, LEAST_SUM - q, differ);
        ok = ok && differ == 0;
    }
    const int below_limit = chain_differs(-60, LEAST_SUM + 60 - 1 - 7);
    const int subnormal = chain_differs(-BF16_BIAS, 100);
    printf("# below the limit %d of %d chains differ, with subnormal elements %d\n", below_limit,
           CHAIN_CASES, subnormal);
    return ok && below_limit > 0 && subnormal > 0;
}

static int list_names(void)
{
    for (int i = 0; i < instruction_count; i++)
        puts(instructions[i].name);
    return 0;
}

static bool test_instruction(int i, int cases)
{
    const struct instruction *in = &instructions[i];
    const bool here = in->is_here(), ok = !here || check_instruction(in, cases);
    printf("%sok %d - %s%s\n", ok ? "" : "not ", i + 1, in->name,
           here ? "" : " # SKIP the CPU lacks this instruction, or the program may not use it");
    return ok;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--list") == 0)
        return list_names();
    const int cases = argc > 1 ? atoi(argv[1]) : DEFAULT_CASES, least = KINDS * MOST_WORDS / LANES;
    if (cases < least) {
        fprintf(stderr, "usage: units [CASES | --list], at least %d cases\n", least);
        return 2;
    }
    int failed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("1..%d\n", instruction_count + 1);
    for (int i = 0; i < instruction_count; i++)
        failed += !test_instruction(i, cases);
    const bool chain = check_chain();
    printf("%sok %d - the model of VDPBF16PS is the chain of fused multiply-adds in its range\n",
           chain ? "" : "not ", instruction_count + 1);
    return failed || !chain;
}
