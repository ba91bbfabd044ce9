/* SPDX-License-Identifier: Apache-2.0
 *
 * Tries the instructions of a unit, for pairs of bf16 and for integers, with crafted numbers. isa.c
 * does not use the unit if a sum has other bits than kernels.h defines. tests/kernels/pairs.c
 * compares the table below with a C function that imitates VDPBF16PS.
 */
#include "dispatch/cpu/probe.h"

#include "kernels/integers.h"

/* The first rows: ties, cancellation, one rounding for each product, overflow, sums at the limit of
 * keep_bits_as_pairs, and a product that is too large for binary32 although the sum is not. The
 * other rows are random. */
const struct pair_probe attnkit_pair_probes[PAIR_PROBES] = {
    {0x3f800000, 0x3f803380, 0x3f803f80, 0x40000000},
    {0x4b800000, 0x3f803f80, 0x3f803f80, 0x4b800000},
    {0xcb800000, 0x4b803f81, 0x3f803f80, 0x3f810000},
    {0x00000000, 0x3fff3fff, 0x3fffbfff, 0x00000000},
    {0x3f800000, 0x39ffb9ff, 0x39ff39fe, 0x3f800000},
    {0x7f61b1e6, 0x7f00ff00, 0x3f803f80, 0x7f800000},
    {0x00800000, 0x23802381, 0xa3802381, 0x04810000},
    {0x00000000, 0x2380a380, 0x23802380, 0x00000000},
    {0xff000000, 0x5f800000, 0x5f803f80, 0x7f000000},
    {0x480f105c, 0x4736c78f, 0xc4d047f9, 0xd00c3e31},
    {0xc879ebdb, 0x476d4535, 0xc70fc547, 0xcf04f39b},
    {0xb914e3c0, 0xbb8cbe88, 0x394fbcd7, 0x3bdfc1cf},
    {0x556e635e, 0x45a6c917, 0x491fc7a6, 0x556f3415},
    {0x503abced, 0x47fd43c1, 0x44604477, 0x503c7921},
    {0xc97646e2, 0xc947c970, 0xc5ab45cc, 0xcee96ac8},
    {0xcfd70821, 0xc6d9c387, 0xc8a7c7ff, 0x4f0a45a2},
    {0x523774eb, 0x4378c595, 0x43bf44e2, 0x523772e3},
    {0xc24bb93f, 0x39953c46, 0x3a68bd23, 0xc24bb9bd},
    {0x532ec6f0, 0x44934413, 0x481dc6ea, 0x532ed128},
    {0x37105939, 0x3c443dc8, 0xba58bd79, 0xbbc29283},
    {0x46e647cc, 0x3fb3bd3d, 0x3f873d7e, 0x46e64abe},
    {0xc7612217, 0xc3804444, 0x45ce43ef, 0xc9a74a11},
    {0xd22268ab, 0x47aec38e, 0xc6ff46bd, 0xd2251f96},
    {0xa8939389, 0x34a1b494, 0xaf1a332e, 0xa8f88c63},
    {0x3cfa7f0f, 0x426cc0ae, 0xbdadbe44, 0xc07a6702},
    {0xa51cfc86, 0xb51eb25e, 0xb099b2ad, 0x26609fde},
    {0xc94a44ec, 0xbe98417a, 0xc067427e, 0xc94a06d8},
    {0xa561c0e0, 0x3299b0bd, 0x33ebb2f4, 0x27012782},
    {0xa2d5ab8b, 0xb2643519, 0xb037342a, 0x29cb35c1},
    {0x494d8293, 0x48944403, 0x47f34953, 0x510e2cb2},
    {0x4a1fa782, 0xc30148d3, 0xc75fc437, 0xcd9212b9},
    {0xb7655319, 0x3b403f4b, 0x3b45ba07, 0xb9d8a699},
};

