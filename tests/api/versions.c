/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the sizes of public structs. The tests pass each struct with a `size` field as other
 * versions of the header would pass the struct. The library must refuse a struct that is shorter
 * than in the first version. A struct that the library reads may be longer than in this version if
 * all further bytes are zero. If a further byte is not zero, the library must refuse the call with
 * a message that names the struct. A struct that the library fills may also be longer: the library
 * sets the further bytes to zero.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attnkit.h"
#include "tests/support/groups.h"

enum {
    LONGEST = 4096, /* bytes of the longest struct that is accepted */
    DIM = 4,        /* elements in a row of q, k, v, x, y and out */
    ROOM = 8,       /* rows of caches and tables */
    PATTERN = 0xa5,
};

/* Every public struct with a `size` field, set for small valid calls. */
struct fixture {
    attnkit_exec exec;
    attnkit_attention_args attention;
    struct groups groups;
    attnkit_attention_data attention_data;
    attnkit_attention_group_data group_data;
    attnkit_merge_args merge;
    attnkit_append_args append;
    attnkit_pages append_pages;
    attnkit_rotation rotation;
    attnkit_append_data append_data;
    attnkit_pack_args pack;
    attnkit_linear_args linear;
    attnkit_linear_data linear_data;
    attnkit_embed_args embed;
    attnkit_layer_weights layer_weights;
    attnkit_layer_args layer;
    attnkit_attention_args layer_attention;
    attnkit_rotation layer_rotation;
    attnkit_layer_data layer_data;
    attnkit_attention_data layer_attention_data;
    attnkit_isa_info info;
    attnkit_isa_choice choice;
    attnkit_unit_info unit;
};

/* The tensors, tables and arrays to which the structs of the fixture point. */
static struct {
    _Alignas(64) char packed[4096], packed_layer[8192];
    float row[DIM], matrix[DIM * DIM], k[ROOM * DIM], v[ROOM * DIM], out[DIM], lse[1], table[ROOM];
    int64_t zero, one;
    int32_t block;
    const float *part;
    const float *part_lse;
} memory = {.one = 1};

static _Alignas(16) char plan[1 << 16];
static char workspace[1 << 20];

static void set_attention(struct fixture *f)
{
    attnkit_attention_args *const a = &f->attention;
    attnkit_attention_args_init(a);
    a->batch = a->q_heads = a->kv_heads = a->q_len = a->kv_len = 1;
    a->head_dim = DIM;
    a->align = ATTNKIT_ALIGN_UPPER_LEFT;
    a->q.data = memory.row;
    a->k.data = memory.k;
    a->v.data = memory.v;
    a->out.data = memory.out;
    groups_init(&f->groups);
    groups_set_window(a, &f->groups, 0, 0, 0);
    attnkit_attention_data_init(&f->attention_data);
    attnkit_attention_group_data_init(&f->group_data);
    f->attention_data.batch = f->attention_data.q_len = f->attention_data.kv_len = 1;
    f->attention_data.q = memory.row;
    f->attention_data.k = memory.k;
    f->attention_data.v = memory.v;
    f->attention_data.out = memory.out;
    f->attention_data.groups = &f->group_data;
}

static void set_merge(struct fixture *f)
{
    memory.part = memory.row;
    memory.part_lse = memory.table;
    attnkit_merge_args_init(&f->merge);
    f->merge.parts = f->merge.batch = f->merge.q_heads = f->merge.q_len = 1;
    f->merge.value_dim = DIM;
    f->merge.part_outs = &memory.part;
    f->merge.part_lses = &memory.part_lse;
    f->merge.out.data = memory.out;
}

static void set_rotation(attnkit_rotation *r)
{
    attnkit_rotation_init(r);
    r->kind = ATTNKIT_ROPE_HALF;
    r->dim = 2;
    r->cos = r->sin = memory.table;
    r->table_positions = ROOM;
}

