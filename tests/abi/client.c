/* SPDX-License-Identifier: Apache-2.0
 *
 * A client of the shared library. It compiles against any version of the public header. It lists
 * the instruction sets, makes every public call of version 0.1.0 that computes a result, and runs a
 * plan of each call that can be planned. Its attention calls use every group of options. It prints
 * a hash of each result. The hashes must be the same for every pair of header and library.
 */
#include <attnkit.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH = 2,
    HEADS = 4,
    KV_HEADS = 2,
    ROWS = 3,
    KEYS = 20,
    DIM = 8,
    VALUES = 4,
    GROUP = 4, /* number of elements of K that share a scale */
    PAGE = 16, /* number of keys in a page */
    EACH = 2,  /* number of pages of a batch entry */
    PAGES = BATCH * EACH,
    MASK_BYTES = 3, /* number of bytes that hold KEYS bits */
    PACKED_ROWS = 5,
    PACKED_KEYS = 12,
    IN = 8, /* in_dim of a linear map, and d_model of the layer */
    OUT = 5,
    LAYER_HEADS = 2,
    HEAD_DIM = 4,
    NEW = 2,   /* number of new tokens of a batch entry */
    CACHE = 16 /* number of rows of a batch entry in the layer's cache */
};

static char message[ATTNKIT_MESSAGE_SIZE];

static void demand(attnkit_status status, const char *call)
{
    if (status == ATTNKIT_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", call, attnkit_status_string(status), message);
    exit(1);
}

static void *zeros(size_t bytes)
{
    void *const memory = calloc(1, bytes + 1);
    if (memory)
        return memory;
    perror("calloc");
    exit(1);
}

/* Prints the 64-bit FNV-1a hash of a result. */
static void report(const char *name, const void *data, size_t bytes)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
    printf("%s %016llx\n", name, (unsigned long long)hash);
}

/* Ends the program unless the run of a plan has the result of the call. */
static void demand_same(const char *call, const void *a, const void *b, size_t bytes)
{
    if (memcmp(a, b, bytes) == 0)
        return;
    fprintf(stderr, "%s: plan and call differ\n", call);
    exit(1);
}

/* Fills x with numbers between -1 and 1. */
static void fill(float *x, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
}

static attnkit_exec with_workspace(size_t bytes)
{
    attnkit_exec exec;
    attnkit_exec_init(&exec);
    exec.workspace = zeros(bytes);
    exec.workspace_size = bytes;
    return exec;
}

/* --- Instruction sets ----------------------------------------------------------------------- */

static void list_instruction_sets(void)
{
    attnkit_isa_choice choice;
    for (int32_t i = 0; i < attnkit_isa_count(); i++) {
        attnkit_isa_info info;
        attnkit_isa_info_init(&info);
        demand(attnkit_isa_get(i, &info, message), "attnkit_isa_get");
        printf("isa %s: %d %d, needs %s: %s\n", info.name, (int)info.built, (int)info.can_run,
               info.needs, info.reason);
    }
    attnkit_isa_choice_init(&choice);
    demand(attnkit_isa_choose(NULL, &choice, message), "attnkit_isa_choose");
    printf("isa %s and %s: %s\n", choice.prefill, choice.decode, choice.reason);
}

/* --- A cache, and attention over it with every group ---------------------------------------- */

/* A cache with K in tiles of signed bytes and V in rows of 16-bit elements, both in pages. */
struct cache {
    int32_t block_table[PAGES];
    attnkit_pages pages;
    signed char k[PAGES * KV_HEADS * PAGE * DIM];
    float k_scales[PAGES * KV_HEADS * PAGE * DIM / GROUP];
    uint16_t v[PAGES * KV_HEADS * PAGE * VALUES];
    float cos[KEYS * DIM / 2], sin[KEYS * DIM / 2];
};

