/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/oracle/inputs.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "tests/support/formats.h"

enum { MAX_TILED_DIM = 1024 };

/* --- The row ---------------------------------------------------------------------------------- */

static int64_t position_of_row_0(const struct query *q, int64_t rows)
{
    switch (q->args->align) {
    case ATTNKIT_ALIGN_BOTTOM_RIGHT:
        return q->groups.states.first_key + q->keys - rows;
    case ATTNKIT_ALIGN_OFFSETS:
        return ints_at(q->args->q_offsets, q->batch);
    default:
        return 0;
    }
}

/* Returns the length of sequence b, the difference of two elements of cu_seqlens. */
static int64_t length_of(attnkit_ints cu_seqlens, int64_t b)
{
    return ints_at(cu_seqlens, b + 1) - ints_at(cu_seqlens, b);
}

struct query query_of(const attnkit_attention_args *args, int64_t batch, int64_t head, int64_t row)
{
    struct query q = {
        .args = args,
        .groups = groups_of(args),
        .batch = batch,
        .head = head,
        .kv_head = head / (args->q_heads / args->kv_heads),
        .outer = batch,
        .row = row,
        .keys = args->kv_len,
        .value_dim = args->value_dim ? args->value_dim : args->head_dim,
    };
    const attnkit_ints starts = q.groups.storage.cu_seqlens_q;
    const attnkit_ints kv_starts = q.groups.storage.cu_seqlens_kv;
    const attnkit_ints lens = q.groups.visibility.kv_lens;
    int64_t rows = args->q_len;
    if (starts.data) {
        rows = length_of(starts, batch);
        q.outer = 0;
        q.row = ints_at(starts, batch) + row;
    }
    if (lens.data)
        q.keys = ints_at(lens, batch);
    if (kv_starts.data)
        q.keys = length_of(kv_starts, batch);
    q.position = (__int128_t)position_of_row_0(&q, rows) + row;
    return q;
}

/* --- Rows as they are stored ------------------------------------------------------------------ */

/* Returns the address of a row, or of a tile, in a tensor. The place is given by `index`: {outer,
 * head, row or tile}. outer is a batch entry or a page, or 0 for packed rows. Unless the tensor is
 * ATTNKIT_STRIDED, it is dense: count[0] heads for each outer, count[1] rows or tiles for each
 * head. */
static const char *element_at(const attnkit_tensor *tensor, const int64_t count[2],
                              int64_t row_bytes, const int64_t index[3])
{
    const int64_t dense[3] = {count[0] * count[1] * row_bytes, count[1] * row_bytes, row_bytes};
    const int64_t *const s = tensor->layout & ATTNKIT_STRIDED ? tensor->strides : dense;
    return (const char *)tensor->data + index[0] * s[0] + index[1] * s[1] + index[2] * s[2];
}

void query_q(const struct query *q, float *out)
{
    const attnkit_attention_args *const a = q->args;
    const enum type type = (enum type)a->q.type;
    const int64_t count[2] = {a->q_heads, a->q_len}, index[3] = {q->outer, q->head, q->row};
    widen_row(type, element_at(&a->q, count, bytes_of(type, a->head_dim), index), NULL, 0,
              a->head_dim, out);
}

/* K or V as the call stores it. */
struct stored {
    const attnkit_tensor *rows, *scales;
    enum type type;
    int64_t dim, group;
    bool tiled;
};

static struct stored stored_k(const struct query *q)
{
    const attnkit_attention_args *const a = q->args;
    const attnkit_kv_storage *const storage = &q->groups.storage;
    return (struct stored){.rows = &a->k,
                           .scales = &storage->k_scales,
                           .type = (enum type)a->k.type,
                           .dim = a->head_dim,
                           .group = storage->k_scale_group ? storage->k_scale_group : a->head_dim,
                           .tiled = a->k.layout & ATTNKIT_TILED};
}

static struct stored stored_v(const struct query *q)
{
    const attnkit_kv_storage *const storage = &q->groups.storage;
    return (struct stored){.rows = &q->args->v,
                           .scales = &storage->v_scales,
                           .type = (enum type)q->args->v.type,
                           .dim = q->value_dim,
                           .group = storage->v_scale_group ? storage->v_scale_group : q->value_dim};
}