static void set_append(struct fixture *f)
{
    attnkit_append_args *const a = &f->append;
    attnkit_append_args_init(a);
    attnkit_pages_init(&f->append_pages);
    set_rotation(&f->rotation);
    f->append_pages.block_table = &memory.block;
    f->append_pages.page_size = ROOM;
    f->append_pages.pages = 1;
    a->batch = a->heads = a->len = 1;
    a->dim = DIM;
    a->capacity = ROOM;
    a->src.data = memory.row;
    a->dst.data = memory.k;
    a->pages = &f->append_pages;
    a->rotation = &f->rotation;
    attnkit_append_data_init(&f->append_data);
    f->append_data.batch = f->append_data.len = 1;
    f->append_data.src = memory.row;
    f->append_data.dst = memory.k;
    f->append_data.block_table = &memory.block;
    f->append_data.cos = f->append_data.sin = memory.table;
}

static void set_linear(struct fixture *f)
{
    attnkit_pack_args_init(&f->pack);
    f->pack.in_dim = f->pack.out_dim = DIM;
    f->pack.w.data = memory.matrix;
    f->pack.packed = memory.packed;
    f->pack.packed_size = sizeof memory.packed;
    attnkit_linear_args_init(&f->linear);
    f->linear.rows = 1;
    f->linear.in_dim = f->linear.out_dim = DIM;
    f->linear.x.data = memory.row;
    f->linear.w.data = memory.packed;
    f->linear.y.data = memory.out;
    attnkit_linear_data_init(&f->linear_data);
    f->linear_data.rows = 1;
    f->linear_data.x = memory.row;
    f->linear_data.w = memory.packed;
    f->linear_data.y = memory.out;
    attnkit_embed_args_init(&f->embed);
    f->embed.count = f->embed.vocab = 1;
    f->embed.dim = DIM;
    f->embed.ids.data = &memory.zero;
    f->embed.table.data = memory.matrix;
    f->embed.out.data = memory.out;
}

/* Sets a layer whose cache has no keys yet. */
static void set_layer(struct fixture *f)
{
    attnkit_layer_weights *const w = &f->layer_weights;
    attnkit_layer_args *const l = &f->layer;
    attnkit_layer_data *const data = &f->layer_data;
    attnkit_layer_weights_init(w);
    w->d_model = DIM;
    w->q_heads = 1;
    w->w_q = w->w_k = w->w_v = w->w_o = memory.matrix;
    attnkit_attention_args_init(&f->layer_attention);
    f->layer_attention.kv_len = ROOM;
    f->layer_attention.k.data = memory.k;
    f->layer_attention.v.data = memory.v;
    set_rotation(&f->layer_rotation);
    attnkit_layer_args_init(l);
    l->packed = memory.packed_layer;
    l->packed_size = sizeof memory.packed_layer;
    l->batch = l->q_len = 1;
    l->x.data = memory.row;
    l->out.data = memory.out;
    l->rotation = &f->layer_rotation;
    l->attention = &f->layer_attention;
    l->cached.data = &memory.zero;
    attnkit_attention_data_init(&f->layer_attention_data);
    f->layer_attention_data.kv_len = ROOM;
    f->layer_attention_data.k = memory.k;
    f->layer_attention_data.v = memory.v;
    attnkit_layer_data_init(data);
    data->packed = memory.packed_layer;
    data->packed_size = sizeof memory.packed_layer;
    data->batch = data->q_len = 1;
    data->x = memory.row;
    data->out = memory.out;
    data->cached = &memory.zero;
    data->cos = data->sin = memory.table;
    data->attention = &f->layer_attention_data;
}