static void run_append(const attnkit_append_args *args, const attnkit_append_data *data)
{
    size_t bytes;
    void *plan = zeros(attnkit_append_plan_size());
    demand(attnkit_append_workspace(args, NULL, &bytes, message), "attnkit_append_workspace");
    attnkit_exec exec = with_workspace(bytes);
    demand(attnkit_append(args, &exec, message), "attnkit_append");
    demand(attnkit_append_plan(args, NULL, plan, attnkit_append_plan_size(), message),
           "attnkit_append_plan");
    demand(attnkit_append_plan_workspace(plan, &bytes, message), "attnkit_append_plan_workspace");
    attnkit_exec planned = with_workspace(bytes);
    demand(attnkit_append_run(plan, data, &planned, message), "attnkit_append_run");
    free(exec.workspace);
    free(planned.workspace);
    free(plan);
}

static void append_keys(struct cache *c, struct cache *planned, const float *rows)
{
    const attnkit_rotation rotation = {.size = sizeof rotation,
                                       .kind = ATTNKIT_ROPE_HALF,
                                       .dim = DIM / 2,
                                       .cos = c->cos,
                                       .sin = c->sin,
                                       .table_positions = KEYS};
    const attnkit_append_args args = {
        .size = sizeof args,
        .batch = BATCH,
        .heads = KV_HEADS,
        .len = KEYS,
        .dim = DIM,
        .capacity = KEYS,
        .src = {.data = rows},
        .dst = {.data = c->k, .type = ATTNKIT_I8, .layout = ATTNKIT_TILED},
        .dst_scales = {.data = c->k_scales},
        .scale_group = GROUP,
        .pages = &c->pages,
        .rotation = &rotation};
    const attnkit_append_data data = {.size = sizeof data,
                                      .batch = BATCH,
                                      .len = KEYS,
                                      .src = rows,
                                      .dst = planned->k,
                                      .dst_scales = planned->k_scales,
                                      .block_table = c->block_table,
                                      .cos = c->cos,
                                      .sin = c->sin};
    run_append(&args, &data);
}

/* Appends rows of V, rotated by angles that the call computes. append_keys rotates by tables. */
static void append_values(struct cache *c, struct cache *planned, const float *rows)
{
    const attnkit_rotation rotation = {.size = sizeof rotation, .kind = ATTNKIT_ROPE_INTERLEAVED};
    const attnkit_append_args args = {.size = sizeof args,
                                      .batch = BATCH,
                                      .heads = KV_HEADS,
                                      .len = KEYS,
                                      .dim = VALUES,
                                      .capacity = KEYS,
                                      .src = {.data = rows},
                                      .dst = {.data = c->v, .type = ATTNKIT_F16},
                                      .pages = &c->pages,
                                      .rotation = &rotation};
    const attnkit_append_data data = {.size = sizeof data,
                                      .batch = BATCH,
                                      .len = KEYS,
                                      .src = rows,
                                      .dst = planned->v,
                                      .block_table = c->block_table};
    run_append(&args, &data);
}

static struct cache *make_cache(void)
{
    static float k[BATCH * KV_HEADS * KEYS * DIM], v[BATCH * KV_HEADS * KEYS * VALUES];
    static const int32_t table[PAGES] = {3, 1, 0, 2};
    struct cache *const c = zeros(sizeof *c), *const planned = zeros(sizeof *planned);
    memcpy(c->block_table, table, sizeof table);
    attnkit_pages_init(&c->pages);
    c->pages.block_table = c->block_table;
    c->pages.block_table_stride = EACH;
    c->pages.page_size = PAGE;
    c->pages.pages = PAGES;
    fill(k, sizeof k / sizeof *k, 1);
    fill(v, sizeof v / sizeof *v, 2);
    fill(c->cos, sizeof c->cos / sizeof *c->cos, 3);
    fill(c->sin, sizeof c->sin / sizeof *c->sin, 4);
    append_keys(c, planned, k);
    append_values(c, planned, v);
    demand_same("append of K", c->k, planned->k, sizeof c->k);
    demand_same("append of scales", c->k_scales, planned->k_scales, sizeof c->k_scales);
    demand_same("append of V", c->v, planned->v, sizeof c->v);
    report("append of K", c->k, sizeof c->k);
    report("append of scales", c->k_scales, sizeof c->k_scales);
    report("append of V", c->v, sizeof c->v);
    free(planned);
    return c;
}

