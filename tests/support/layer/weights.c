/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/layer/weights.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>

#include "tests/support/random.h"

enum { PACKED_ALIGNMENT = 64 /* bytes */ };

float *layer_floats(int64_t count, uint64_t *random)
{
    float *const x = malloc((size_t)count * sizeof *x + 1);
    for (int64_t i = 0; i < count; i++)
        x[i] = random_uniform(random);
    return x;
}

static void draw_dims(struct layer *l, bool is_self, uint64_t *random)
{
    attnkit_layer_weights *const w = &l->w;
    const int64_t heads[][2] = {{1, 0}, {4, 2}, {6, 1}, {2, 2}, {8, 2}};
    const int64_t choice = random_below(random, 5);
    w->q_heads = heads[choice][0];
    w->kv_heads = heads[choice][1];
    w->head_dim = 2 * (1 + random_below(random, 20));
    w->d_model = 1 + random_below(random, 70);
    if (random_below(random, 3) == 0) {
        w->d_model = w->q_heads * w->head_dim;
        w->head_dim = 0;
    }
    if (random_below(random, 3) == 0)
        w->value_dim = 1 + random_below(random, 40);
    if (random_below(random, 3) == 0)
        w->d_out = 1 + random_below(random, 60);
    if (!is_self && random_below(random, 2))
        w->d_key = 1 + random_below(random, 60);
    if (!is_self && random_below(random, 2))
        w->d_value = 1 + random_below(random, 60);
}

static void set_defaults(struct layer *l)
{
    attnkit_layer_weights *const w = &l->w;
    w->head_dim = w->head_dim ? w->head_dim : w->d_model / w->q_heads;
    l->kv_heads = w->kv_heads ? w->kv_heads : w->q_heads;
    l->value_dim = w->value_dim ? w->value_dim : w->head_dim;
    l->d_out = w->d_out ? w->d_out : w->d_model;
    l->d_key = w->d_key ? w->d_key : w->d_model;
    l->d_value = w->d_value ? w->d_value : l->d_key;
}

static void draw_numbers(struct layer *l, bool biases, uint64_t *random)
{
    attnkit_layer_weights *const w = &l->w;
    const int64_t q = w->q_heads * w->head_dim, k = l->kv_heads * w->head_dim;
    const int64_t v = l->kv_heads * l->value_dim;
    w->w_q = layer_floats(q * w->d_model, random);
    w->w_k = layer_floats(k * l->d_key, random);
    w->w_v = layer_floats(v * l->d_value, random);
    w->w_o = layer_floats(l->d_out * w->q_heads * l->value_dim, random);
    w->b_q = biases ? layer_floats(q, random) : NULL;
    w->b_k = biases ? layer_floats(k, random) : NULL;
    w->b_v = biases ? layer_floats(v, random) : NULL;
    w->b_o = biases ? layer_floats(l->d_out, random) : NULL;
}

void layer_draw(struct layer *l, bool is_self, uint64_t *random)
{
    *l = (struct layer){.w.size = sizeof l->w};
    draw_dims(l, is_self, random);
    set_defaults(l);
    draw_numbers(l, random_below(random, 2), random);
}

void layer_draw_shape(struct layer *l, const attnkit_layer_weights *shape, bool biases,
                      uint64_t *random)
{
    *l = (struct layer){.w = *shape};
    l->w.size = sizeof l->w;
    set_defaults(l);
    draw_numbers(l, biases, random);
}

void layer_draw_alike(struct layer *l, const struct layer *like, uint64_t *random)
{
    *l = *like;
    l->packed = NULL;
    draw_numbers(l, like->w.b_q, random);
}

void layer_pack(struct layer *l)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    assert_int_equal(attnkit_layer_packed_size(&l->w, &l->size, message), ATTNKIT_OK);
    l->packed = aligned_alloc(PACKED_ALIGNMENT, l->size);
    assert_int_equal(attnkit_layer_pack(&l->w, l->packed, l->size, NULL, message), ATTNKIT_OK);
}

void layer_free(struct layer *l)
{
    const void *const all[] = {l->w.w_q, l->w.w_k, l->w.w_v, l->w.w_o,
                               l->w.b_q, l->w.b_k, l->w.b_v, l->w.b_o};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free((void *)(uintptr_t)all[i]);
    free(l->packed);
}