static void set_fixture(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    attnkit_exec_init(&f->exec);
    f->exec.workspace = workspace;
    f->exec.workspace_size = sizeof workspace;
    set_attention(f);
    set_merge(f);
    set_append(f);
    set_linear(f);
    set_layer(f);
    attnkit_isa_info_init(&f->info);
    attnkit_isa_choice_init(&f->choice);
    attnkit_unit_info_init(&f->unit);
    assert_int_equal(attnkit_pack(&f->pack, NULL, NULL), ATTNKIT_OK);
    assert_int_equal(attnkit_layer_pack(&f->layer_weights, memory.packed_layer,
                                        sizeof memory.packed_layer, NULL, NULL),
                     ATTNKIT_OK);
}

/* --- Calls with one struct of the fixture replaced ------------------------------------------ */

typedef attnkit_status (*user)(struct fixture *f, const void *theirs, char *message);

static attnkit_status attention_args(struct fixture *f, const void *theirs, char *message)
{
    return attnkit_attention(theirs, &f->exec, message);
}

static attnkit_status attention_query(struct fixture *f, const void *theirs, char *message)
{
    size_t bytes;
    return attnkit_attention_workspace(theirs, &f->exec, &bytes, message);
}

static attnkit_status attention_plan(struct fixture *f, const void *theirs, char *message)
{
    return attnkit_attention_plan(theirs, &f->exec, plan, sizeof plan, message);
}

static attnkit_status attention_storage(struct fixture *f, const void *theirs, char *message)
{
    f->attention.storage = theirs;
    return attnkit_attention(&f->attention, &f->exec, message);
}

static attnkit_status attention_pages(struct fixture *f, const void *theirs, char *message)
{
    f->groups.storage.pages = theirs;
    return attnkit_attention(&f->attention, &f->exec, message);
}

static attnkit_status attention_visibility(struct fixture *f, const void *theirs, char *message)
{
    f->attention.visibility = theirs;
    return attnkit_attention(&f->attention, &f->exec, message);
}

static attnkit_status attention_window(struct fixture *f, const void *theirs, char *message)
{
    f->groups.visibility.window = theirs;
    return attnkit_attention(&f->attention, &f->exec, message);
}

static attnkit_status attention_scores(struct fixture *f, const void *theirs, char *message)
{
    f->attention.scores = theirs;
    return attnkit_attention(&f->attention, &f->exec, message);
}

static attnkit_status attention_states(struct fixture *f, const void *theirs, char *message)
{
    f->attention.states = theirs;
    return attnkit_attention(&f->attention, &f->exec, message);
}

static attnkit_status attention_weights(struct fixture *f, const void *theirs, char *message)
{
    f->attention.weights = theirs;
    return attnkit_attention(&f->attention, &f->exec, message);
}

static attnkit_status run_attention(struct fixture *f, const attnkit_attention_data *data,
                                    const attnkit_exec *exec, char *message)
{
    const attnkit_status status =
        attnkit_attention_plan(&f->attention, &f->exec, plan, sizeof plan, message);
    return status == ATTNKIT_OK ? attnkit_attention_run(plan, data, exec, message) : status;
}

static attnkit_status attention_data(struct fixture *f, const void *theirs, char *message)
{
    return run_attention(f, theirs, &f->exec, message);
}

static attnkit_status attention_group_data(struct fixture *f, const void *theirs, char *message)
{
    f->attention_data.groups = theirs;
    return run_attention(f, &f->attention_data, &f->exec, message);
}

static attnkit_status attention_exec(struct fixture *f, const void *theirs, char *message)
{
    return attnkit_attention(&f->attention, theirs, message);
}

static attnkit_status attention_run_exec(struct fixture *f, const void *theirs, char *message)
{
    return run_attention(f, &f->attention_data, theirs, message);
}

static attnkit_status merge_args(struct fixture *f, const void *theirs, char *message)
{
    return attnkit_merge(theirs, &f->exec, message);
}

static attnkit_status merge_exec(struct fixture *f, const void *theirs, char *message)
{
    return attnkit_merge(&f->merge, theirs, message);
}

