/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cases/case.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/attention/attention.h"
#include "dispatch/attention/schedule.h"
#include "kernels/attention/keys.h"
#include "kernels/attention/mask.h"
#include "kernels/scalar/reference.h"
#include "tests/support/memory.h"

enum { Q, K, V, OUT, LSE, TENSORS };

/* --- The axes ------------------------------------------------------------------------------- */

static const int lengths[] = {0,  1,  2,  3,  5,   7,   8,   15,  16,  17,  31,  32,
                              33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1000};

static const int *dims(void)
{
    static int values[134];
    for (int i = 0; i < 130; i++)
        values[i] = i + 1;
    values[130] = 192;
    values[131] = 256;
    values[132] = 512;
    values[133] = 576;
    return values;
}

int axis_values(enum axis axis, const int **values)
{
    static const int counting[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    static const int thread_counts[] = {1, 2, 3, 7};
    switch (axis) {
    case AXIS_HEAD_DIM:
    case AXIS_VALUE_DIM:
        *values = dims();
        return 134;
    case AXIS_Q_LEN:
    case AXIS_KV_LEN:
        *values = lengths;
        return sizeof lengths / sizeof lengths[0];
    case AXIS_THREADS:
        *values = thread_counts;
        return 4;
    case AXIS_GROUP:
        *values = counting + 1;
        return 8;
    case AXIS_BATCH:
        *values = counting + 1;
        return 3;
    case AXIS_KV_HEADS:
        *values = counting + 1;
        return 2;
    default:
        *values = counting;
        return axis == AXIS_MASK     ? MASK_KINDS
               : axis == AXIS_LAYOUT ? LAYOUT_KINDS
               : axis == AXIS_DATA   ? DATA_KINDS
               : axis == AXIS_SCALE  ? 4
                                     : 2;
    }
}

static double rows_of(const struct test_case *c)
{
    return (double)c->value[AXIS_BATCH] * c->value[AXIS_KV_HEADS] * c->value[AXIS_GROUP] *
           c->value[AXIS_Q_LEN];
}

double case_cost(const struct test_case *c)
{
    const double dim_sum = c->value[AXIS_HEAD_DIM] + c->value[AXIS_VALUE_DIM];
    const double pairs = rows_of(c) * c->value[AXIS_KV_LEN];
    const double keys =
        (double)c->value[AXIS_BATCH] * c->value[AXIS_KV_HEADS] * c->value[AXIS_KV_LEN];
    const double exp_cost = 16, element_cost = 10; /* in multiply-adds */
    return pairs * (dim_sum + exp_cost) + (rows_of(c) + keys) * dim_sum * element_cost;
}

bool case_fits_guards(const struct test_case *c)
{
    const double keys =
        (double)c->value[AXIS_BATCH] * c->value[AXIS_KV_HEADS] * c->value[AXIS_KV_LEN];
    return 3 * rows_of(c) + 2 * keys + TENSORS <= MAX_SLOTS;
}

void case_print(const struct test_case *c)
{
    static const char *const names[AXES] = {"D",       "Dv",     "Lq",      "Lkv", "group",
                                            "mask",    "layout", "threads", "B",   "Hkv",
                                            "kv_lens", "data",   "scale"};
    printf("#");
    for (int i = 0; i < AXES; i++)
        printf(" %s=%d", names[i], c->value[i]);
    printf(" seed=%llu\n", (unsigned long long)c->seed);
}

/* --- Placing a tensor ------------------------------------------------------------------------ */

enum {
    OUTPUT_PATTERN = 0xa5,       /* a byte */
    SIGNALLING_NAN = 0x7fa00000, /* the bits of a binary32 number */
};

struct placed {
    char *memory; /* the tensor with its gaps */
    size_t size;  /* size of this memory in bytes; 0 if each row lies in a slot of its own
                     (tests/support/memory.h) */
    int slot;     /* the tensor's first slot */
    char *first;  /* row 0 of head 0 of batch entry 0 */
    int64_t stride[3];
    int64_t count[3];
    int64_t row_bytes;
};

static struct placed placed[TENSORS];

/* Lays the tensor out token-major if `tokens` is true, else head-major. `start` bytes lie before
 * the first row. In the head-major layout, row_gap bytes follow each row, and head_gap bytes more
 * follow each head. */
static void place_in_arena(struct placed *p, int tensor, bool tokens, int row_gap, int head_gap,
                           int start)
{
    int64_t *const s = p->stride;
    const int inner = tokens ? 1 : 2, outer = tokens ? 2 : 1;
    s[inner] = p->row_bytes + row_gap;
    s[outer] = s[inner] * p->count[inner] + head_gap;
    s[0] = s[outer] * p->count[outer];
    p->size = (size_t)(s[0] * p->count[0] + start);
    p->size += (size_t)p->row_bytes + 64; /* bytes after the end that a call must leave alone */
    p->memory = memory_arena(tensor, p->size);
    p->first = p->memory + start;
}

static void reverse(struct placed *p)
{
    for (int i = 0; i < 3; i++) {
        if (p->count[i] > 0)
            p->first += (p->count[i] - 1) * p->stride[i];
        p->stride[i] = -p->stride[i];
    }
}

static void place_in_slots(struct placed *p, int *slot, bool at_end)
{
    const int64_t rows = p->count[0] * p->count[1] * p->count[2];
    p->stride[2] = SLOT_STRIDE;
    p->stride[1] = SLOT_STRIDE * p->count[2];
    p->stride[0] = SLOT_STRIDE * p->count[2] * p->count[1];
    p->memory = memory_slots(*slot, (int)rows);
    p->size = 0;
    p->first = p->memory + (at_end ? SLOT_BYTES - p->row_bytes : 0);
    p->slot = *slot;
    /* A hidden slot separates the tensors. Without this slot, a row after a tensor's last row would
     * be the first row of the next tensor. */
    memory_hide_slots(*slot + (int)rows, 1);
    *slot += (int)rows + 1;
}

static void place(struct placed *p, int tensor, enum layout_kind layout, int *slot)
{
    const bool kv = tensor == K || tensor == V;
    if (layout == BEFORE_GUARD || layout == AFTER_GUARD) {
        place_in_slots(p, slot, layout == BEFORE_GUARD);
    } else if (layout == DENSE || layout == TOKEN_MAJOR) {
        place_in_arena(p, tensor, layout == TOKEN_MAJOR, 0, 0, 0);
    } else if (layout == BROADCAST && kv) {
        const int64_t all[3] = {p->count[0], p->count[1], p->count[2]};
        p->count[0] = p->count[1] = 1;
        place_in_arena(p, tensor, false, 0, 0, 4);
        memcpy(p->count, all, sizeof all);
        p->stride[0] = p->stride[1] = 0;
    } else {
        place_in_arena(p, tensor, false, 4 * (tensor + 1), 4 * (7 - tensor), 4 * (tensor + 1));
        if (layout == REVERSED)
            reverse(p);
    }
}

static char *row_at(const struct placed *p, int64_t b, int64_t h, int64_t i)
{
    return p->first + b * p->stride[0] + h * p->stride[1] + i * p->stride[2];
}

/* Returns the first byte of the slot that holds a row. */
static char *slot_of(const struct placed *p, int64_t b, int64_t h, int64_t i)
{
    return p->memory + (row_at(p, b, h, i) - p->first);
}

/* --- Filling --------------------------------------------------------------------------------- */

/* Fills memory by memcpy, which doubles the filled part at each step. Filling whole pages word by
 * word would take most of a test's time, above all in emulators and sanitizers. */
static void fill_words(char *memory, size_t size, uint32_t word)
{
    const size_t end = size / sizeof word * sizeof word;
    if (end == 0)
        return;
    memcpy(memory, &word, sizeof word);
    for (size_t done = sizeof word, more; done < end; done += more) {
        more = done < end - done ? done : end - done;
        memcpy(memory + done, memory, more);
    }
}

static float special(uint64_t bits)
{
    static const float values[] = {NAN, INFINITY, -INFINITY, -0.0f, 0.0f, 3e38f, -3e38f, 1e-45f};
    return values[bits % 8];
}

static float draw(enum data_kind kind, int tensor, uint64_t *random)
{
    const float u = random_uniform(random);
    switch (kind) {
    case DATA_PEAKED:
        return tensor == Q ? 16.0f * u : u;
    case DATA_TINY:
        return tensor == V ? 0x1p-130f * u : 0x1p-70f * u;
    case DATA_SPECIAL:
        return random_below(random, 400) == 0 ? special(random_bits(random)) : u;
    case DATA_INTEGERS:
        return (float)(int)(3.0f * u);
    case DATA_HUGE:
        return tensor != V ? u : random_below(random, 2) ? FLT_MAX * u : copysignf(FLT_MAX, u);
    default:
        return u;
    }
}

static void fill_row(char *row, int64_t count, const struct test_case *c, uint64_t place)
{
    uint64_t random = c->seed * UINT64_C(0x100000001b3) ^ place;
    const int tensor = (int)(place >> 60);
    for (int64_t d = 0; d < count; d++) {
        const float x = draw((enum data_kind)c->value[AXIS_DATA], tensor, &random);
        memcpy(row + 4 * d, &x, 4);
    }
}

/* Fills rows 0 to seen - 1 of a head. The other rows are unmapped if they lie in slots, and
 * otherwise keep their signalling NaN. */
static void fill_rows(int tensor, int64_t b, int64_t h, int64_t seen, const struct setting *s,
                      const struct test_case *c)
{
    const struct placed *p = &placed[tensor];
    const bool shared = s->shared_kv && tensor != Q;
    for (int64_t i = 0; i < seen; i++) {
        const uint64_t place = (uint64_t)tensor << 60 | (uint64_t)(shared ? 0 : b) << 50 |
                               (uint64_t)(shared ? 0 : h) << 40 | (uint64_t)i;
        fill_row(row_at(p, b, h, i), p->row_bytes / 4, c, place);
    }
    if (p->size == 0) {
        const int64_t first = (b * p->count[1] + h) * p->count[2] + seen;
        memory_hide_slots(p->slot + (int)first, (int)(p->count[2] - seen));
    }
}

static void clear(int tensor)
{
    const struct placed *p = &placed[tensor];
    const uint32_t word = tensor < OUT ? SIGNALLING_NAN : OUTPUT_PATTERN * 0x01010101u;
    if (p->size > 0) {
        fill_words(p->memory, p->size, word);
        return;
    }
    for (int64_t b = 0; b < p->count[0]; b++)
        for (int64_t h = 0; h < p->count[1]; h++)
            for (int64_t i = 0; i < p->count[2]; i++)
                fill_words(slot_of(p, b, h, i), SLOT_BYTES, word);
}

static bool has_no_output(const attnkit_attention_args *args)
{
    return args->batch == 0 || args->q_heads == 0 || args->q_len == 0;
}

static void fill_inputs(const struct setting *s, const struct test_case *c)
{
    struct attention a;
    if (has_no_output(&s->args) || attnkit_attention_problem(&s->args, &a, NULL) != ATTNKIT_OK)
        return;
    for (int64_t b = 0; b < a.batch; b++) {
        const int64_t seen = visible_end(&a, b, a.q_len - 1);
        for (int64_t h = 0; h < s->args.q_heads; h++)
            fill_rows(Q, b, h, s->args.q_len, s, c);
        for (int64_t h = 0; h < a.kv_heads; h++) {
            fill_rows(K, b, h, seen, s, c);
            fill_rows(V, b, h, seen, s, c);
        }
    }
}

/* --- The setting ------------------------------------------------------------------------------ */

static void set_mask(struct setting *s, const struct test_case *c)
{
    const int lq = c->value[AXIS_Q_LEN], lkv = c->value[AXIS_KV_LEN];
    const enum mask_kind mask = (enum mask_kind)c->value[AXIS_MASK];
    static const attnkit_align aligns[] = {ATTNKIT_ALIGN_NONE, ATTNKIT_ALIGN_UPPER_LEFT,
                                           ATTNKIT_ALIGN_BOTTOM_RIGHT};
    uint64_t random = c->seed;
    for (int b = 0; b < c->value[AXIS_BATCH]; b++) {
        s->kv_lens[b] = random_below(&random, lkv + 1);
        const int64_t inside = random_below(&random, lkv + 1);
        s->q_offsets[b] = mask == MASK_OFFSET_IN         ? inside
                          : mask == MASK_OFFSET_NEGATIVE ? -1 - random_below(&random, lq + 1)
                                                         : lkv + inside;
    }
    if (c->value[AXIS_KV_LENS])
        s->groups.visibility.kv_lens = (attnkit_ints){.data = s->kv_lens};
    if (mask == MASK_NONE)
        return;
    s->args.flags |= ATTNKIT_CAUSAL;
    s->args.align = mask <= MASK_BOTTOM_RIGHT ? aligns[mask] : ATTNKIT_ALIGN_OFFSETS;
    if (s->args.align == ATTNKIT_ALIGN_OFFSETS)
        s->args.q_offsets = (attnkit_ints){.data = s->q_offsets};
}

static void set_scale(struct setting *s, int scale)
{
    static const double values[] = {0.0, 0.3, 0.0, -0.07};
    s->args.scale = values[scale];
    if (scale > 0)
        s->args.flags |= ATTNKIT_SCALE_GIVEN;
}

static void set_tensors(struct setting *s)
{
    attnkit_attention_args *a = &s->args;
    const int64_t bytes[TENSORS] = {4 * a->head_dim, 4 * a->head_dim, 4 * a->value_dim,
                                    4 * a->value_dim, 4};
    attnkit_tensor *const tensors[TENSORS] = {&a->q, &a->k, &a->v, &a->out, &a->lse};
    int slot = 0;
    for (int t = 0; t < TENSORS; t++) {
        const bool kv = t == K || t == V;
        placed[t] = (struct placed){
            .count = {a->batch, kv ? a->kv_heads : a->q_heads, kv ? a->kv_len : a->q_len},
            .row_bytes = bytes[t],
        };
        place(&placed[t], t, s->layout, &slot);
        clear(t);
        tensors[t]->data = placed[t].first;
        if (s->layout == DENSE)
            continue;
        tensors[t]->layout = ATTNKIT_STRIDED;
        memcpy(tensors[t]->strides, placed[t].stride, sizeof placed[t].stride);
    }
}

void setting_make(struct setting *s, const struct test_case *c, enum layout_kind layout)
{
    *s = (struct setting){
        .layout = layout,
        .shared_kv = c->value[AXIS_LAYOUT] == BROADCAST,
        .args =
            {
                .size = sizeof s->args,
                .batch = c->value[AXIS_BATCH],
                .q_heads = c->value[AXIS_KV_HEADS] * c->value[AXIS_GROUP],
                .kv_heads = c->value[AXIS_KV_HEADS],
                .q_len = c->value[AXIS_Q_LEN],
                .kv_len = c->value[AXIS_KV_LEN],
                .head_dim = c->value[AXIS_HEAD_DIM],
                .value_dim = c->value[AXIS_VALUE_DIM],
            },
    };
    groups_init(&s->groups);
    groups_hang(&s->args, &s->groups);
    set_mask(s, c);
    set_scale(s, c->value[AXIS_SCALE]);
    set_tensors(s);
    fill_inputs(s, c);
}

/* Returns whether all bytes are the pattern. memcmp compares the memory with itself, shifted by one
 * byte. On CPUs and in emulators, memcmp is faster than a loop over the bytes. */
static bool all_pattern(const char *memory, size_t size)
{
    return size == 0 || ((unsigned char)memory[0] == OUTPUT_PATTERN &&
                         memcmp(memory, memory + 1, size - 1) == 0);
}

static bool take_rows(const struct placed *p, char *to)
{
    bool untouched = true;
    for (int64_t b = 0; b < p->count[0]; b++)
        for (int64_t h = 0; h < p->count[1]; h++)
            for (int64_t i = 0; i < p->count[2]; i++) {
                char *row = row_at(p, b, h, i);
                memcpy(to, row, (size_t)p->row_bytes);
                memset(row, OUTPUT_PATTERN, (size_t)p->row_bytes);
                to += p->row_bytes;
                if (p->size == 0)
                    untouched &= all_pattern(slot_of(p, b, h, i), SLOT_BYTES);
            }
    return untouched && (p->size == 0 || all_pattern(p->memory, p->size / 4 * 4));
}

bool setting_take_result(const struct setting *s, struct result *result)
{
    (void)s;
    const bool out_untouched = take_rows(&placed[OUT], (char *)result->out);
    const bool lse_untouched = take_rows(&placed[LSE], (char *)result->lse);
    return out_untouched && lse_untouched;
}

void setting_end(void)
{
    memory_end();
}

/* --- Results ---------------------------------------------------------------------------------- */

struct result result_new(const attnkit_attention_args *args)
{
    const size_t rows = (size_t)(args->batch * args->q_heads * args->q_len);
    struct result r = {.out_count = rows * (size_t)args->value_dim, .lse_count = rows};
    r.out = malloc(r.out_count * 4 + 4);
    r.lse = malloc(r.lse_count * 4 + 4);
    return r;
}

void result_free(struct result *r)
{
    free(r->out);
    free(r->lse);
}

void result_from_reference(struct result *r, const attnkit_attention_args *args)
{
    struct attention a;
    if (has_no_output(args) || attnkit_attention_problem(args, &a, NULL) != ATTNKIT_OK)
        return;
    const int64_t row = 4 * a.value_dim;
    a.out = (char *)r->out;
    a.out_stride = (struct strides){row * a.q_len * args->q_heads, row * a.q_len, row};
    a.lse = (char *)r->lse;
    a.lse_stride = (struct strides){4 * a.q_len * args->q_heads, 4 * a.q_len, 4};
    attnkit_reference(&a);
}

bool same_bits(const float *a, const float *b, size_t count)
{
    return memcmp(a, b, count * sizeof *a) == 0;
}

bool same_numbers(const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!same_bits(a + i, b + i, 1) && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

static void print_first(const char *name, const float *expected, const float *got, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!same_bits(expected + i, got + i, 1)) {
            printf("# %s[%zu]: expected %a, got %a\n", name, i, (double)expected[i],
                   (double)got[i]);
            return;
        }
}

void result_print_difference(const struct result *expected, const struct result *got)
{
    print_first("out", expected->out, got->out, expected->out_count);
    print_first("lse", expected->lse, got->lse, expected->lse_count);
}

/* Continues an FNV-1a hash of 64 bits over floats. */
static uint64_t hash_floats(uint64_t hash, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        for (int byte = 0; byte < 4; byte++)
            hash = (hash ^ (bits >> 8 * byte & 0xff)) * UINT64_C(0x100000001b3);
    }
    return hash;
}

