/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of counts.c for appends, merges, embeddings and packing. `query` asks for the workspace
 * of an attention call. `refused` is an attention call with an invalid argument.
 */
#include "bench/measure/count_parts.h"

#include <stdlib.h>

enum { HEADS = 4, ROWS = 32, DIM = 64, PARTS = 3, OUTPUTS = 40, VOCABULARY = 50 };
/* Number of floats of each `source` and of `out`. Tables and matrices need fewer. */
enum { FLOATS = HEADS * ROWS * DIM };
/* Bytes of `written` and of `workspace`. No type is wider than binary32. */
enum { MEMORY_BYTES = 4 * FLOATS + 4096 };

/* The memory of a call. A row uses some of the fields. */
struct memory {
    const struct row *row;
    float *source[PARTS], *lses[PARTS], *out;
    void *written;
    void *workspace;
    attnkit_status status; /* status of the last call */
};

static attnkit_exec exec_in(const struct memory *memory)
{
    return (attnkit_exec){.size = sizeof(attnkit_exec),
                          .isa = memory->row->isa->name,
                          .workspace = memory->workspace,
                          .workspace_size = MEMORY_BYTES};
}

/* --------------------------------------------------------------------------------- the calls */

static attnkit_append_args append_args(const struct memory *memory)
{
    const bool has_scales = memory->row->type == ATTNKIT_I8;
    return (attnkit_append_args){.size = sizeof(attnkit_append_args),
                                 .batch = 1,
                                 .heads = HEADS,
                                 .len = ROWS,
                                 .dim = DIM,
                                 .capacity = ROWS,
                                 .src = {.data = memory->source[0]},
                                 .dst = {.data = memory->written, .type = memory->row->type},
                                 .dst_scales = {.data = has_scales ? memory->out : NULL}};
}

static void append(void *arg)
{
    struct memory *const memory = arg;
    const attnkit_append_args args = append_args(memory);
    const attnkit_exec exec = exec_in(memory);
    memory->status = attnkit_append(&args, &exec, NULL);
}

/* Appends K to a cache for decoding, with rotation and in tiles. */
static void append_turned(void *arg)
{
    struct memory *const memory = arg;
    attnkit_append_args args = append_args(memory);
    const attnkit_exec exec = exec_in(memory);
    const attnkit_rotation rotation = {.size = sizeof rotation, .kind = ATTNKIT_ROPE_HALF};
    args.dst.layout = ATTNKIT_TILED;
    args.rotation = &rotation;
    memory->status = attnkit_append(&args, &exec, NULL);
}

static void merge(void *arg)
{
    struct memory *const memory = arg;
    const attnkit_merge_args args = {.size = sizeof args,
                                     .parts = PARTS,
                                     .batch = 1,
                                     .q_heads = HEADS,
                                     .q_len = ROWS,
                                     .value_dim = DIM,
                                     .part_outs = (const float *const *)memory->source,
                                     .part_lses = (const float *const *)memory->lses,
                                     .out = {.data = memory->out}};
    const attnkit_exec exec = exec_in(memory);
    memory->status = attnkit_merge(&args, &exec, NULL);
}

static void embed(void *arg)
{
    struct memory *const memory = arg;
    static const int32_t ids[] = {3, 1, 4, 1, 5, 9, 2, 6, 49, 0};
    const attnkit_embed_args args = {.size = sizeof args,
                                     .count = sizeof ids / sizeof *ids,
                                     .vocab = VOCABULARY,
                                     .dim = DIM,
                                     .ids = {.data = ids, .type = ATTNKIT_INT32},
                                     .table = {.data = memory->source[0]},
                                     .out = {.data = memory->out, .type = memory->row->type}};
    const attnkit_exec exec = exec_in(memory);
    memory->status = attnkit_embed(&args, &exec, NULL);
}

static void pack(void *arg)
{
    struct memory *const memory = arg;
    const attnkit_pack_args args = {.size = sizeof args,
                                    .out_dim = OUTPUTS,
                                    .in_dim = DIM,
                                    .w = {.data = memory->source[0]},
                                    .packed_type = memory->row->type,
                                    .packed = memory->written,
                                    .packed_size = MEMORY_BYTES};
    const attnkit_exec exec = exec_in(memory);
    memory->status = attnkit_pack(&args, &exec, NULL);
}

