/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/kinds.h"

#include <math.h>
#include <string.h>

/* A number that has nothing to do with those of its neighbours. */
static uint32_t hash(struct at at, uint32_t salt)
{
    uint64_t x = salt + 1;
    const int64_t part[4] = {at.b, at.h, at.i, at.j};
    for (int n = 0; n < 4; n++) {
        x = (x ^ (uint64_t)part[n]) * UINT64_C(0x9e3779b97f4a7c15);
        x ^= x >> 29;
    }
    return (uint32_t)(x >> 20);
}

/* True in a third of all places, and where regions of 40 keys are true or false as a whole. */
static bool is_true(struct at at, uint32_t salt)
{
    const struct at region = {at.b, at.h, at.i / 3, at.j / 40};
    const uint32_t kind = hash(region, salt) % 4;
    return kind == 0 || (kind != 1 && hash(at, salt) % 3 == 0);
}

static int64_t position(const struct call *c, struct at at)
{
    return c->args.q_offsets[at.b] + at.i;
}

/* --- By index ----------------------------------------------------------------------------- */

static void set_causal(struct call *c)
{
    call_set_positions(c);
    c->args.flags |= ATTNKIT_CAUSAL;
}

static bool causal_sees(const struct call *c, struct at at)
{
    return at.j <= position(c, at);
}

static void set_window(struct call *c)
{
    call_set_positions(c);
    c->args.flags |= ATTNKIT_WINDOW;
    c->args.window_left = 20;
    c->args.window_right = 1;
}

static bool window_sees(const struct call *c, struct at at)
{
    return at.j >= position(c, at) - 20 && at.j <= position(c, at) + 1;
}

static void set_kept_window(struct call *c)
{
    set_window(c);
    c->args.keep_first = 4;
}

static bool kept_window_sees(const struct call *c, struct at at)
{
    return at.j < 4 || window_sees(c, at);
}

static void set_lengths(struct call *c)
{
    int64_t *const lens = call_memory(c, (size_t)c->args.batch * sizeof *lens);
    for (int64_t b = 0; b < c->args.batch; b++)
        lens[b] = c->args.kv_len - 3 - b;
    c->args.kv_lens = lens;
}

static bool length_sees(const struct call *c, struct at at)
{
    return at.j < c->args.kv_len - 3 - at.b;
}

/* --- Documents ---------------------------------------------------------------------------- */

static const int32_t numbers[] = {0, -1, INT32_MIN, INT32_MAX, 7};

static int32_t document_of_row(const struct call *c, struct at at)
{
    return numbers[(at.b + at.i * 5 / c->args.q_len) % 5];
}

static int32_t document_of_key(const struct call *c, struct at at)
{
    return numbers[(at.b + at.j * 5 / c->args.kv_len) % 5];
}

static void set_docs(struct call *c)
{
    const attnkit_attention_args *const a = &c->args;
    int32_t *const q_docs = call_memory(c, (size_t)(a->batch * a->q_len) * sizeof *q_docs);
    int32_t *const kv_docs = call_memory(c, (size_t)(a->batch * a->kv_len) * sizeof *kv_docs);
    for (int64_t b = 0; b < a->batch; b++) {
        for (int64_t i = 0; i < a->q_len; i++)
            q_docs[b * a->q_len + i] = document_of_row(c, (struct at){.b = b, .i = i});
        for (int64_t j = 0; j < a->kv_len; j++)
            kv_docs[b * a->kv_len + j] = document_of_key(c, (struct at){.b = b, .j = j});
    }
    c->args.q_docs = q_docs;
    c->args.kv_docs = kv_docs;
}

static bool docs_see(const struct call *c, struct at at)
{
    return document_of_row(c, at) == document_of_key(c, at);
}

/* --- Tensors ------------------------------------------------------------------------------ */

enum { SALT_BYTES, SALT_BITS, SALT_BIAS, SALT_VALUE };

static int64_t short_columns(const struct call *c)
{
    return c->args.kv_len > 4 ? c->args.kv_len - 4 : c->args.kv_len;
}

/* Memory of a mask with rows of so many bytes, and its strides. */
static char *new_mask(struct call *c, int64_t row_bytes, int64_t strides[3])
{
    const attnkit_attention_args *const a = &c->args;
    strides[2] = row_bytes;
    strides[1] = strides[2] * a->q_len;
    strides[0] = strides[1] * a->q_heads;
    return call_memory(c, (size_t)(strides[0] * a->batch));
}

static char *mask_row(char *mask, const int64_t strides[3], struct at at)
{
    return mask + at.b * strides[0] + at.h * strides[1] + at.i * strides[2];
}

static void set_bytes(struct call *c, attnkit_mask kind, int64_t columns)
{
    attnkit_attention_args *const a = &c->args;
    char *const mask = new_mask(c, columns, a->mask_strides);
    for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
        for (at.j = 0; at.j < columns; at.j++)
            if (is_true(at, SALT_BYTES))
                mask_row(mask, a->mask_strides, at)[at.j] = (char)(1 << hash(at, SALT_VALUE) % 8);
    a->mask = mask;
    a->mask_kind = kind;
    a->mask_columns = columns;
}

static void set_bytes_attend(struct call *c)
{
    set_bytes(c, ATTNKIT_MASK_ATTEND, c->args.kv_len);
}

static bool bytes_attend(const struct call *c, struct at at)
{
    (void)c;
    return is_true(at, SALT_BYTES);
}

static void set_bytes_ignore(struct call *c)
{
    set_bytes(c, ATTNKIT_MASK_IGNORE, c->args.kv_len);
}

