/* SPDX-License-Identifier: Apache-2.0
 *
 * The public header, included first and alone, compiles in C99 without a warning. The program uses
 * every type and function of the public headers. tests/repository/symbols.py checks that the
 * program names each type and function.
 */
#include <attnkit.h>

static void run_all(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    int64_t i;
    (void)pool;
    for (i = 0; i < n; i++)
        task(arg, i);
}

/* Attends with one query row over one key. The result is therefore the row of V. */
static attnkit_status attend(const attnkit_exec *exec, float *out, char *message)
{
    static const float q = 2.0f, k = 3.0f, v = 5.0f;
    static const int32_t length = 1;
    static const attnkit_int_type int_type = ATTNKIT_INT32;
    static const attnkit_align align = ATTNKIT_ALIGN_UPPER_LEFT;
    const attnkit_tensor row = {.data = &q};
    const attnkit_ints lengths = {.data = &length, .type = int_type};
    attnkit_window window;
    attnkit_visibility visibility = {
        .size = sizeof visibility, .kv_lens = lengths, .window = &window};
    attnkit_score_mods scores = {.size = sizeof scores, .softcap = 30.0};
    attnkit_attention_args args = {.size = sizeof args,
                                   .flags = ATTNKIT_CAUSAL,
                                   .align = align,
                                   .batch = 1,
                                   .q_heads = 1,
                                   .kv_heads = 1,
                                   .q_len = 1,
                                   .kv_len = 1,
                                   .head_dim = 1,
                                   .q = row,
                                   .k = {.data = &k},
                                   .v = {.data = &v},
                                   .visibility = &visibility,
                                   .scores = &scores};
    attnkit_window_init(&window);
    window.left = 511;
    args.out.data = out;
    return attnkit_attention(&args, exec, message);
}

/* Makes a call that has nothing to do. Its groups of options are present, but empty. */
static int attend_to_nothing(const attnkit_exec *exec, char *message)
{
    static const attnkit_type type = ATTNKIT_BF16;
    static const attnkit_mask_kind mask_kind = ATTNKIT_MASK_NONE;
    static const attnkit_weights_kind weights_kind = ATTNKIT_WEIGHTS_NONE;
    static const attnkit_state none = {.max = NULL};
    attnkit_attention_args args;
    attnkit_kv_storage storage;
    attnkit_pages pages;
    attnkit_visibility visibility;
    attnkit_score_mods scores;
    attnkit_states states;
    attnkit_weights_out weights;
    size_t bytes = 1;

    attnkit_attention_args_init(&args);
    attnkit_kv_storage_init(&storage);
    attnkit_pages_init(&pages);
    attnkit_visibility_init(&visibility);
    attnkit_score_mods_init(&scores);
    attnkit_states_init(&states);
    attnkit_weights_out_init(&weights);
    storage.pages = &pages;
    args.storage = &storage;
    args.visibility = &visibility;
    args.scores = &scores;
    args.states = &states;
    args.weights = &weights;
    args.head_dim = 1;
    args.q.type = type;
    args.q.layout = ATTNKIT_STRIDED;
    visibility.mask_kind = mask_kind;
    states.state_in = none;
    weights.kind = weights_kind;
    if (attnkit_attention_workspace(&args, exec, &bytes, message) != ATTNKIT_OK || bytes != 0)
        return 0;
    return attnkit_attention(&args, exec, message) == ATTNKIT_OK;
}

/* Merges, appends, multiplies a matrix and embeds. These calls have nothing to do. */
static int call_parts(const attnkit_exec *exec, char *message)
{
    static const attnkit_rope kind = ATTNKIT_ROPE_INTERLEAVED;
    attnkit_merge_args merge;
    attnkit_rotation rotation;
    attnkit_append_args append;
    attnkit_linear_args linear;
    attnkit_embed_args embed;
    size_t bytes = 1;
    float table = 1.0f;

    attnkit_merge_args_init(&merge);
    merge.value_dim = 1;
    if (attnkit_merge(&merge, exec, message) != ATTNKIT_OK)
        return 0;
    attnkit_rotation_init(&rotation);
    rotation.kind = kind;
    rotation.cos = rotation.sin = &table;
    attnkit_append_args_init(&append);
    append.dst.type = ATTNKIT_BF16;
    append.dim = 2;
    append.rotation = &rotation;
    if (attnkit_append_workspace(&append, exec, &bytes, message) != ATTNKIT_OK || bytes != 0)
        return 0;
    if (attnkit_append(&append, exec, message) != ATTNKIT_OK)
        return 0;
    attnkit_linear_args_init(&linear);
    linear.in_dim = linear.out_dim = 1;
    if (attnkit_linear_workspace(&linear, exec, &bytes, message) != ATTNKIT_OK)
        return 0;
    if (attnkit_linear(&linear, exec, message) != ATTNKIT_OK)
        return 0;
    attnkit_embed_args_init(&embed);
    embed.dim = 1;
    return attnkit_embed(&embed, exec, message) == ATTNKIT_OK;
}

/* Asks for the packed sizes of a matrix and of a layer whose matrices have one element. The library
 * refuses to pack the matrix or the layer without memory, and refuses a layer call without packed
 * weights. */