static attnkit_status append_args(struct fixture *f, const void *theirs, char *message)
{
    return attnkit_append(theirs, &f->exec, message);
}

static attnkit_status append_query(struct fixture *f, const void *theirs, char *message)
{
    size_t bytes;
    return attnkit_append_workspace(theirs, &f->exec, &bytes, message);
}

static attnkit_status append_plan(struct fixture *f, const void *theirs, char *message)
{
    return attnkit_append_plan(theirs, &f->exec, plan, sizeof plan, message);
}

static attnkit_status append_pages(struct fixture *f, const void *theirs, char *message)
{
    f->append.pages = theirs;
    return attnkit_append(&f->append, &f->exec, message);
}

static attnkit_status append_rotation(struct fixture *f, const void *theirs, char *message)
{
    f->append.rotation = theirs;
    return attnkit_append(&f->append, &f->exec, message);
}

static attnkit_status append_data(struct fixture *f, const void *theirs, char *message)
{
    const attnkit_status status =
        attnkit_append_plan(&f->append, &f->exec, plan, sizeof plan, message);
    return status == ATTNKIT_OK ? attnkit_append_run(plan, theirs, &f->exec, message) : status;
}

static attnkit_status append_exec(struct fixture *f, const void *theirs, char *message)
{
    return attnkit_append(&f->append, theirs, message);
}

static attnkit_status packed_size(struct fixture *f, const void *theirs, char *message)
{
    size_t bytes;
    (void)f;
    return attnkit_packed_size(theirs, &bytes, message);
}

static attnkit_status pack_args(struct fixture *f, const void *theirs, char *message)
{
    return attnkit_pack(theirs, &f->exec, message);
}

static attnkit_status pack_exec(struct fixture *f, const void *theirs, char *message)
{
    return attnkit_pack(&f->pack, theirs, message);
}

static attnkit_status linear_args(struct fixture *f, const void *theirs, char *message)
{
    return attnkit_linear(theirs, &f->exec, message);
}

static attnkit_status linear_query(struct fixture *f, const void *theirs, char *message)
{
    size_t bytes;
    return attnkit_linear_workspace(theirs, &f->exec, &bytes, message);
}

static attnkit_status linear_plan(struct fixture *f, const void *theirs, char *message)
{
    return attnkit_linear_plan(theirs, &f->exec, plan, sizeof plan, message);
}

static attnkit_status linear_data(struct fixture *f, const void *theirs, char *message)
{
    const attnkit_status status =
        attnkit_linear_plan(&f->linear, &f->exec, plan, sizeof plan, message);
    return status == ATTNKIT_OK ? attnkit_linear_run(plan, theirs, &f->exec, message) : status;
}

static attnkit_status linear_exec(struct fixture *f, const void *theirs, char *message)
{
    return attnkit_linear(&f->linear, theirs, message);
}

static attnkit_status embed_args(struct fixture *f, const void *theirs, char *message)
{
    return attnkit_embed(theirs, &f->exec, message);
}

static attnkit_status embed_exec(struct fixture *f, const void *theirs, char *message)
{
    return attnkit_embed(&f->embed, theirs, message);
}

static attnkit_status layer_packed_size(struct fixture *f, const void *theirs, char *message)
{
    size_t bytes;
    (void)f;
    return attnkit_layer_packed_size(theirs, &bytes, message);
}

static attnkit_status layer_weights(struct fixture *f, const void *theirs, char *message)
{
    return attnkit_layer_pack(theirs, memory.packed_layer, sizeof memory.packed_layer, &f->exec,
                              message);
}

static attnkit_status layer_args(struct fixture *f, const void *theirs, char *message)
{
    return attnkit_layer(theirs, &f->exec, message);
}

static attnkit_status layer_query(struct fixture *f, const void *theirs, char *message)
{
    size_t bytes;
    return attnkit_layer_workspace(theirs, &f->exec, &bytes, message);
}

