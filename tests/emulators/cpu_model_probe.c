/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests which instruction set and unit the library chooses on this CPU, and whether the library's
 * results have the right bits.
 *
 *     cpu_model_probe [EXPECTED]
 *
 * EXPECTED names an instruction set with or without a unit ("neon"), a unit ("neon+dotprod"), or an
 * instruction set without a unit ("neon+none"). The program prints the choice, runs a small prefill
 * and a decoding step on the chosen instruction set, and compares the hash of the results with the
 * hash of the scalar reference. The exit status is 0 if the hash and the choice are right, else 1.
 * A right choice is EXPECTED, for prefill and for decode. Without EXPECTED, every choice is right.
 * The program is meant for CPU models of emulators. The program's own code uses only baseline
 * instructions, so an instruction that the model lacks can only come from a wrong choice.
 */
#include <attnkit.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/random.h"

/* The hash of the results of attnkit_reference (kernels/scalar/reference.c) for the two calls
 * below. */
static const uint64_t REFERENCE_HASH = UINT64_C(0x67cd5e2133de48ba);

enum {
    Q_HEADS = 6,
    KV_HEADS = 2,
    Q_LEN = 37,
    KV_LEN = 91,
    HEAD_DIM = 19,
    VALUE_DIM = 13,
};

static float q[Q_HEADS * Q_LEN * HEAD_DIM];
static float k[KV_HEADS * KV_LEN * HEAD_DIM];
static float v[KV_HEADS * KV_LEN * VALUE_DIM];
static float out[Q_HEADS * Q_LEN * VALUE_DIM];
static float lse[Q_HEADS * Q_LEN];
static char workspace[1 << 19];

static void fill(float *x, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes / sizeof *x; i++)
        x[i] = random_uniform(&seed);
}

/* Adds the bits of floats to a hash by FNV-1a. All NaN count as the same bits. */
static uint64_t hash_floats(uint64_t hash, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = 0x7fc00000;
        if (x[i] == x[i])
            memcpy(&bits, &x[i], sizeof bits);
        for (int byte = 0; byte < 4; byte++)
            hash = (hash ^ (bits >> 8 * byte & 0xff)) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* Computes causal attention of q_len rows at the last positions, and continues `hash` over the
 * result. Returns false on any error. */
static bool attend(int q_len, uint64_t *hash)
{
    const attnkit_attention_args args = {
        .size = sizeof args,
        .flags = ATTNKIT_CAUSAL,
        .align = ATTNKIT_ALIGN_BOTTOM_RIGHT,
        .batch = 1,
        .q_heads = Q_HEADS,
        .kv_heads = KV_HEADS,
        .q_len = q_len,
        .kv_len = KV_LEN,
        .head_dim = HEAD_DIM,
        .value_dim = VALUE_DIM,
        .q = {.data = q},
        .k = {.data = k},
        .v = {.data = v},
        .out = {.data = out},
        .lse = {.data = lse},
    };
    const attnkit_exec exec = {
        .size = sizeof exec, .workspace = workspace, .workspace_size = sizeof workspace};
    char message[ATTNKIT_MESSAGE_SIZE];
    if (attnkit_attention(&args, &exec, message) != ATTNKIT_OK) {
        printf("attention failed: %s\n", message);
        return false;
    }
    *hash = hash_floats(*hash, out, (size_t)(Q_HEADS * q_len * VALUE_DIM));
    *hash = hash_floats(*hash, lse, (size_t)(Q_HEADS * q_len));
    return true;
}

static bool choice_is(const char *expected)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_isa_choice choice = {.size = sizeof choice};
    if (attnkit_isa_choose(NULL, &choice, message) != ATTNKIT_OK) {
        printf("no choice: %s\n", message);
        return false;
    }
    char name[32];
    snprintf(name, sizeof name, "%s+none", choice.prefill);
    if (choice.unit)
        snprintf(name, sizeof name, "%s", choice.unit);
    printf("%s (%s)\n", name, choice.reason);
    if (strcmp(choice.prefill, choice.decode) != 0)
        printf("decode: %s\n", choice.decode);
    if (!expected)
        return true;
    const bool right = !strcmp(strchr(expected, '+') ? name : choice.prefill, expected) &&
                       !strcmp(choice.prefill, choice.decode);
    if (!right)
        printf("expected %s\n", expected);
    return right;
}

static bool bits_are_right(void)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    fill(q, sizeof q, 1);
    fill(k, sizeof k, 2);
    fill(v, sizeof v, 3);
    if (!attend(Q_LEN, &hash) || !attend(1, &hash))
        return false;
    if (hash != REFERENCE_HASH)
        printf("hash %016" PRIx64 ", expected %016" PRIx64 "\n", hash, REFERENCE_HASH);
    return hash == REFERENCE_HASH;
}

int main(int argc, char **argv)
{
    const bool choice_right = choice_is(argc > 1 ? argv[1] : NULL);
    return bits_are_right() && choice_right ? 0 : 1;
}