static bool bytes_ignore(const struct call *c, struct at at)
{
    (void)c;
    return !is_true(at, SALT_BYTES);
}

static void set_short_bytes(struct call *c)
{
    set_bytes(c, ATTNKIT_MASK_IGNORE, short_columns(c));
}

static bool short_bytes_see(const struct call *c, struct at at)
{
    return at.j < short_columns(c) && !is_true(at, SALT_BYTES);
}

static void set_bits(struct call *c, attnkit_mask kind, int64_t columns)
{
    attnkit_attention_args *const a = &c->args;
    char *const mask = new_mask(c, (columns + 7) / 8, a->mask_bits_strides);
    for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
        for (at.j = 0; at.j < columns; at.j++)
            if (is_true(at, SALT_BITS))
                mask_row(mask, a->mask_bits_strides, at)[at.j / 8] |= (char)(1 << at.j % 8);
    a->mask_bits = mask;
    a->mask_bits_kind = kind;
    a->mask_bits_columns = columns;
}

static void set_bits_attend(struct call *c)
{
    set_bits(c, ATTNKIT_MASK_ATTEND, c->args.kv_len);
}

static bool bits_attend(const struct call *c, struct at at)
{
    (void)c;
    return is_true(at, SALT_BITS);
}

static void set_bits_ignore(struct call *c)
{
    set_bits(c, ATTNKIT_MASK_IGNORE, c->args.kv_len);
}

static bool bits_ignore(const struct call *c, struct at at)
{
    (void)c;
    return !is_true(at, SALT_BITS);
}

static void set_short_bits(struct call *c)
{
    set_bits(c, ATTNKIT_MASK_IGNORE, short_columns(c));
}

static bool short_bits_see(const struct call *c, struct at at)
{
    return at.j < short_columns(c) && !is_true(at, SALT_BITS);
}

static int64_t bias_bytes(const struct call *c)
{
    return c->args.bias_type == ATTNKIT_F32 ? 4 : 2;
}

static const float floats[] = {0.0f, 2.0f, -2.0f};

/* Which of them. */
static int added(struct at at)
{
    return (int)(hash(at, SALT_VALUE) % 3);
}

double kinds_bias(const struct call *c, struct at at)
{
    return c->args.bias ? (double)floats[added(at)] : 0.0;
}

/* -infinity, or one of three small numbers. */
static void put_bias(const struct call *c, char *to, bool masked, int n)
{
    static const uint16_t halves[] = {0, 0x4000, 0xc000}; /* of both types */
    const float x = masked ? -INFINITY : floats[n];
    uint16_t half = halves[n];
    if (masked)
        half = c->args.bias_type == ATTNKIT_F16 ? 0xfc00 : 0xff80;
    memcpy(to, c->args.bias_type == ATTNKIT_F32 ? (const void *)&x : &half, (size_t)bias_bytes(c));
}

static void fill_bias(struct call *c, char *bias, bool vary)
{
    const attnkit_attention_args *const a = &c->args;
    for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
        for (at.j = 0; at.j < a->bias_columns; at.j++)
            put_bias(c, mask_row(bias, a->bias_strides, at) + at.j * bias_bytes(c),
                     !is_true(at, SALT_BIAS), vary ? added(at) : 0);
}

static void set_bias(struct call *c, attnkit_type type, int64_t columns)
{
    attnkit_attention_args *const a = &c->args;
    a->bias_type = type;
    a->bias_columns = columns;
    char *const bias = new_mask(c, columns * bias_bytes(c), a->bias_strides);
    fill_bias(c, bias, false);
    a->bias = bias;
}

void kinds_vary_bias(struct call *c)
{
    if (c->args.bias)
        fill_bias(c, (char *)(uintptr_t)c->args.bias, true);
}

static void set_f32_bias(struct call *c)
{
    set_bias(c, ATTNKIT_F32, c->args.kv_len);
}

static void set_f16_bias(struct call *c)
{
    set_bias(c, ATTNKIT_F16, c->args.kv_len);
}

static void set_bf16_bias(struct call *c)
{
    set_bias(c, ATTNKIT_BF16, c->args.kv_len);
}

static bool bias_sees(const struct call *c, struct at at)
{
    (void)c;
    return is_true(at, SALT_BIAS);
}

static void set_short_bias(struct call *c)
{
    set_bias(c, ATTNKIT_F32, short_columns(c));
}

static bool short_bias_sees(const struct call *c, struct at at)
{
    return at.j < short_columns(c) && is_true(at, SALT_BIAS);
}

const struct kind kinds[KINDS] = {
    {"causal", CAUSAL, set_causal, causal_sees},
    {"window", WINDOW, set_window, window_sees},
    {"window with first keys", WINDOW, set_kept_window, kept_window_sees},
    {"lengths", LENGTHS, set_lengths, length_sees},
    {"documents", DOCS, set_docs, docs_see},
    {"bytes to attend", BYTES, set_bytes_attend, bytes_attend},
    {"bytes to ignore", BYTES, set_bytes_ignore, bytes_ignore},
    {"short bytes", BYTES, set_short_bytes, short_bytes_see},
    {"bits to attend", BITS, set_bits_attend, bits_attend},
    {"bits to ignore", BITS, set_bits_ignore, bits_ignore},
    {"short bits", BITS, set_short_bits, short_bits_see},
    {"f32 bias", BIAS, set_f32_bias, bias_sees},
    {"f16 bias", BIAS, set_f16_bias, bias_sees},
    {"bf16 bias", BIAS, set_bf16_bias, bias_sees},
    {"short bias", BIAS, set_short_bias, short_bias_sees},
};