static attnkit_status layer_plan(struct fixture *f, const void *theirs, char *message)
{
    return attnkit_layer_plan(theirs, &f->exec, plan, sizeof plan, message);
}

static attnkit_status layer_attention(struct fixture *f, const void *theirs, char *message)
{
    f->layer.attention = theirs;
    return attnkit_layer(&f->layer, &f->exec, message);
}

static attnkit_status layer_rotation(struct fixture *f, const void *theirs, char *message)
{
    f->layer.rotation = theirs;
    return attnkit_layer(&f->layer, &f->exec, message);
}

static attnkit_status run_layer(struct fixture *f, const attnkit_layer_data *data, char *message)
{
    const attnkit_status status =
        attnkit_layer_plan(&f->layer, &f->exec, plan, sizeof plan, message);
    return status == ATTNKIT_OK ? attnkit_layer_run(plan, data, &f->exec, message) : status;
}

static attnkit_status layer_data(struct fixture *f, const void *theirs, char *message)
{
    return run_layer(f, theirs, message);
}

static attnkit_status layer_attention_data(struct fixture *f, const void *theirs, char *message)
{
    f->layer_data.attention = theirs;
    return run_layer(f, &f->layer_data, message);
}

static attnkit_status layer_exec(struct fixture *f, const void *theirs, char *message)
{
    return attnkit_layer(&f->layer, theirs, message);
}

static attnkit_status isa_info(struct fixture *f, const void *theirs, char *message)
{
    (void)f;
    return attnkit_isa_get(0, (attnkit_isa_info *)(uintptr_t)theirs, message);
}

static attnkit_status unit_info(struct fixture *f, const void *theirs, char *message)
{
    (void)f;
    return attnkit_unit_get(0, (attnkit_unit_info *)(uintptr_t)theirs, message);
}

static attnkit_status isa_choice(struct fixture *f, const void *theirs, char *message)
{
    (void)f;
    return attnkit_isa_choose("scalar", (attnkit_isa_choice *)(uintptr_t)theirs, message);
}

/* --- The structs ---------------------------------------------------------------------------- */

/* A struct of the fixture, and a call that takes this struct. `at` is the offset of the struct in
 * the fixture. `first` is the smallest size that the library accepts: the bytes up to the end of
 * the last field of the first version that had the struct. `known` is the size in this version. */
struct row {
    const char *type, *call;
    user use;
    size_t at, first, known;
    bool filled; /* the library fills the struct, and reads only its size */
};

#define ROW(field, type, last, use)                                                                \
    {                                                                                              \
#type, #use, use, offsetof(struct fixture, field),                                         \
            offsetof(type, last) + sizeof(((type *)0)->last), sizeof(type), false                  \
    }
#define FILLED_ROW(field, type, last, use)                                                         \
    {                                                                                              \
#type, #use, use, offsetof(struct fixture, field),                                         \
            offsetof(type, last) + sizeof(((type *)0)->last), sizeof(type), true                   \
    }