uint64_t result_hash(const struct result *r)
{
    return hash_floats(hash_floats(UINT64_C(0xcbf29ce484222325), r->out, r->out_count), r->lse,
                       r->lse_count);
}

/* --- Running ---------------------------------------------------------------------------------- */

struct share_of_call {
    const attnkit_attention_args *args;
    attnkit_exec exec;
    attnkit_status status;
    char message[ATTNKIT_MESSAGE_SIZE];
};

static void *run_share(void *arg)
{
    struct share_of_call *share = arg;
    share->status = attnkit_attention(share->args, &share->exec, share->message);
    return NULL;
}

static void demand(attnkit_status status, const char *message)
{
    if (status != ATTNKIT_OK) {
        printf("Bail out! %s: %s\n", attnkit_status_string(status), message);
        fflush(stdout);
        abort();
    }
}

/* Runs attention with a table of kernels, without the public call. */
static void run_table(const attnkit_attention_args *args, const struct kernels *kernels)
{
    struct attention a;
    if (has_no_output(args))
        return;
    demand(attnkit_attention_problem(args, &a, NULL), "attnkit_attention_problem");
    const struct schedule schedule = attnkit_schedule(&a, kernels, 1);
    char *scratch = memory_arena(TENSORS, schedule.scratch + 64);
    scratch += -(uintptr_t)scratch & 63;
    attnkit_run_items(&a, kernels, &schedule, (struct range){0, schedule.items}, scratch);
}