/* Returns the arguments of the call B1_H4_L1x32_D64, which has little work. */
static attnkit_attention_args attention_args(const struct memory *memory)
{
    return (attnkit_attention_args){.size = sizeof(attnkit_attention_args),
                                    .batch = 1,
                                    .q_heads = HEADS,
                                    .kv_heads = HEADS,
                                    .q_len = 1,
                                    .kv_len = ROWS,
                                    .head_dim = DIM,
                                    .q = {.data = memory->source[0]},
                                    .k = {.data = memory->source[1]},
                                    .v = {.data = memory->source[2]},
                                    .out = {.data = memory->out}};
}

static void query(void *arg)
{
    struct memory *const memory = arg;
    const attnkit_attention_args args = attention_args(memory);
    const attnkit_exec exec = exec_in(memory);
    size_t bytes;
    memory->status = attnkit_attention_workspace(&args, &exec, &bytes, NULL);
}

static void refused(void *arg)
{
    struct memory *const memory = arg;
    attnkit_attention_args args = attention_args(memory);
    const attnkit_exec exec = exec_in(memory);
    char message[ATTNKIT_MESSAGE_SIZE];
    args.q_len = -1;
    const attnkit_status status = attnkit_attention(&args, &exec, message);
    memory->status = status == ATTNKIT_BAD_ARGUMENT ? ATTNKIT_OK : ATTNKIT_BAD_ARGUMENT;
}

static const struct part {
    const char *family, *shape;
    unsigned types;
    void (*call)(void *arg);
} parts[] = {
    {"append", "B1_H4_L32_D64", F32 | F16 | BF16 | I8 | Q8_0, append},
    {"append", "B1_H4_L32_D64_tiles_rope", F32 | F16 | BF16 | I8 | Q8_0, append_turned},
    {"merge", "P3_B1_H4_L32_D64", F32, merge},
    {"embed", "R10_O64", F32 | F16, embed},
    {"pack", "I64_O40", F32 | F16 | BF16 | Q8_0, pack},
    {"query", "B1_H4_L1x32_D64", F32, query},
    {"refused", "B1_H4_L1x32_D64", F32, refused},
};

/* -------------------------------------------------------------------------------- their memory */

static bool take(struct memory *memory)
{
    bool has_all = true;
    for (int i = 0; i < PARTS; i++) {
        memory->source[i] = draw(FLOATS, 1 + (uint64_t)i);
        memory->lses[i] = draw(HEADS * ROWS, 11 + (uint64_t)i);
        has_all = has_all && memory->source[i] && memory->lses[i];
    }
    memory->out = draw(FLOATS, 21);
    memory->written = aligned_alloc(64, whole_lines(MEMORY_BYTES));
    memory->workspace = aligned_alloc(64, whole_lines(MEMORY_BYTES));
    return has_all && memory->out && memory->written && memory->workspace;
}

static void release(struct memory *memory)
{
    for (int i = 0; i < PARTS; i++) {
        free(memory->source[i]);
        free(memory->lses[i]);
    }
    free(memory->out);
    free(memory->written);
    free(memory->workspace);
}

static void run_part(const struct row *row, struct patience patience, struct result *result)
{
    const struct part *const part = row->detail;
    struct memory memory = {.row = row};
    if (take(&memory)) {
        const struct row_call call = {part->call, &memory, NULL, 0};
        measure_calls(row, NULL, patience, &call, result);
        if (memory.status != ATTNKIT_OK)
            row_fails(result, "%s", attnkit_status_string(memory.status));
    } else {
        row_fails(result, "no memory");
    }
    release(&memory);
}

void add_part_rows(struct row_list *rows, const struct isa *isa)
{
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (attnkit_type type = ATTNKIT_F32; type <= ATTNKIT_Q8_0; type++)
            if (parts[i].types & 1u << type) {
                struct row *const row = rows_add(rows, "%s/%s/%s/%s", parts[i].family,
                                                 type_text(type), isa->name, parts[i].shape);
                row->isa = isa;
                row->type = type;
                row->run = run_part;
                row->detail = &parts[i];
            }
}
