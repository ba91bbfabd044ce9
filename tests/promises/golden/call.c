/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/promises/golden/call.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/attention/attention.h"
#include "kernels/scalar/reference.h"
#include "kernels/scalar/scalar.h"
#include "tests/promises/golden/hash.h"
#include "tests/support/random.h"

void *golden_take(struct golden_call *c, int64_t bytes)
{
    struct guarded *const m = &c->piece[c->pieces++];
    assert_true(c->pieces <= GOLDEN_PIECES);
    *m = memory_guarded((size_t)bytes, 0, true);
    return m->data;
}

uint64_t golden_stream(const struct golden_attention *what, enum golden_tensor tensor)
{
    uint64_t state = what->seed ^ ((uint64_t)tensor + 1) * UINT64_C(0xd1342543de82ef95);
    return random_bits(&state);
}

float golden_number(enum golden_numbers numbers, uint64_t *random)
{
    static const float special[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 6e4f, -6e4f, 1e-7f};
    const float x = random_uniform(random);
    if (numbers == SPECIAL && random_below(random, 300) == 0)
        return special[random_below(random, 8)];
    return numbers == SMALL ? 0x1p-16f * x : x;
}

/* --- Query rows and results ------------------------------------------------------------------- */

/* Returns the number of batch entries of a tensor of query rows. Packed rows count as one entry. */
static int64_t row_entries(const struct golden_attention *what)
{
    return what->packed_q ? 1 : what->batch;
}

static int64_t element_bytes(attnkit_type type)
{
    return bytes_of((enum type)type, 1);
}

static void make_rows(struct golden_call *c)
{
    const struct golden_attention *const what = &c->what;
    attnkit_attention_args *const a = &c->args;
    uint64_t random = golden_stream(what, GOLDEN_Q);
    const float factor = what->numbers == PEAKED ? 40.0f : 3.0f;
    const int64_t count = c->rows * what->head_dim, bytes = element_bytes(what->q);
    char *const q = golden_take(c, count * bytes);
    for (int64_t i = 0; i < count; i++) {
        const float x = factor * golden_number(what->numbers, &random);
        attnkit_scalar_narrow((enum type)what->q, &x, 1, 1, q + i * bytes, NULL);
    }
    c->out = golden_take(c, c->rows * what->value_dim * element_bytes(what->out));
    c->lse = golden_take(c, c->rows * (int64_t)sizeof *c->lse);
    a->q = (attnkit_tensor){.data = q, .type = what->q};
    a->out = (attnkit_tensor){.data = c->out, .type = what->out};
    a->lse = (attnkit_tensor){.data = c->lse};
    if (what->weights == ATTNKIT_WEIGHTS_NONE)
        return;
    c->weights = golden_take(c, c->rows * what->kv_len * (int64_t)sizeof *c->weights);
    c->groups.weights.kind = what->weights;
    c->groups.weights.weights.data = c->weights;
}

/* Draws the cu_seqlens of sequences that are packed into `total` rows or keys. */
static attnkit_ints make_starts(struct golden_call *c, int64_t total, enum golden_tensor tensor)
{
    const int64_t batch = c->what.batch;
    uint64_t random = golden_stream(&c->what, tensor);
    int64_t *const starts = golden_take(c, (batch + 1) * (int64_t)sizeof *starts);
    starts[0] = 0;
    for (int64_t b = 1; b < batch; b++)
        starts[b] = starts[b - 1] + random_below(&random, total - starts[b - 1] + 1);
    starts[batch] = total;
    return (attnkit_ints){.data = starts};
}

static void make_packed(struct golden_call *c)
{
    attnkit_kv_storage *const storage = &c->groups.storage;
    if (c->what.packed_q)
        storage->cu_seqlens_q = make_starts(c, c->what.q_len, GOLDEN_Q_STARTS);
    if (c->what.packed_kv)
        storage->cu_seqlens_kv = make_starts(c, c->what.kv_len, GOLDEN_KV_STARTS);
}

/* --- Cells ------------------------------------------------------------------------------------ */

/* Returns the place of a cell's key in the order of the keys. With a step of 1, the cells are a
 * ring that begins at key `turn`. With any other step, the keys are permuted. `step` and the number
 * of cells have no common divisor except 1. */