static bool is_right(const float *sum, int first)
{
    for (int i = 0; i < MAX_VECTOR; i++)
        if (memcmp(&sum[i], &attnkit_pair_probes[first + i].after, sizeof *sum) != 0)
            return false;
    return true;
}

/* Tries `add` and `add_one` with the MAX_VECTOR probes from number `first` on. */
static bool gives_sums(const struct pair_kernels *pairs, int first)
{
    float sum[MAX_VECTOR], one_by_one[MAX_VECTOR], x[MAX_VECTOR], w[MAX_VECTOR];
    for (int i = 0; i < MAX_VECTOR; i++) {
        memcpy(&sum[i], &attnkit_pair_probes[first + i].before, sizeof *sum);
        memcpy(&x[i], &attnkit_pair_probes[first + i].x, sizeof *x);
        memcpy(&w[i], &attnkit_pair_probes[first + i].w, sizeof *w);
    }
    for (int i = 0; i < MAX_VECTOR; i++) {
        float all[MAX_VECTOR];
        memcpy(all, sum, sizeof all);
        pairs->add_one(all, &x[i], w);
        memcpy(&one_by_one[i], &all[i], sizeof *all);
    }
    pairs->add(sum, x, w);
    return is_right(sum, first) && is_right(one_by_one, first);
}

bool attnkit_pairs_keep_bits(const struct pair_kernels *pairs)
{
    for (int first = 0; first < PAIR_PROBES; first += MAX_VECTOR)
        if (!gives_sums(pairs, first))
            return false;
    return true;
}

#if !defined(ATTNKIT_WITHOUT_INTEGERS) || !defined(ATTNKIT_WITHOUT_LINEAR)
/* Returns a number between -largest and largest, often one of these two bounds. */
static int16_t drawn_integer(uint32_t *random, int32_t largest)
{
    *random = *random * 1664525u + 1013904223u;
    const int32_t bits = (int32_t)(*random >> 8);
    if (bits % 4 == 0)
        return (int16_t)(bits & 0x100 ? largest : -largest);
    return (int16_t)(bits % (2 * largest + 1) - largest);
}

/* Draws the numbers of a trial. The tiles multiply the integers of q and of weights by bytes, by
 * bytes to which EVEN_OFFSET was added, and by 1. */
static void draw_pairs(uint32_t *random, int trial, int16_t *a, int16_t *b)
{
    for (int i = 0; i < 2 * MAX_VECTOR; i++) {
        const int16_t integer = drawn_integer(random, (int32_t)MOST_INTEGER);
        const int16_t byte = drawn_integer(random, INT8_MAX);
        const int16_t shifted = (int16_t)(byte + EVEN_OFFSET);
        a[i] = trial % 4 == 0 ? byte : trial % 4 == 1 ? shifted : integer;
        b[i] = trial % 4 < 2 ? integer : trial % 4 == 2 ? 1 : byte;
    }
}

bool attnkit_integers_keep_bits(const struct integer_kernels *integers)
{
    enum { TRIALS = 16 };
    uint32_t random = 1;
    for (int trial = 0; trial < TRIALS; trial++) {
        int32_t sum[MAX_VECTOR], expected[MAX_VECTOR];
        int16_t a[2 * MAX_VECTOR], b[2 * MAX_VECTOR];
        draw_pairs(&random, trial, a, b);
        for (int i = 0; i < MAX_VECTOR; i++) {
            sum[i] = drawn_integer(&random, INT16_MAX) * 16384;
            expected[i] = sum[i] + a[2 * i] * b[2 * i] + a[2 * i + 1] * b[2 * i + 1];
        }
        integers->add(sum, a, b);
        if (memcmp(sum, expected, sizeof sum) != 0)
            return false;
    }
    return true;
}