static attnkit_exec workspace_of(const attnkit_attention_args *args)
{
    size_t bytes;
    demand(attnkit_attention_workspace(args, NULL, &bytes, message), "attnkit_attention_workspace");
    return with_workspace(bytes);
}

static void run_attention(const attnkit_attention_args *args, const attnkit_attention_data *data)
{
    size_t bytes;
    void *plan = zeros(attnkit_attention_plan_size());
    attnkit_exec exec = workspace_of(args);
    demand(attnkit_attention(args, &exec, message), "attnkit_attention");
    demand(attnkit_attention_plan(args, NULL, plan, attnkit_attention_plan_size(), message),
           "attnkit_attention_plan");
    demand(attnkit_attention_plan_workspace(plan, &bytes, message),
           "attnkit_attention_plan_workspace");
    attnkit_exec planned = with_workspace(bytes);
    demand(attnkit_attention_run(plan, data, &planned, message), "attnkit_attention_run");
    free(exec.workspace);
    free(planned.workspace);
    free(plan);
}

/* The arrays of lengths, positions, segment ids, masks, score mods, sinks and seeds. */
struct options {
    int32_t kv_lens[BATCH], q_offsets[BATCH], q_ids[BATCH * ROWS], kv_ids[BATCH * KEYS];
    unsigned char mask[BATCH * HEADS * ROWS * KEYS], bits[BATCH * HEADS * ROWS * MASK_BYTES];
    float bias[BATCH * HEADS * ROWS * KEYS], slopes[HEADS], sinks[HEADS];
    uint64_t seeds[BATCH];
};

static void fill_options(struct options *o)
{
    memset(o, 0, sizeof *o);
    fill(o->bias, sizeof o->bias / sizeof *o->bias, 6);
    fill(o->slopes, HEADS, 7);
    fill(o->sinks, HEADS, 8);
    for (size_t i = 0; i < sizeof o->mask; i++)
        o->mask[i] = i % 7 > 0;
    for (size_t i = 0; i < sizeof o->bits; i++)
        o->bits[i] = (unsigned char)(i * 37 % 5 == 0 ? 0x22 : 0);
    for (int b = 0; b < BATCH; b++) {
        o->kv_lens[b] = KEYS - 2 * b;
        o->q_offsets[b] = KEYS - ROWS - b;
        o->seeds[b] = UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)(b + 1);
        for (int i = 0; i < ROWS; i++)
            o->q_ids[b * ROWS + i] = i % 2;
        for (int j = 0; j < KEYS; j++)
            o->kv_ids[b * KEYS + j] = j / 3 % 2;
    }
}

struct result {
    float out[BATCH * HEADS * ROWS * VALUES], lse[BATCH * HEADS * ROWS];
    float weights[BATCH * HEADS * ROWS * KEYS];
};

