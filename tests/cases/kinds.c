/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cases/kinds.h"

#include <math.h>
#include <string.h>

/* Returns a pseudo-random number that depends only on the place and the salt. */
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

/* Returns true in 5 of 12 places. A region has 3 rows and 40 keys. A quarter of the regions is true
 * in all places, and a quarter is false in all places. In the other regions, a third of the places
 * is true. */
static bool is_true(struct at at, uint32_t salt)
{
    const struct at region = {at.b, at.h, at.i / 3, at.j / 40};
    const uint32_t kind = hash(region, salt) % 4;
    return kind == 0 || (kind != 1 && hash(at, salt) % 3 == 0);
}

static int64_t position(const struct call *c, struct at at)
{
    return ints_at(c->args.q_offsets, at.b) + at.i;
}

/* --- Masks by the index of a key ---------------------------------------------------------- */

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
    groups_set_window(&c->args, &c->groups, 20, 1, 0);
}

static bool window_sees(const struct call *c, struct at at)
{
    return at.j >= position(c, at) - 20 && at.j <= position(c, at) + 1;
}

static void set_kept_window(struct call *c)
{
    set_window(c);
    c->groups.window.keep_first = 4;
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
    c->groups.visibility.kv_lens = (attnkit_ints){.data = lens};
}

static bool length_sees(const struct call *c, struct at at)
{
    return at.j < c->args.kv_len - 3 - at.b;
}

/* --- Segments ----------------------------------------------------------------------------- */

static const int32_t ids[] = {0, -1, INT32_MIN, INT32_MAX, 7};

static int32_t segment_of_row(const struct call *c, struct at at)
{
    return ids[(at.b + at.i * 5 / c->args.q_len) % 5];
}

static int32_t segment_of_key(const struct call *c, struct at at)
{
    return ids[(at.b + at.j * 5 / c->args.kv_len) % 5];
}

static void set_segments(struct call *c)
{
    const attnkit_attention_args *const a = &c->args;
    int32_t *const q_ids = call_memory(c, (size_t)(a->batch * a->q_len) * sizeof *q_ids);
    int32_t *const kv_ids = call_memory(c, (size_t)(a->batch * a->kv_len) * sizeof *kv_ids);
    for (int64_t b = 0; b < a->batch; b++) {
        for (int64_t i = 0; i < a->q_len; i++)
            q_ids[b * a->q_len + i] = segment_of_row(c, (struct at){.b = b, .i = i});
        for (int64_t j = 0; j < a->kv_len; j++)
            kv_ids[b * a->kv_len + j] = segment_of_key(c, (struct at){.b = b, .j = j});
    }
    c->groups.visibility.q_segment_ids = q_ids;
    c->groups.visibility.kv_segment_ids = kv_ids;
}

static bool segments_see(const struct call *c, struct at at)
{
    return segment_of_row(c, at) == segment_of_key(c, at);
}

/* --- Tensors ------------------------------------------------------------------------------ */

enum { SALT_BYTES, SALT_BITS, SALT_BIAS, SALT_VALUE };

static int64_t short_columns(const struct call *c)
{
    return c->args.kv_len > 4 ? c->args.kv_len - 4 : c->args.kv_len;
}

/* Allocates the memory of a mask and sets its strides. Each row of the mask has row_bytes bytes. */
static void new_mask(struct call *c, attnkit_tensor *mask, int64_t row_bytes)
{
    const attnkit_attention_args *const a = &c->args;
    mask->layout = ATTNKIT_STRIDED;
    mask->strides[2] = row_bytes;
    mask->strides[1] = mask->strides[2] * a->q_len;
    mask->strides[0] = mask->strides[1] * a->q_heads;
    mask->data = call_memory(c, (size_t)(mask->strides[0] * a->batch));
}

/* Returns a writable pointer to a row of the mask. */
static char *mask_row(const attnkit_tensor *mask, struct at at)
{
    return (char *)(uintptr_t)mask->data + at.b * mask->strides[0] + at.h * mask->strides[1] +
           at.i * mask->strides[2];
}

static void set_bytes(struct call *c, attnkit_mask_kind kind, int64_t columns)
{
    attnkit_visibility *const v = &c->groups.visibility;
    new_mask(c, &v->mask, columns);
    for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
        for (at.j = 0; at.j < columns; at.j++)
            if (is_true(at, SALT_BYTES))
                mask_row(&v->mask, at)[at.j] = (char)(1 << hash(at, SALT_VALUE) % 8);
    v->mask.type = ATTNKIT_BOOL;
    v->mask_kind = kind;
    v->mask_columns = columns;
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

static void set_bits(struct call *c, attnkit_mask_kind kind, int64_t columns)
{
    attnkit_visibility *const v = &c->groups.visibility;
    new_mask(c, &v->mask_bits, (columns + 7) / 8);
    for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
        for (at.j = 0; at.j < columns; at.j++)
            if (is_true(at, SALT_BITS))
                mask_row(&v->mask_bits, at)[at.j / 8] |= (char)(1 << at.j % 8);
    v->mask_bits.type = ATTNKIT_BITS;
    v->mask_bits_kind = kind;
    v->mask_bits_columns = columns;
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
    return c->groups.scores.bias.type == ATTNKIT_F32 ? 4 : 2;
}

static const float floats[] = {0.0f, 2.0f, -2.0f};

/* Returns the index in `floats` of the number that the bias adds at a place. */
static int added(struct at at)
{
    return (int)(hash(at, SALT_VALUE) % 3);
}

double kinds_bias(const struct call *c, struct at at)
{
    return c->groups.scores.bias.data ? (double)floats[added(at)] : 0.0;
}

/* Stores -infinity if masked, else floats[n], in the type of the bias. */
static void put_bias(const struct call *c, char *to, bool masked, int n)
{
    static const uint16_t halves[] = {0, 0x4000, 0xc000}; /* 0, 2, -2 in both 16-bit types */
    const float x = masked ? -INFINITY : floats[n];
    const attnkit_type type = c->groups.scores.bias.type;
    uint16_t half = halves[n];
    if (masked)
        half = type == ATTNKIT_F16 ? 0xfc00 : 0xff80;
    memcpy(to, type == ATTNKIT_F32 ? (const void *)&x : &half, (size_t)bias_bytes(c));
}

static void fill_bias(struct call *c, bool vary)
{
    const attnkit_score_mods *const s = &c->groups.scores;
    for (struct at at = {0}; call_has(c, at); at = call_next(c, at))
        for (at.j = 0; at.j < s->bias_columns; at.j++)
            put_bias(c, mask_row(&s->bias, at) + at.j * bias_bytes(c), !is_true(at, SALT_BIAS),
                     vary ? added(at) : 0);
}

static void set_bias(struct call *c, attnkit_type type, int64_t columns)
{
    attnkit_score_mods *const s = &c->groups.scores;
    s->bias.type = type;
    s->bias_columns = columns;
    new_mask(c, &s->bias, columns * bias_bytes(c));
    fill_bias(c, false);
}

void kinds_vary_bias(struct call *c)
{
    if (c->groups.scores.bias.data)
        fill_bias(c, true);
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
    {"segments", SEGMENTS, set_segments, segments_see},
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