static int call_layer(const attnkit_exec *exec, char *message)
{
    static const float one = 1.0f;
    attnkit_pack_args pack;
    attnkit_layer_weights weights;
    attnkit_layer_args layer;
    size_t bytes = 0;

    attnkit_pack_args_init(&pack);
    pack.in_dim = pack.out_dim = 1;
    if (attnkit_packed_size(&pack, &bytes, message) != ATTNKIT_OK || bytes == 0)
        return 0;
    if (attnkit_pack(&pack, exec, message) == ATTNKIT_OK)
        return 0;
    attnkit_layer_weights_init(&weights);
    weights.d_model = weights.q_heads = 1;
    weights.w_q = weights.w_k = weights.w_v = weights.w_o = &one;
    bytes = 0;
    if (attnkit_layer_packed_size(&weights, &bytes, message) != ATTNKIT_OK || bytes == 0)
        return 0;
    if (attnkit_layer_pack(&weights, NULL, 0, exec, message) == ATTNKIT_OK)
        return 0;
    attnkit_layer_args_init(&layer);
    return attnkit_layer_workspace(&layer, exec, &bytes, message) != ATTNKIT_OK &&
           attnkit_layer(&layer, exec, message) != ATTNKIT_OK;
}

/* Plans without memory for the plan, and passes NULL as a plan. The library refuses each of these
 * calls. */
static int plan_nothing(const attnkit_exec *exec, char *message)
{
    attnkit_attention_args attention;
    attnkit_append_args append;
    attnkit_linear_args linear;
    attnkit_layer_args layer;
    attnkit_attention_data attention_data;
    attnkit_attention_group_data group_data;
    attnkit_append_data append_data;
    attnkit_linear_data linear_data;
    attnkit_layer_data layer_data;
    size_t bytes;

    attnkit_attention_args_init(&attention);
    attnkit_append_args_init(&append);
    attnkit_linear_args_init(&linear);
    attnkit_layer_args_init(&layer);
    attnkit_attention_data_init(&attention_data);
    attnkit_attention_group_data_init(&group_data);
    attnkit_append_data_init(&append_data);
    attnkit_linear_data_init(&linear_data);
    attnkit_layer_data_init(&layer_data);
    attention_data.groups = &group_data;
    attention_data.q = ATTNKIT_LATER;
    return attnkit_attention_plan_size() && attnkit_append_plan_size() &&
           attnkit_linear_plan_size() && attnkit_layer_plan_size() &&
           attnkit_attention_plan(&attention, exec, NULL, 0, message) &&
           attnkit_append_plan(&append, exec, NULL, 0, message) &&
           attnkit_linear_plan(&linear, exec, NULL, 0, message) &&
           attnkit_layer_plan(&layer, exec, NULL, 0, message) &&
           attnkit_attention_plan_workspace(NULL, &bytes, message) &&
           attnkit_append_plan_workspace(NULL, &bytes, message) &&
           attnkit_linear_plan_workspace(NULL, &bytes, message) &&
           attnkit_layer_plan_workspace(NULL, &bytes, message) &&
           attnkit_attention_run(NULL, &attention_data, exec, message) &&
           attnkit_append_run(NULL, &append_data, exec, message) &&
           attnkit_linear_run(NULL, &linear_data, exec, message) &&
           attnkit_layer_run(NULL, &layer_data, exec, message);
}

/* Tries to enable the last unit of the list. attnkit_unit_get must then say that the unit can run
 * if and only if attnkit_enable has succeeded. */
static int enable_unit(char *message)
{
    attnkit_unit_info unit;
    const int32_t last = attnkit_unit_count() - 1;
    attnkit_status status;

    attnkit_unit_info_init(&unit);
    if (attnkit_unit_get(last, &unit, message) != ATTNKIT_OK)
        return 0;
    status = attnkit_enable(unit.name, message);
    return attnkit_unit_get(last, &unit, message) == ATTNKIT_OK &&
           unit.can_run == (status == ATTNKIT_OK);
}

int main(void)
{
    static double workspace[1 << 15];
    attnkit_exec exec;
    attnkit_isa_info info;
    attnkit_isa_choice choice;
    char message[ATTNKIT_MESSAGE_SIZE];
    float out = 0.0f;

    attnkit_exec_init(&exec);
    exec.workspace = workspace;
    exec.workspace_size = sizeof workspace;
    exec.parallel_for = run_all;
    attnkit_isa_info_init(&info);
    attnkit_isa_choice_init(&choice);

    if (attend(&exec, &out, message) != ATTNKIT_OK || out != 5.0f)
        return 1;
    if (!attend_to_nothing(&exec, message))
        return 2;
    if (attnkit_isa_get(attnkit_isa_count() - 1, &info, message) != ATTNKIT_OK)
        return 3;
    if (attnkit_isa_choose(NULL, &choice, message) != ATTNKIT_OK)
        return 4;
    if (!call_parts(&exec, message))
        return 5;
    if (!call_layer(&exec, message))
        return 6;
    if (!plan_nothing(&exec, message))
        return 7;
    if (!enable_unit(message))
        return 8;
    return attnkit_version()[0] && attnkit_status_string(ATTNKIT_BAD_ISA)[0] ? 0 : 9;
}