bool attnkit_bytes_keep_bits(const struct matrix_integer_kernels *integers)
{
    enum { TRIALS = 8, BYTES = 4 };
    uint32_t random = 1;
    for (int trial = 0; trial < TRIALS; trial++) {
        int32_t sum[MAX_VECTOR], expected[MAX_VECTOR];
        uint8_t w[BYTES * MAX_VECTOR];
        int8_t x[BYTES * MAX_VECTOR];
        for (int i = 0; i < BYTES * MAX_VECTOR; i++) {
            w[i] = (uint8_t)(drawn_integer(&random, INT8_MAX) + EVEN_OFFSET);
            x[i] = (int8_t)drawn_integer(&random, INT8_MAX);
        }
        for (int i = 0; i < MAX_VECTOR; i++) {
            sum[i] = expected[i] = drawn_integer(&random, INT16_MAX) * 16384;
            for (int j = BYTES * i; j < BYTES * (i + 1); j++)
                expected[i] += w[j] * x[j];
        }
        integers->add(sum, w, x);
        if (memcmp(sum, expected, sizeof sum) != 0)
            return false;
    }
    return true;
}

/* add_dots does the work of `dot` of struct byte_kernels in plain C, and add_matrices the work of
 * `multiply`. */
static void add_dots(int32_t *sum, const int8_t *a, const int8_t *b)
{
    for (int i = 0; i < 4 * MAX_VECTOR; i++)
        sum[i / 4] += a[i] * b[i];
}

static void add_matrices(int32_t *sum, const int8_t *a, const int8_t *b)
{
    enum { INNER = 8 };
    for (int i = 0; i < MAX_VECTOR; i++) {
        const int first = i / 4 * 2 * INNER;
        for (int j = 0; j < INNER; j++)
            sum[i] += a[first + i / 2 % 2 * INNER + j] * b[first + i % 2 * INNER + j];
    }
}

/* Returns whether `tried` adds the same products as `right`. -128 is among the bytes. */
static bool adds_products(void (*tried)(int32_t *sum, const int8_t *a, const int8_t *b),
                          void (*right)(int32_t *sum, const int8_t *a, const int8_t *b))
{
    enum { TRIALS = 8 };
    uint32_t random = 1;
    for (int trial = 0; trial < TRIALS; trial++) {
        int32_t sum[MAX_VECTOR], expected[MAX_VECTOR];
        int8_t a[4 * MAX_VECTOR], b[4 * MAX_VECTOR];
        for (int i = 0; i < 4 * MAX_VECTOR; i++) {
            a[i] = (int8_t)(drawn_integer(&random, INT8_MAX) - (trial % 2));
            b[i] = (int8_t)drawn_integer(&random, INT8_MAX);
        }
        for (int i = 0; i < MAX_VECTOR; i++)
            sum[i] = expected[i] = drawn_integer(&random, INT16_MAX) * 16384;
        right(expected, a, b);
        tried(sum, a, b);
        if (memcmp(sum, expected, sizeof sum) != 0)
            return false;
    }
    return true;
}

bool attnkit_signed_bytes_keep_bits(const struct byte_kernels *bytes)
{
    return (!bytes->dot || adds_products(bytes->dot, add_dots)) &&
           (!bytes->multiply || adds_products(bytes->multiply, add_matrices));
}

/* Returns whether the tiles for integers give the right bits. */
static bool integers_are_right(const struct kernels *kernels)
{
    const struct matrix_integer_kernels *const maps = kernels->matrix_integers;
    return (!maps || !maps->add || attnkit_bytes_keep_bits(maps)) &&
           (!kernels->bytes || attnkit_signed_bytes_keep_bits(kernels->bytes)) &&
           (!HAS_INTEGERS || !kernels->integers->add ||
            attnkit_integers_keep_bits(kernels->integers));
}
#else
static bool integers_are_right(const struct kernels *kernels)
{
    (void)kernels; /* no tile of this build multiplies integers */
    return true;
}
#endif

bool attnkit_keeps_bits(const struct kernels *kernels)
{
    return integers_are_right(kernels) &&
           (!kernels->pairs || attnkit_pairs_keep_bits(kernels->pairs));
}