static void attend_with_every_group(const struct cache *c)
{
    static float q[BATCH * HEADS * ROWS * DIM];
    static struct options o;
    static struct result result, planned;
    fill(q, sizeof q / sizeof *q, 5);
    fill_options(&o);
    const attnkit_kv_storage storage = {.size = sizeof storage,
                                        .pages = &c->pages,
                                        .k_scales = {.data = c->k_scales},
                                        .k_scale_group = GROUP};
    const attnkit_window window = {.size = sizeof window, .left = 13, .right = -1, .keep_first = 2};
    const attnkit_visibility visibility = {
        .size = sizeof visibility,
        .kv_lens = {.data = o.kv_lens, .type = ATTNKIT_INT32},
        .window = &window,
        .q_segment_ids = o.q_ids,
        .kv_segment_ids = o.kv_ids,
        .mask = {.data = o.mask, .type = ATTNKIT_BOOL},
        .mask_bits = {.data = o.bits, .type = ATTNKIT_BITS},
        .mask_kind = ATTNKIT_MASK_ATTEND,
        .mask_bits_kind = ATTNKIT_MASK_IGNORE,
    };
    const attnkit_score_mods scores = {.size = sizeof scores,
                                       .softcap = 5.0,
                                       .bias = {.data = o.bias},
                                       .alibi_slopes = o.slopes,
                                       .sinks = o.sinks,
                                       .dropout = 0.25,
                                       .dropout_seeds = o.seeds};
    const attnkit_states states = {.size = sizeof states};
    const attnkit_weights_out weights = {.size = sizeof weights,
                                         .weights = {.data = result.weights},
                                         .kind = ATTNKIT_WEIGHTS_SOFTMAX};
    const attnkit_attention_args args = {
        .size = sizeof args,
        .flags = ATTNKIT_CAUSAL | ATTNKIT_SCALE_GIVEN,
        .align = ATTNKIT_ALIGN_OFFSETS,
        .batch = BATCH,
        .q_heads = HEADS,
        .kv_heads = KV_HEADS,
        .q_len = ROWS,
        .kv_len = KEYS,
        .head_dim = DIM,
        .value_dim = VALUES,
        .scale = 0.7,
        .q = {.data = q},
        .k = {.data = c->k, .type = ATTNKIT_I8, .layout = ATTNKIT_TILED},
        .v = {.data = c->v, .type = ATTNKIT_F16},
        .out = {.data = result.out},
        .lse = {.data = result.lse},
        .q_offsets = {.data = o.q_offsets, .type = ATTNKIT_INT32},
        .storage = &storage,
        .visibility = &visibility,
        .scores = &scores,
        .states = &states,
        .weights = &weights,
    };
    const attnkit_attention_group_data groups = {.size = sizeof groups,
                                                 .k_scales = c->k_scales,
                                                 .q_segment_ids = o.q_ids,
                                                 .kv_segment_ids = o.kv_ids,
                                                 .mask = o.mask,
                                                 .mask_bits = o.bits,
                                                 .bias = o.bias,
                                                 .alibi_slopes = o.slopes,
                                                 .sinks = o.sinks,
                                                 .dropout_seeds = o.seeds,
                                                 .weights = planned.weights};
    const attnkit_attention_data data = {.size = sizeof data,
                                         .batch = BATCH,
                                         .q_len = ROWS,
                                         .kv_len = KEYS,
                                         .q = q,
                                         .k = c->k,
                                         .v = c->v,
                                         .out = planned.out,
                                         .lse = planned.lse,
                                         .kv_lens = o.kv_lens,
                                         .q_offsets = o.q_offsets,
                                         .block_table = c->block_table,
                                         .groups = &groups};
    run_attention(&args, &data);
    demand_same("attention", &result, &planned, sizeof result);
    report("attention", &result, sizeof result);
}

/* --- Packed sequences, to a state and on to a result ---------------------------------------- */

struct packed_state {
    double sum[HEADS * PACKED_ROWS], out[HEADS * PACKED_ROWS * DIM];
    float max[HEADS * PACKED_ROWS];
};

static attnkit_state state_of(struct packed_state *s)
{
    const attnkit_state state = {s->max, s->sum, s->out};
    return state;
}

