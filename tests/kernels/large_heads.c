/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoding from heads whose K and V are so large that the library takes them to be outside L2
 * (NEAR_BYTES in kernels/attention/decode.c). For such heads, some kernels have separate loops,
 * which prefetch in a different order than the loops for small heads. In head-major and token-major
 * layouts, every instruction set has the bits of the scalar kernels on dense binary32 copies of the
 * same numbers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "dispatch/cpu/isa.h"
#include "attnkit.h"
#include "tests/support/random.h"

enum {
    HEADS = 2,
    MAX_GROUP = 4,
    KEYS = 1301, /* K and V of a head have at least 528 KB; up to 512 KB, kernels take the loops
                    for small heads */
    MAX_DIM = 128,
    ELEMENTS = HEADS * KEYS * MAX_DIM,
};

static const int dims[] = {MAX_DIM, 104};
static const enum type types[] = {TYPE_F32, TYPE_F16, TYPE_BF16};

static float q[HEADS * MAX_GROUP * MAX_DIM], k[ELEMENTS], v[ELEMENTS];
static float stored_k[ELEMENTS], stored_v[ELEMENTS]; /* room for every type */
static char workspace[1 << 20];

struct results {
    float out[HEADS * MAX_GROUP * MAX_DIM], lse[HEADS * MAX_GROUP];
};

/* Draws numbers that are exact in every type. */
static void draw(uint64_t *random, float *x, int count)
{
    for (int i = 0; i < count; i++)
        x[i] = (float)(random_below(random, 255) - 127) / 64.0f;
}

/* Converts rows x [HEADS][KEYS] to a type. Stores the converted rows as [KEYS][HEADS] if by_token,
 * else as [HEADS][KEYS]. */
static void store(const struct kernels *kernels, enum type type, const float *x, int dim,
                  bool by_token, float *stored)
{
    for (int i = 0; i < HEADS * KEYS; i++) {
        const int row = by_token ? i % KEYS * HEADS + i / KEYS : i;
        char *const to = (char *)stored + row * bytes_of(type, dim);
        if (type == TYPE_F32)
            memcpy(to, x + i * dim, (size_t)dim * sizeof *x);
        else
            kernels->narrow(type, x + i * dim, dim, 0, to, NULL);
    }
}

static void run(attnkit_attention_args args, const char *isa, struct results *results)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "";
    const attnkit_exec exec = {.size = sizeof exec,
                               .isa = isa,
                               .workspace = workspace,
                               .workspace_size = sizeof workspace};
    memset(results, 0, sizeof *results);
    args.out.data = results->out;
    args.lse.data = results->lse;
    if (attnkit_attention(&args, &exec, message) != ATTNKIT_OK)
        fail_msg("%s: %s", isa, message);
}

static attnkit_attention_args args_of(int dim, int group)
{
    return (attnkit_attention_args){
        .size = sizeof(attnkit_attention_args),
        .batch = 1,
        .q_heads = HEADS * group,
        .kv_heads = HEADS,
        .q_len = 1,
        .kv_len = KEYS,
        .head_dim = dim,
        .q = {.data = q},
        .k = {.data = k},
        .v = {.data = v},
    };
}

static void set_strides(attnkit_attention_args *args, int64_t row_bytes, bool by_token)
{
    const int64_t dense = args->head_dim * (int64_t)sizeof(float);
    const int64_t head = by_token ? row_bytes : KEYS * row_bytes;
    const int64_t row = by_token ? HEADS * row_bytes : row_bytes;
    args->q.layout = args->k.layout = args->v.layout = ATTNKIT_STRIDED;
    args->out.layout = args->lse.layout = ATTNKIT_STRIDED;
    for (int i = 1; i < 3; i++) {
        args->q.strides[i] = args->out.strides[i] = dense;
        args->k.strides[i] = args->v.strides[i] = i == 1 ? head : row;
        args->lse.strides[i] = sizeof(float);
    }
}

static void check(const struct isa *isa, enum type type, int dim, int group, bool by_token,
                  const struct results *expected)
{
    struct results got;
    attnkit_attention_args args = args_of(dim, group);
    store(isa->kernels, type, k, dim, by_token, stored_k);
    store(isa->kernels, type, v, dim, by_token, stored_v);
    args.k.data = stored_k;
    args.v.data = stored_v;
    args.k.type = args.v.type = (attnkit_type)type;
    set_strides(&args, bytes_of(type, dim), by_token);
    run(args, isa->name, &got);
    if (memcmp(expected, &got, sizeof got) != 0)
        fail_msg("%s: type %d, head_dim %d, %d rows of a head, by %s", isa->name, (int)type, dim,
                 group, by_token ? "token" : "head");
}

static void large_heads_have_the_bits_of_dense_heads(void **state)
{
    const struct isa *isas;
    const int isa_count = attnkit_isas(&isas);
    uint64_t random = 1;
    struct results expected;
    (void)state;
    draw(&random, q, HEADS * MAX_GROUP * MAX_DIM);
    draw(&random, k, ELEMENTS);
    draw(&random, v, ELEMENTS);
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
        for (int group = 1; group <= MAX_GROUP; group++) {
            run(args_of(dims[d], group), "scalar", &expected);
            for (int i = 0; i < isa_count; i++)
                for (int t = 0; t < 3 && attnkit_isa_can_run(&isas[i]); t++)
                    for (int by_token = 0; by_token < 2; by_token++)
                        check(&isas[i], types[t], dims[d], group, by_token, &expected);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(large_heads_have_the_bits_of_dense_heads)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