static const struct row rows[] = {
    ROW(attention, attnkit_attention_args, weights, attention_args),
    ROW(attention, attnkit_attention_args, weights, attention_query),
    ROW(attention, attnkit_attention_args, weights, attention_plan),
    ROW(groups.storage, attnkit_kv_storage, cu_seqlens_kv, attention_storage),
    ROW(groups.pages, attnkit_pages, pages, attention_pages),
    ROW(groups.visibility, attnkit_visibility, mask_bits_kind, attention_visibility),
    ROW(groups.window, attnkit_window, keep_first, attention_window),
    ROW(groups.scores, attnkit_score_mods, dropout_seeds, attention_scores),
    ROW(groups.states, attnkit_states, state_out, attention_states),
    ROW(groups.weights, attnkit_weights_out, flags, attention_weights),
    ROW(attention_data, attnkit_attention_data, groups, attention_data),
    ROW(group_data, attnkit_attention_group_data, weights, attention_group_data),
    ROW(exec, attnkit_exec, barrier, attention_exec),
    ROW(exec, attnkit_exec, barrier, attention_run_exec),
    ROW(merge, attnkit_merge_args, lse, merge_args),
    ROW(exec, attnkit_exec, barrier, merge_exec),
    ROW(append, attnkit_append_args, rotation, append_args),
    ROW(append, attnkit_append_args, rotation, append_query),
    ROW(append, attnkit_append_args, rotation, append_plan),
    ROW(append_pages, attnkit_pages, pages, append_pages),
    ROW(rotation, attnkit_rotation, positions, append_rotation),
    ROW(append_data, attnkit_append_data, sin, append_data),
    ROW(exec, attnkit_exec, barrier, append_exec),
    ROW(pack, attnkit_pack_args, packed_size, packed_size),
    ROW(pack, attnkit_pack_args, packed_size, pack_args),
    ROW(exec, attnkit_exec, barrier, pack_exec),
    ROW(linear, attnkit_linear_args, bias, linear_args),
    ROW(linear, attnkit_linear_args, bias, linear_query),
    ROW(linear, attnkit_linear_args, bias, linear_plan),
    ROW(linear_data, attnkit_linear_data, y, linear_data),
    ROW(exec, attnkit_exec, barrier, linear_exec),
    ROW(embed, attnkit_embed_args, padding_id, embed_args),
    ROW(exec, attnkit_exec, barrier, embed_exec),
    ROW(layer_weights, attnkit_layer_weights, flags, layer_packed_size),
    ROW(layer_weights, attnkit_layer_weights, flags, layer_weights),
    ROW(layer, attnkit_layer_args, mean_weights, layer_args),
    ROW(layer, attnkit_layer_args, mean_weights, layer_query),
    ROW(layer, attnkit_layer_args, mean_weights, layer_plan),
    ROW(layer_attention, attnkit_attention_args, weights, layer_attention),
    ROW(layer_rotation, attnkit_rotation, positions, layer_rotation),
    ROW(layer_data, attnkit_layer_data, mean_weights, layer_data),
    ROW(layer_attention_data, attnkit_attention_data, groups, layer_attention_data),
    ROW(exec, attnkit_exec, barrier, layer_exec),
    FILLED_ROW(info, attnkit_isa_info, reason, isa_info),
    FILLED_ROW(choice, attnkit_isa_choice, reason, isa_choice),
    FILLED_ROW(unit, attnkit_unit_info, reason, unit_info),
};

enum { ROWS = sizeof rows / sizeof rows[0] };

/* --- Tests ---------------------------------------------------------------------------------- */

/* Makes the call with a copy of the struct. The size field of the copy is `size`, and zeros follow
 * the copy. If `set` is not 0, the byte at offset `set` from the start of the copy is 1. */
static attnkit_status use_with(const struct row *r, size_t size, size_t set, char *message)
{
    static struct fixture f;
    static _Alignas(64) unsigned char theirs[LONGEST + 64];
    set_fixture(&f);
    memset(theirs, 0, sizeof theirs);
    memcpy(theirs, (const char *)&f + r->at, r->known);
    memcpy(theirs, &size, sizeof size);
    if (set > 0)
        theirs[set] = 1;
    return r->use(&f, theirs, message);
}

static void fail_unless(bool right, const struct row *r, size_t size, const char *expected,
                        attnkit_status status, const char *message)
{
    if (!right)
        fail_msg("%s with %s of %zu bytes, expected %s: got %s, \"%s\"", r->call, r->type, size,
                 expected, attnkit_status_string(status), message);
}

static void expect_ok(const struct row *r, size_t size)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
    const attnkit_status status = use_with(r, size, 0, message);
    fail_unless(status == ATTNKIT_OK && message[0] == '\0', r, size, "success", status, message);
}