static void attend_from_state(const struct packed_state *from, const attnkit_ints ends)
{
    static float q[HEADS * PACKED_ROWS * DIM], out[2][HEADS * PACKED_ROWS * DIM];
    const attnkit_kv_storage storage = {.size = sizeof storage, .cu_seqlens_q = ends};
    const attnkit_states states = {.size = sizeof states,
                                   .first_key = ATTNKIT_CHUNK_KEYS,
                                   .state_in = state_of((struct packed_state *)from)};
    const attnkit_attention_args args = {.size = sizeof args,
                                         .batch = BATCH,
                                         .q_heads = HEADS,
                                         .kv_heads = KV_HEADS,
                                         .q_len = PACKED_ROWS,
                                         .head_dim = DIM,
                                         .q = {.data = q},
                                         .out = {.data = out[0]},
                                         .storage = &storage,
                                         .states = &states};
    const attnkit_attention_group_data groups = {.size = sizeof groups,
                                                 .state_in = states.state_in};
    const attnkit_attention_data data = {.size = sizeof data,
                                         .batch = BATCH,
                                         .q_len = PACKED_ROWS,
                                         .q = q,
                                         .out = out[1],
                                         .cu_seqlens_q = ends.data,
                                         .groups = &groups};
    run_attention(&args, &data);
    demand_same("attention from a state", out[0], out[1], sizeof out[0]);
    report("attention from a state", out[0], sizeof out[0]);
}

static void attend_to_packed_sequences(void)
{
    static const int64_t q_ends[BATCH + 1] = {0, 2, PACKED_ROWS};
    static const int32_t kv_ends[BATCH + 1] = {0, 7, PACKED_KEYS};
    static float q[HEADS * PACKED_ROWS * DIM], k[KV_HEADS * PACKED_KEYS * DIM],
        v[KV_HEADS * PACKED_KEYS * DIM];
    static struct packed_state result, planned;
    fill(q, sizeof q / sizeof *q, 9);
    fill(k, sizeof k / sizeof *k, 10);
    fill(v, sizeof v / sizeof *v, 11);
    const attnkit_kv_storage storage = {.size = sizeof storage,
                                        .cu_seqlens_q = {.data = q_ends},
                                        .cu_seqlens_kv = {.data = kv_ends, .type = ATTNKIT_INT32}};
    const attnkit_states states = {.size = sizeof states, .state_out = state_of(&result)};
    const attnkit_attention_args args = {.size = sizeof args,
                                         .batch = BATCH,
                                         .q_heads = HEADS,
                                         .kv_heads = KV_HEADS,
                                         .q_len = PACKED_ROWS,
                                         .kv_len = PACKED_KEYS,
                                         .head_dim = DIM,
                                         .q = {.data = q},
                                         .k = {.data = k},
                                         .v = {.data = v},
                                         .storage = &storage,
                                         .states = &states};
    const attnkit_attention_group_data groups = {.size = sizeof groups,
                                                 .state_out = state_of(&planned)};
    const attnkit_attention_data data = {.size = sizeof data,
                                         .batch = BATCH,
                                         .q_len = PACKED_ROWS,
                                         .kv_len = PACKED_KEYS,
                                         .q = q,
                                         .k = k,
                                         .v = v,
                                         .cu_seqlens_q = q_ends,
                                         .cu_seqlens_kv = kv_ends,
                                         .groups = &groups};
    run_attention(&args, &data);
    demand_same("attention to a state", &result, &planned, sizeof result);
    report("attention to a state", &result, sizeof result);
    attend_from_state(&result, storage.cu_seqlens_q);
}

static void merge(void)
{
    static float outs[2][ROWS * VALUES], lses[2][ROWS], out[ROWS * VALUES], lse[ROWS];
    const float *const part_outs[2] = {outs[0], outs[1]}, *const part_lses[2] = {lses[0], lses[1]};
    fill(outs[0], 2 * ROWS * VALUES, 12);
    fill(lses[0], 2 * ROWS, 13);
    const attnkit_merge_args args = {.size = sizeof args,
                                     .parts = 2,
                                     .batch = 1,
                                     .q_heads = 1,
                                     .q_len = ROWS,
                                     .value_dim = VALUES,
                                     .part_outs = part_outs,
                                     .part_lses = part_lses,
                                     .out = {.data = out},
                                     .lse = {.data = lse}};
    demand(attnkit_merge(&args, NULL, message), "attnkit_merge");
    report("merge", out, sizeof out);
    report("merge, lse", lse, sizeof lse);
}