static int64_t place_of(int64_t cell, int64_t cells, int64_t turn, int64_t step)
{
    return (cell * step + turn) % cells;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

/* Puts the keys into cells. Some cells may be empty. The indices of the keys begin at a drawn
 * number, and the distance between them is 1 or 2. If the call has q_offsets, the drawn number is
 * added to each of the q_offsets. */
static void make_cells(struct golden_call *c)
{
    const int64_t cells = c->what.kv_len, batch = c->what.batch;
    attnkit_kv_storage *const storage = &c->groups.storage;
    uint64_t random = golden_stream(&c->what, GOLDEN_CELLS);
    const int64_t first = random_below(&random, 2000), spread = 1 + random_below(&random, 2);
    int64_t *const index = golden_take(c, batch * cells * (int64_t)sizeof *index);
    for (int64_t b = 0; b < batch; b++) {
        const int64_t turn = random_below(&random, cells), empty = random_below(&random, 3);
        int64_t step = random_below(&random, 2) ? 1 : 1 + random_below(&random, cells);
        while (common_divisor(step, cells) != 1)
            step++;
        for (int64_t cell = 0; cell < cells; cell++) {
            const bool is_empty = random_below(&random, 10) < 3 * empty;
            const int64_t place = place_of(cell, cells, turn, step);
            index[b * cells + cell] = is_empty ? -1 : first + spread * place;
        }
    }
    storage->key_index.data = index;
    storage->key_index_stride = cells;
    for (int64_t b = 0; b < batch && c->args.q_offsets.data; b++)
        ((int64_t *)(uintptr_t)c->args.q_offsets.data)[b] += first;
}

/* --- What a row sees -------------------------------------------------------------------------- */

static void make_positions(struct golden_call *c)
{
    const struct golden_attention *const what = &c->what;
    attnkit_attention_args *const a = &c->args;
    uint64_t random = golden_stream(what, GOLDEN_OFFSETS);
    a->align = what->align;
    if (what->is_causal)
        a->flags |= ATTNKIT_CAUSAL;
    if (what->has_window)
        groups_set_window(a, &c->groups, what->left, what->right, what->keep_first);
    if (what->align != ATTNKIT_ALIGN_OFFSETS)
        return;
    int64_t *const offsets = golden_take(c, what->batch * (int64_t)sizeof *offsets);
    for (int64_t b = 0; b < what->batch; b++)
        offsets[b] = random_below(&random, what->kv_len + 20) - 10;
    a->q_offsets.data = offsets;
}

/* Draws segment ids in runs of equal ids. Rows and keys have the same three possible ids. */
static int32_t *make_segments(struct golden_call *c, int64_t count, enum golden_tensor tensor)
{
    uint64_t random = golden_stream(&c->what, tensor);
    int32_t *const ids = golden_take(c, count * (int64_t)sizeof *ids);
    const int64_t longest = 1 + count / 3;
    for (int64_t i = 0; i < count;) {
        const int32_t id = (int32_t)random_below(&random, 3) - 1;
        for (int64_t end = i + 1 + random_below(&random, longest); i < end && i < count; i++)
            ids[i] = id;
    }
    return ids;
}

static int64_t columns_of(const struct golden_attention *what)
{
    return what->short_columns && what->kv_len > 4 ? what->kv_len - 4 : what->kv_len;
}

/* Allocates a mask or a bias with rows of `row_bytes` bytes. Returns its size in bytes. */
static int64_t make_mask(struct golden_call *c, int64_t row_bytes, attnkit_tensor *mask)
{
    const int64_t bytes = row_bytes * (c->what.shared_columns ? 1 : c->rows);
    mask->data = golden_take(c, bytes);
    mask->layout = c->what.shared_columns ? ATTNKIT_STRIDED : 0;
    return bytes;
}

/* Fills a mask with runs of bytes that are all false, all true or random. */
static void fill_mask(attnkit_tensor *mask, int64_t bytes, uint64_t random)
{
    unsigned char *const to = (unsigned char *)(uintptr_t)mask->data;
    for (int64_t i = 0; i < bytes;) {
        const int64_t what = random_below(&random, 3);
        const int64_t end = i + 1 + random_below(&random, random_below(&random, 2) ? 9 : 300);
        for (; i < end && i < bytes; i++)
            to[i] = what == 0   ? 0
                    : what == 1 ? 0xff
                                : (unsigned char)(random_bits(&random) & random_bits(&random));
    }
}

static void make_masks(struct golden_call *c)
{
    const struct golden_attention *const what = &c->what;
    attnkit_visibility *const see = &c->groups.visibility;
    const int64_t columns = columns_of(what);
    if (what->has_segments) {
        const int64_t key_entries = what->packed_kv ? 1 : what->batch;
        see->q_segment_ids = make_segments(c, row_entries(what) * what->q_len, GOLDEN_Q_SEGMENTS);
        see->kv_segment_ids = make_segments(c, key_entries * what->kv_len, GOLDEN_KV_SEGMENTS);
    }
    if (what->bytes) {
        see->mask.type = ATTNKIT_BOOL;
        see->mask_kind = what->bytes;
        see->mask_columns = columns;
        fill_mask(&see->mask, make_mask(c, columns, &see->mask), golden_stream(what, GOLDEN_BYTES));
    }
    if (what->bits) {
        see->mask_bits.type = ATTNKIT_BITS;
        see->mask_bits_kind = what->bits;
        see->mask_bits_columns = columns;
        fill_mask(&see->mask_bits, make_mask(c, (columns + 7) / 8, &see->mask_bits),
                  golden_stream(what, GOLDEN_BITS));
    }
}

/* --- Score mods ------------------------------------------------------------------------------- */

static float draw_bias(enum golden_numbers numbers, int64_t kind, uint64_t *random)
{
    if (kind == 0)
        return -INFINITY;
    return kind == 1 ? 0.0f : 4.0f * golden_number(numbers, random);
}

/* Makes a bias in runs. All elements of a run are -infinity, 0 or random. */
static void make_bias(struct golden_call *c)
{
    const struct golden_attention *const what = &c->what;
    attnkit_score_mods *const scores = &c->groups.scores;
    const int64_t element = element_bytes(what->bias);
    uint64_t random = golden_stream(what, GOLDEN_BIAS);
    scores->bias.type = what->bias;
    scores->bias_columns = columns_of(what);
    const int64_t bytes = make_mask(c, scores->bias_columns * element, &scores->bias);
    char *const to = (char *)(uintptr_t)scores->bias.data;
    for (int64_t i = 0; i < bytes;) {
        const int64_t kind = random_below(&random, 4);
        const int64_t end = i + element * (1 + random_below(&random, 90));
        for (; i < end && i < bytes; i += element) {
            const float x = draw_bias(what->numbers, kind, &random);
            attnkit_scalar_narrow((enum type)what->bias, &x, 1, 1, to + i, NULL);
        }
    }
}

static float *make_head_numbers(struct golden_call *c, float factor, enum golden_tensor tensor)
{
    uint64_t random = golden_stream(&c->what, tensor);
    float *const x = golden_take(c, c->args.q_heads * (int64_t)sizeof *x);
    for (int64_t h = 0; h < c->args.q_heads; h++)
        x[h] = factor * golden_number(c->what.numbers, &random);
    return x;
}

static void make_scores(struct golden_call *c)
{
    const struct golden_attention *const what = &c->what;
    attnkit_score_mods *const scores = &c->groups.scores;
    if (what->has_scale) {
        c->args.flags |= ATTNKIT_SCALE_GIVEN;
        c->args.scale = what->scale;
    }
    scores->softcap = what->softcap;
    if (what->has_bias)
        make_bias(c);
    if (what->has_slopes)
        scores->alibi_slopes = make_head_numbers(c, 1.0f, GOLDEN_SLOPES);
    if (what->has_sinks)
        scores->sinks = make_head_numbers(c, 4.0f, GOLDEN_SINKS);
    if (what->has_bias_scales)
        scores->bias_scales = make_head_numbers(c, 2.0f, GOLDEN_BIAS_SCALES);
    if (what->dropout == 0.0)
        return;
    uint64_t random = golden_stream(what, GOLDEN_SEEDS);
    uint64_t *const seeds = golden_take(c, what->batch * (int64_t)sizeof *seeds);
    for (int64_t b = 0; b < what->batch; b++)
        seeds[b] = random_bits(&random);
    scores->dropout = what->dropout;
    scores->dropout_seeds = seeds;
}

struct golden_call *golden_call_new(const struct golden_attention *what)
{
    struct golden_call *const c = calloc(1, sizeof *c);
    attnkit_attention_args *const a = &c->args;
    c->what = *what;
    attnkit_attention_args_init(a);
    groups_init(&c->groups);
    groups_hang(a, &c->groups);
    a->batch = what->batch;
    a->kv_heads = what->kv_heads;
    a->q_heads = what->kv_heads * what->group;
    a->q_len = what->q_len;
    a->kv_len = what->kv_len;
    a->head_dim = what->head_dim;
    a->value_dim = what->value_dim;
    a->flags = what->integers ? ATTNKIT_INTEGERS : 0;
    if (what->parts > 0)
        a->flags = ATTNKIT_BF16_PRODUCTS | (what->parts == 1 ? ATTNKIT_SHORT_WEIGHTS : 0);
    c->rows = row_entries(what) * a->q_heads * what->q_len;
    make_rows(c);
    make_packed(c);
    golden_store(c);
    make_positions(c);
    if (what->cells)
        make_cells(c);
    make_masks(c);
    make_scores(c);
    return c;
}

void golden_call_free(struct golden_call *c)
{
    for (int i = 0; i < c->pieces; i++)
        memory_unguard(&c->piece[i]);
    free(c);
}

/* --- Running a call --------------------------------------------------------------------------- */

void golden_attend(const attnkit_attention_args *args, const char *isa)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {.size = sizeof exec, .isa = isa};
    if (attnkit_attention_workspace(args, &exec, &exec.workspace_size, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    struct guarded workspace = memory_guarded(exec.workspace_size, 0, true);
    exec.workspace = workspace.data;
    if (attnkit_attention(args, &exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    memory_unguard(&workspace);
}

uint64_t golden_call_hash(const struct golden_call *c, const char *isa)
{
    const struct golden_attention *const what = &c->what;
    const size_t outs = (size_t)(c->rows * what->value_dim), rows = (size_t)c->rows;
    const size_t weights = what->weights ? rows * (size_t)what->kv_len : 0;
    memset(c->out, 0xa5, outs * (size_t)element_bytes(what->out));
    memset(c->lse, 0xa5, rows * sizeof *c->lse);
    if (weights)
        memset(c->weights, 0xa5, weights * sizeof *c->weights);
    if (isa) {
        golden_attend(&c->args, isa);
    } else {
        struct attention a;
        assert_int_equal(attnkit_attention_problem(&c->args, &a, NULL), ATTNKIT_OK);
        attnkit_reference(&a);
    }
    uint64_t hash = hash_elements(HASH_BEGIN, what->out, c->out, outs);
    hash = hash_floats(hash, c->lse, rows);
    return hash_floats(hash, c->weights, weights);
}

void golden_attention_print(const struct golden_attention *w)
{
    printf("# B%d H%d x %d, %d x %d, D%d/%d, types %d %d %d %d, numbers %d", (int)w->batch,
           (int)w->kv_heads, (int)w->group, (int)w->q_len, (int)w->kv_len, (int)w->head_dim,
           (int)w->value_dim, w->q, w->k, w->v, w->out, w->numbers);
    printf(", page %d groups %d %d align %d window %d %d %d bytes %d bits %d bias %d weights %d",
           (int)w->page_size, (int)w->k_group, (int)w->v_group, w->align,
           w->has_window ? (int)w->left : -2, (int)w->right, (int)w->keep_first, w->bytes, w->bits,
           w->has_bias ? w->bias : -1, w->weights);
    printf(", scale %g softcap %g dropout %g%s%s%s%s%s%s%s%s%s%s%s%s%s%s\n", w->scale, w->softcap,
           w->dropout, w->tokens ? " tokens" : "",
           w->cells   ? " cells"
           : w->tiled ? " tiled"
                      : "",
           w->packed_q ? " packed_q" : "", w->packed_kv ? " packed_kv" : "",
           w->is_causal ? " causal" : "", w->has_lens ? " lens" : "",
           w->has_segments ? " segments" : "", w->short_columns ? " short" : "",
           w->shared_columns ? " shared" : "", w->has_slopes ? " slopes" : "",
           w->has_sinks ? " sinks" : "", w->has_bias_scales ? " bias_scales" : "",
           w->integers ? " integers" : "",
           w->parts == 2   ? " products"
           : w->parts == 1 ? " short products"
                           : "");
}