static void run_threads(const attnkit_attention_args *args, const char *isa, int threads)
{
    enum { MOST = 8 };
    char message[ATTNKIT_MESSAGE_SIZE];
    struct share_of_call shares[MOST];
    pthread_t thread[MOST];
    attnkit_exec exec = {.size = sizeof exec, .isa = isa, .threads = threads};
    demand(attnkit_attention_workspace(args, &exec, &exec.workspace_size, message), message);
    exec.workspace = memory_arena(TENSORS, exec.workspace_size + 1);
    for (int i = 0; i < threads; i++) {
        shares[i] = (struct share_of_call){.args = args, .exec = exec};
        shares[i].exec.thread = i;
        if (i > 0 && pthread_create(&thread[i], NULL, run_share, &shares[i]))
            demand(ATTNKIT_UNSUPPORTED, "pthread_create");
    }
    run_share(&shares[0]);
    for (int i = 0; i < threads; i++) {
        if (i > 0)
            pthread_join(thread[i], NULL);
        demand(shares[i].status, shares[i].message);
    }
}

void run_attention(const attnkit_attention_args *args, struct runner runner)
{
    if (runner.kernels)
        run_table(args, runner.kernels);
    else
        run_threads(args, runner.isa, runner.threads);
}

const char *check_layout(const struct test_case *c, enum layout_kind layout, struct runner runner,
                         const struct result *expected, uint64_t hash, further_check then)
{
    struct setting s;
    setting_make(&s, c, layout);
    struct result got = result_new(&s.args);
    run_attention(&s.args, runner);
    const char *wrong = NULL;
    if (!setting_take_result(&s, &got))
        wrong = "bytes outside the rows of out or lse were written";
    else if (expected && !(same_bits(expected->out, got.out, got.out_count) &&
                           same_bits(expected->lse, got.lse, got.lse_count)))
        wrong = "differs from the reference";
    else if (!expected && result_hash(&got) != hash)
        wrong = "differs from the hash";
    else if (then)
        wrong = then(&s, &got, c, runner);
    if (wrong && expected)
        result_print_difference(expected, &got);
    result_free(&got);
    return wrong;
}