/* Copies row `at` of a tile of K to `row`. For TYPE_I8, copies the row's scales to `scales`. */
static void take_out_of_tile(const struct stored *s, const char *tile, const float *tile_scales,
                             int64_t at, char *row, float *scales)
{
    const int64_t tile_block = ATTNKIT_TILE_KEYS * Q8_BLOCK_BYTES;
    const int64_t element = s->type == TYPE_Q8_0 ? 1 : bytes_of(s->type, 1);
    for (int64_t d = 0; d < s->dim && s->type != TYPE_Q8_0; d++)
        memcpy(row + d * element, tile + (d * ATTNKIT_TILE_KEYS + at) * element, (size_t)element);
    for (int64_t g = 0; g < s->dim / s->group && s->type == TYPE_I8; g++)
        scales[g] = tile_scales[g * ATTNKIT_TILE_KEYS + at];
    for (int64_t b = 0; b < s->dim / Q8_BLOCK && s->type == TYPE_Q8_0; b++) {
        const char *const block = tile + b * tile_block;
        char *const to = row + b * Q8_BLOCK_BYTES;
        memcpy(to, block + 2 * at, 2);
        for (int64_t d = 0; d < Q8_BLOCK; d++)
            to[2 + d] = block[2 * ATTNKIT_TILE_KEYS + d * ATTNKIT_TILE_KEYS + at];
    }
}

/* Finds the place {outer, head, row} of a key's row in K and V (element_at). The keys may be in
 * pages, packed, or dense. */
static void locate(const struct query *q, int64_t key, int64_t index[3])
{
    const attnkit_pages *const pages = &q->groups.pages;
    const attnkit_ints starts = q->groups.storage.cu_seqlens_kv;
    index[0] = q->batch;
    index[1] = q->kv_head;
    index[2] = key;
    if (pages->block_table) {
        index[0] =
            pages->block_table[q->batch * pages->block_table_stride + key / pages->page_size];
        index[2] = key % pages->page_size;
    }
    if (starts.data) {
        index[0] = 0;
        index[2] += ints_at(starts, q->batch);
    }
}

/* Sets count[0] to the number of KV heads. Sets count[1] to the number of tiles, or of rows, that a
 * head has in a batch entry or in a page. `lines` is the number of keys in a tile. If K or V lies
 * in rows, `lines` is 1. */
static void count_lines(const struct query *q, int64_t lines, int64_t count[2])
{
    const int64_t keys = q->groups.pages.block_table ? q->groups.pages.page_size : q->args->kv_len;
    count[0] = q->args->kv_heads;
    count[1] = (keys + lines - 1) / lines;
}

/* A row of K or V, and its scales if the type has scales. A row that lies in a tile is copied to
 * `own`, and its scales to `own_scales`. */
struct found {
    const char *row;
    const float *scales;
    char own[4 * MAX_TILED_DIM];
    float own_scales[MAX_TILED_DIM];
};

static void find(const struct query *q, const struct stored *s, int64_t key, struct found *found)
{
    const int64_t lines = s->tiled ? ATTNKIT_TILE_KEYS : 1;
    int64_t index[3], count[2];
    count_lines(q, lines, count);
    locate(q, key, index);
    const int64_t at = index[2] % lines;
    index[2] /= lines;

    const char *const row = element_at(s->rows, count, lines * bytes_of(s->type, s->dim), index);
    const void *scales = NULL;
    if (has_scales(s->type))
        scales = element_at(s->scales, count, lines * (s->dim / s->group) * (int64_t)sizeof(float),
                            index);
    found->row = s->tiled ? found->own : row;
    found->scales = s->tiled ? found->own_scales : scales;
    if (s->tiled)
        take_out_of_tile(s, row, scales, at, found->own, found->own_scales);
}

static void widen_stored(const struct query *q, const struct stored *s, int64_t key, float *out)
{
    struct found found;
    find(q, s, key, &found);
    widen_row(s->type, found.row, found.scales, s->group, s->dim, out);
}

void query_k(const struct query *q, int64_t key, float *out)
{
    const struct stored k = stored_k(q);
    widen_stored(q, &k, key, out);
}

void query_v(const struct query *q, int64_t key, float *out)
{
    const struct stored v = stored_v(q);
    widen_stored(q, &v, key, out);
}

static struct integer_block block_of(const struct query *q, const struct stored *s, int64_t key,
                                     int64_t block)
{
    struct integer_block of;
    struct found found;
    find(q, s, key, &found);
    const char *at = found.row + block * Q8_BLOCK;
    if (s->type == TYPE_I8) {
        of.scale = found.scales[block * Q8_BLOCK / s->group];
    } else {
        at = found.row + block * Q8_BLOCK_BYTES;
        widen_row(TYPE_F16, at, NULL, 0, 1, &of.scale);
        at += sizeof(uint16_t);
    }
    memcpy(of.integers, at, Q8_BLOCK);
    return of;
}

struct integer_block query_k_block(const struct query *q, int64_t key, int64_t block)
{
    const struct stored k = stored_k(q);
    return block_of(q, &k, key, block);
}

struct integer_block query_v_block(const struct query *q, int64_t key, int64_t block)
{
    const struct stored v = stored_v(q);
    return block_of(q, &v, key, block);
}

/* --- Masks ------------------------------------------------------------------------------------ */

/* Returns the row of a mask or bias for the query row, or NULL if the mask or bias has no column
 * for the key. */