/* --- Linear maps and embeddings ------------------------------------------------------------- */

static void *packed_matrix(attnkit_pack_args *args)
{
    demand(attnkit_packed_size(args, &args->packed_size, message), "attnkit_packed_size");
    void *const memory = zeros(args->packed_size + 64);
    args->packed = (char *)memory + (64 - (uintptr_t)memory % 64) % 64;
    demand(attnkit_pack(args, NULL, message), "attnkit_pack");
    report("pack", args->packed, args->packed_size);
    return memory;
}

static void map(void)
{
    static float x[ROWS * IN], w[OUT * IN], bias[OUT], y[2][ROWS * OUT];
    size_t bytes;
    fill(x, sizeof x / sizeof *x, 14);
    fill(w, sizeof w / sizeof *w, 15);
    fill(bias, OUT, 16);
    attnkit_pack_args pack = {.size = sizeof pack,
                              .out_dim = OUT,
                              .in_dim = IN,
                              .w = {.data = w},
                              .packed_type = ATTNKIT_BF16};
    void *const packed = packed_matrix(&pack), *const plan = zeros(attnkit_linear_plan_size());
    const attnkit_linear_args args = {.size = sizeof args,
                                      .rows = ROWS,
                                      .in_dim = IN,
                                      .out_dim = OUT,
                                      .x = {.data = x},
                                      .w = {.data = pack.packed, .type = ATTNKIT_BF16},
                                      .y = {.data = y[0]},
                                      .bias = bias};
    demand(attnkit_linear_workspace(&args, NULL, &bytes, message), "attnkit_linear_workspace");
    attnkit_exec exec = with_workspace(bytes);
    demand(attnkit_linear(&args, &exec, message), "attnkit_linear");
    demand(attnkit_linear_plan(&args, NULL, plan, attnkit_linear_plan_size(), message),
           "attnkit_linear_plan");
    demand(attnkit_linear_plan_workspace(plan, &bytes, message), "attnkit_linear_plan_workspace");
    attnkit_exec planned = with_workspace(bytes);
    const attnkit_linear_data data = {
        .size = sizeof data, .rows = ROWS, .x = x, .w = pack.packed, .bias = bias, .y = y[1]};
    demand(attnkit_linear_run(plan, &data, &planned, message), "attnkit_linear_run");
    demand_same("linear", y[0], y[1], sizeof y[0]);
    report("linear", y[0], sizeof y[0]);
    free(exec.workspace);
    free(planned.workspace);
    free(plan);
    free(packed);
}

static void embed(void)
{
    static const int32_t ids[] = {2, 0, -1, 1};
    static float table[3 * DIM];
    static uint16_t out[4 * DIM];
    fill(table, sizeof table / sizeof *table, 17);
    const attnkit_embed_args args = {.size = sizeof args,
                                     .flags = ATTNKIT_PADDING_GIVEN,
                                     .count = 4,
                                     .vocab = 3,
                                     .dim = DIM,
                                     .ids = {.data = ids, .type = ATTNKIT_INT32},
                                     .table = {.data = table},
                                     .out = {.data = out, .type = ATTNKIT_BF16},
                                     .padding_id = -1};
    demand(attnkit_embed(&args, NULL, message), "attnkit_embed");
    report("embed", out, sizeof out);
}

/* --- The layer ------------------------------------------------------------------------------ */

struct layer_result {
    float out[BATCH * NEW * IN], k[BATCH * CACHE * HEAD_DIM], v[BATCH * CACHE * HEAD_DIM];
    float weights[BATCH * NEW * CACHE];
};