static void expect_no_version(const struct row *r, size_t size)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing", text[ATTNKIT_MESSAGE_SIZE];
    const attnkit_status status = use_with(r, size, 0, message);
    snprintf(text, sizeof text,
             "%s.size is %zu: must be sizeof(%s), %zu in this library, %zu to %d in any library",
             r->type, size, r->type, r->known, r->first, LONGEST);
    fail_unless(status == ATTNKIT_BAD_ARGUMENT && strcmp(message, text) == 0, r, size, text, status,
                message);
    assert_int_equal(use_with(r, size, 0, NULL), ATTNKIT_BAD_ARGUMENT);
}

static void expect_unknown_byte(const struct row *r, size_t size, size_t set)
{
    char message[ATTNKIT_MESSAGE_SIZE] = "nothing", text[ATTNKIT_MESSAGE_SIZE];
    const attnkit_status status = use_with(r, size, set, message);
    snprintf(text, sizeof text, "%s.size is %zu and byte %zu is set: this library knows %zu bytes",
             r->type, size, set, r->known);
    fail_unless(status == ATTNKIT_UNSUPPORTED && strcmp(message, text) == 0, r, size, text, status,
                message);
    assert_int_equal(use_with(r, size, set, NULL), ATTNKIT_UNSUPPORTED);
}

static void sizes_of_no_version_are_refused(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        expect_no_version(&rows[i], rows[i].first - 1);
        expect_no_version(&rows[i], sizeof(size_t));
        expect_no_version(&rows[i], 0);
        expect_no_version(&rows[i], LONGEST + 1);
        expect_no_version(&rows[i], SIZE_MAX);
    }
}

static void structs_of_the_first_and_of_this_version_are_taken(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        expect_ok(&rows[i], rows[i].first);
        expect_ok(&rows[i], rows[i].known);
    }
}

static void longer_structs_of_zeros_are_taken(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        expect_ok(&rows[i], rows[i].known + 1);
        expect_ok(&rows[i], rows[i].known + 8);
        expect_ok(&rows[i], LONGEST);
    }
}

static void longer_structs_with_a_set_byte_are_refused(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        const size_t known = rows[i].known;
        if (rows[i].filled)
            continue;
        expect_unknown_byte(&rows[i], known + 1, known);
        expect_unknown_byte(&rows[i], known + 8, known + 7);
        expect_unknown_byte(&rows[i], LONGEST, known);
        expect_unknown_byte(&rows[i], LONGEST, LONGEST - 1);
    }
}

/* Bytes after the end of a struct may have any value. */
static void bytes_after_a_struct_are_not_looked_at(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
        const size_t size = rows[i].known + 8;
        const attnkit_status status = use_with(&rows[i], size, size, message);
        fail_unless(status == ATTNKIT_OK, &rows[i], size, "success", status, message);
    }
}

static void longer_structs_are_filled_with_zeros(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        unsigned char theirs[LONGEST];
        const size_t size = rows[i].known + 24;
        size_t written;
        if (!rows[i].filled)
            continue;
        memset(theirs, PATTERN, sizeof theirs);
        memcpy(theirs, &size, sizeof size);
        assert_int_equal(rows[i].use(NULL, theirs, NULL), ATTNKIT_OK);
        memcpy(&written, theirs, sizeof written);
        assert_int_equal(written, size);
        for (size_t b = rows[i].known; b < LONGEST; b++)
            assert_int_equal(theirs[b], b < size ? 0 : PATTERN);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_of_no_version_are_refused),
        cmocka_unit_test(structs_of_the_first_and_of_this_version_are_taken),
        cmocka_unit_test(longer_structs_of_zeros_are_taken),
        cmocka_unit_test(longer_structs_with_a_set_byte_are_refused),
        cmocka_unit_test(bytes_after_a_struct_are_not_looked_at),
        cmocka_unit_test(longer_structs_are_filled_with_zeros),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
