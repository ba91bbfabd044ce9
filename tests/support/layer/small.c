/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/layer/small.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tests/support/random.h"

_Alignas(64) char small_workspace[SMALL_WORKSPACE];

static void fill(float *x, uint64_t seed)
{
    for (int i = 0; i < ROOM; i++)
        x[i] = random_uniform(&seed);
}

struct small_layer *small_layer(void)
{
    static struct small_layer c;
    char message[ATTNKIT_MESSAGE_SIZE];
    memset(&c, PATTERN, sizeof c);
    for (int i = 0; i < 4; i++) {
        fill(c.w[i], (uint64_t)i + 1);
        fill(c.b[i], (uint64_t)i + 5);
    }
    fill(c.x, 9);
    fill(c.key, 10);
    fill(c.k, 11);
    fill(c.v, 12);
    fill(c.table, 13);
    memset(c.mask, 1, sizeof c.mask);
    c.weights = (attnkit_layer_weights){.size = sizeof c.weights,
                                        .d_model = D_MODEL,
                                        .q_heads = Q_HEADS,
                                        .kv_heads = KV_HEADS,
                                        .w_q = c.w[0],
                                        .w_k = c.w[1],
                                        .w_v = c.w[2],
                                        .w_o = c.w[3],
                                        .b_q = c.b[0],
                                        .b_k = c.b[1],
                                        .b_v = c.b[2],
                                        .b_o = c.b[3]};
    assert_int_equal(attnkit_layer_pack(&c.weights, c.packed, sizeof c.packed, NULL, message),
                     ATTNKIT_OK);
    c.attention = (attnkit_attention_args){.size = sizeof c.attention,
                                           .flags = ATTNKIT_CAUSAL,
                                           .align = ATTNKIT_ALIGN_BOTTOM_RIGHT,
                                           .kv_len = CAPACITY,
                                           .k.data = c.k + MARGIN,
                                           .v.data = c.v + MARGIN,
                                           .lse.data = c.lse + MARGIN};
    groups_init(&c.groups);
    groups_hang(&c.attention, &c.groups);
    attnkit_rotation_init(&c.rotation);
    c.rotation.kind = ATTNKIT_ROPE_HALF;
    c.args = (attnkit_layer_args){.size = sizeof c.args,
                                  .packed = c.packed,
                                  .packed_size = sizeof c.packed,
                                  .batch = BATCH,
                                  .q_len = Q_LEN,
                                  .x.data = c.x + MARGIN,
                                  .out.data = c.out + MARGIN,
                                  .rotation = &c.rotation,
                                  .attention = &c.attention,
                                  .cached.data = c.cached,
                                  .mean_weights = c.mean + MARGIN};
    c.exec = (attnkit_exec){
        .size = sizeof c.exec, .workspace = small_workspace, .workspace_size = SMALL_WORKSPACE};
    for (int b = 0; b < BATCH; b++) {
        c.cached[b] = 5 + b;
        c.positions[b] = 3 * b;
        c.kv_lens[b] = 2 + b;
        c.block_table[b] = b;
    }
    return &c;
}

struct small_layer *small_cross_layer(void)
{
    struct small_layer *const c = small_layer();
    c->args.cached.data = NULL;
    c->rotation.kind = ATTNKIT_ROPE_NONE;
    c->args.key.data = c->key + MARGIN;
    c->args.kv_len = 5;
    c->attention.k.data = c->attention.v.data = NULL;
    c->attention.kv_len = 0;
    return c;
}