static char *packed_layer(size_t *bytes)
{
    static _Alignas(64) char packed[1 << 15];
    static float w[4][LAYER_HEADS * HEAD_DIM * IN], bias[IN];
    fill(w[0], sizeof w / sizeof w[0][0], 18);
    fill(bias, IN, 19);
    const attnkit_layer_weights weights = {.size = sizeof weights,
                                           .d_model = IN,
                                           .q_heads = LAYER_HEADS,
                                           .kv_heads = 1,
                                           .head_dim = HEAD_DIM,
                                           .w_q = w[0],
                                           .w_k = w[1],
                                           .w_v = w[2],
                                           .w_o = w[3],
                                           .b_o = bias};
    demand(attnkit_layer_packed_size(&weights, bytes, message), "attnkit_layer_packed_size");
    demand(attnkit_layer_pack(&weights, packed, sizeof packed, NULL, message),
           "attnkit_layer_pack");
    return packed;
}

static void run_layer(const attnkit_layer_args *args, const attnkit_layer_data *data)
{
    size_t bytes;
    void *const plan = zeros(attnkit_layer_plan_size());
    demand(attnkit_layer_workspace(args, NULL, &bytes, message), "attnkit_layer_workspace");
    attnkit_exec exec = with_workspace(bytes);
    demand(attnkit_layer(args, &exec, message), "attnkit_layer");
    demand(attnkit_layer_plan(args, NULL, plan, attnkit_layer_plan_size(), message),
           "attnkit_layer_plan");
    demand(attnkit_layer_plan_workspace(plan, &bytes, message), "attnkit_layer_plan_workspace");
    attnkit_exec planned = with_workspace(bytes);
    demand(attnkit_layer_run(plan, data, &planned, message), "attnkit_layer_run");
    free(exec.workspace);
    free(planned.workspace);
    free(plan);
}

static void run_a_layer(void)
{
    static const int64_t cached[BATCH] = {2, 0};
    static float x[BATCH * NEW * IN], cos[CACHE * HEAD_DIM / 2], sin[CACHE * HEAD_DIM / 2];
    static struct layer_result result, planned;
    size_t packed_size;
    char *const packed = packed_layer(&packed_size);
    fill(x, sizeof x / sizeof *x, 20);
    fill(cos, sizeof cos / sizeof *cos, 21);
    fill(sin, sizeof sin / sizeof *sin, 22);
    const attnkit_rotation rotation = {.size = sizeof rotation,
                                       .kind = ATTNKIT_ROPE_INTERLEAVED,
                                       .cos = cos,
                                       .sin = sin,
                                       .table_positions = CACHE};
    const attnkit_attention_args attention = {.size = sizeof attention,
                                              .flags = ATTNKIT_CAUSAL,
                                              .align = ATTNKIT_ALIGN_BOTTOM_RIGHT,
                                              .kv_len = CACHE,
                                              .k = {.data = result.k},
                                              .v = {.data = result.v}};
    const attnkit_layer_args args = {.size = sizeof args,
                                     .packed = packed,
                                     .packed_size = packed_size,
                                     .batch = BATCH,
                                     .q_len = NEW,
                                     .x = {.data = x},
                                     .out = {.data = result.out},
                                     .rotation = &rotation,
                                     .attention = &attention,
                                     .cached = {.data = cached},
                                     .mean_weights = result.weights};
    const attnkit_attention_data attention_data = {
        .size = sizeof attention_data, .kv_len = CACHE, .k = planned.k, .v = planned.v};
    const attnkit_layer_data data = {.size = sizeof data,
                                     .packed = packed,
                                     .packed_size = packed_size,
                                     .batch = BATCH,
                                     .q_len = NEW,
                                     .x = x,
                                     .out = planned.out,
                                     .cached = cached,
                                     .cos = cos,
                                     .sin = sin,
                                     .attention = &attention_data,
                                     .mean_weights = planned.weights};
    run_layer(&args, &data);
    demand_same("layer", &result, &planned, sizeof result);
    report("layer", &result, sizeof result);
}

int main(void)
{
    printf("attnkit %s\n", attnkit_version());
    list_instruction_sets();
    struct cache *const cache = make_cache();
    attend_with_every_group(cache);
    free(cache);
    attend_to_packed_sequences();
    merge();
    map();
    embed();
    run_a_layer();
    return 0;
}