static const char *mask_line(const struct query *q, const attnkit_tensor *mask, int64_t columns,
                             int64_t line_bytes, int64_t key)
{
    const attnkit_attention_args *const a = q->args;
    const int64_t count[2] = {a->q_heads, a->q_len}, index[3] = {q->outer, q->head, q->row};
    if (key >= columns)
        return NULL;
    return element_at(mask, count, line_bytes, index);
}

static int64_t columns_of(const struct query *q, int64_t columns)
{
    return columns ? columns : q->args->kv_len;
}

static bool is_let_through(attnkit_mask_kind kind, bool value)
{
    return value == (kind == ATTNKIT_MASK_ATTEND);
}

static bool passes_bytes(const struct query *q, int64_t key)
{
    const attnkit_visibility *const v = &q->groups.visibility;
    const int64_t columns = columns_of(q, v->mask_columns);
    const char *const line = mask_line(q, &v->mask, columns, columns, key);
    return line && is_let_through(v->mask_kind, line[key]);
}

static bool passes_bits(const struct query *q, int64_t key)
{
    const attnkit_visibility *const v = &q->groups.visibility;
    const int64_t columns = columns_of(q, v->mask_bits_columns);
    const char *const line = mask_line(q, &v->mask_bits, columns, (columns + 7) / 8, key);
    return line && is_let_through(v->mask_bits_kind, (unsigned char)line[key / 8] >> key % 8 & 1);
}

float query_bias(const struct query *q, int64_t key)
{
    const attnkit_score_mods *const s = &q->groups.scores;
    if (!s->bias.data)
        return 0.0f;
    const enum type type = (enum type)s->bias.type;
    const int64_t columns = columns_of(q, s->bias_columns);
    const char *const line = mask_line(q, &s->bias, columns, bytes_of(type, columns), key);
    float bias = -INFINITY;
    if (line)
        widen_row(type, line + bytes_of(type, key), NULL, 0, 1, &bias);
    return bias;
}

static bool is_in_window(const struct query *q, int64_t key)
{
    const attnkit_window *const w = &q->groups.window;
    const __int128_t distance = query_distance(q, key);
    if (q->groups.states.first_key + key < w->keep_first)
        return true;
    return (w->left < 0 || distance >= -(__int128_t)w->left) &&
           (w->right < 0 || distance <= w->right);
}

static bool is_of_same_segment(const struct query *q, int64_t key)
{
    const attnkit_attention_args *const a = q->args;
    const attnkit_visibility *const v = &q->groups.visibility;
    const attnkit_ints starts = q->groups.storage.cu_seqlens_kv;
    const int64_t first = starts.data ? ints_at(starts, q->batch) : q->batch * a->kv_len;
    return v->q_segment_ids[q->outer * a->q_len + q->row] == v->kv_segment_ids[first + key];
}

__int128_t query_distance(const struct query *q, int64_t key)
{
    return (__int128_t)q->groups.states.first_key + key - q->position;
}

bool query_sees(const struct query *q, int64_t key)
{
    const attnkit_visibility *const v = &q->groups.visibility;
    const bool causal = q->args->flags & ATTNKIT_CAUSAL;
    return key < q->keys && (!causal || query_distance(q, key) <= 0) &&
           (!v->window || is_in_window(q, key)) &&
           (!v->q_segment_ids || is_of_same_segment(q, key)) &&
           (!v->mask.data || passes_bytes(q, key)) && (!v->mask_bits.data || passes_bits(q, key)) &&
           query_bias(q, key) != -INFINITY;
}

/* --- Dropout ---------------------------------------------------------------------------------- */

/* Computes one of the ten rounds of Philox4x32. */
static void philox_round(uint32_t w[4], uint32_t key_0, uint32_t key_1)
{
    const uint64_t a = (uint64_t)w[0] * 0xd2511f53, b = (uint64_t)w[2] * 0xcd9e8d57;
    const uint32_t mixed[4] = {(uint32_t)(b >> 32) ^ w[1] ^ key_0, (uint32_t)b,
                               (uint32_t)(a >> 32) ^ w[3] ^ key_1, (uint32_t)a};
    memcpy(w, mixed, sizeof mixed);
}

bool query_drops(const struct query *q, int64_t key)
{
    const attnkit_score_mods *const s = &q->groups.scores;
    if (!(s->dropout > 0.0))
        return false;
    const uint64_t seed = s->dropout_seeds[q->batch];
    const uint64_t four = (uint64_t)(q->groups.states.first_key + key) / 4;
    const uint64_t position = (uint64_t)q->position;
    uint32_t w[4] = {(uint32_t)four, (uint32_t)position, (uint32_t)q->head,
                     (uint32_t)(four >> 32 & 0xffff) | (uint32_t)(position >> 32 & 0xffff) << 16};
    for (uint32_t i = 0; i < 10; i++)
        philox_round(w, (uint32_t)seed + i * 0x9e3779b9, (uint32_t)(seed >> 32) + i * 0xbb67ae85);
    return (double)w[key % 4] < s->dropout * 0x1p32;
}
