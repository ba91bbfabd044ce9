/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes a node of ONNX's Attention operator by attnkit's public API. The program shows which
 * arguments of attnkit correspond to the operator's inputs and attributes.
 * tests/interop/onnx/main.py runs this program on the cases of ONNX and compares the outputs.
 *
 *     onnx_attention CASE OUT ISA
 *
 * CASE is a folder with node.pb and with input_0.pb, input_1.pb and so on, in the operator's order.
 * An input that the node lacks has no file. The program writes the outputs to output_0.pb and so on
 * in the folder OUT. ISA is the name of an instruction set.
 */
#include <attnkit.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/interop/onnx/node.h"
#include "tests/interop/onnx/tensor.h"

enum { PATH_SIZE = 4096 };

struct call {
    const char *isa;
    struct node node;
    struct tensor in[INPUTS], out[OUTPUTS];
    struct tensor weights; /* OUT_QK in f32 */
    attnkit_attention_args args;
    attnkit_visibility visibility;
    attnkit_window window;
    attnkit_score_mods scores;
    attnkit_weights_out weights_out;
    int64_t *q_offsets; /* [batch] */
    float *slopes;      /* [q_heads] */
};

__attribute__((noreturn, format(printf, 1, 2))) static void give_up(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("onnx_attention: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static void require(bool is_so, const char *what)
{
    if (!is_so)
        give_up("%s", what);
}

static void *allocate(int64_t count, size_t element)
{
    void *const memory = calloc((size_t)count + 1, element);
    require(memory, "no memory");
    return memory;
}

/* ---------------------------------------------------------------------------------- the tensors */

/* The sizes and strides of a tensor of three or four dimensions as [batch][heads][rows][dim]. */
struct view {
    int64_t batch, heads, rows, dim;
    int64_t strides[3]; /* bytes from one batch entry, head or row to the next */
};

static struct view view_of(const struct tensor *t, int64_t heads)
{
    const int64_t element = (int64_t)t->element;
    struct view view = {t->dims[0], t->dims[1], t->dims[2], t->dims[3], {0}};
    if (t->rank == 3) {
        require(heads > 0 && t->dims[2] % heads == 0,
                "heads that do not divide the last dimension");
        view = (struct view){t->dims[0], heads, t->dims[1], t->dims[2] / heads, {0}};
    }
    view.strides[1] = (t->rank == 3 ? 1 : view.rows) * view.dim * element;
    view.strides[2] = (t->rank == 3 ? view.heads : 1) * view.dim * element;
    view.strides[0] = view.heads * view.rows * view.dim * element;
    return view;
}

static attnkit_type type_of(const struct tensor *t)
{
    require(t->type == TENSOR_FLOAT || t->type == TENSOR_FLOAT16 || t->type == TENSOR_BFLOAT16,
            "elements that are neither float, float16 nor bfloat16");
    return t->type == TENSOR_FLOAT     ? ATTNKIT_F32
           : t->type == TENSOR_FLOAT16 ? ATTNKIT_F16
                                       : ATTNKIT_BF16;
}

static struct tensor make_4d(enum tensor_type type, int64_t d0, int64_t d1, int64_t d2, int64_t d3)
{
    const int64_t dims[4] = {d0, d1, d2, d3};
    struct tensor tensor;
    const char *const wrong = tensor_make(type, 4, dims, &tensor);
    require(!wrong, wrong);
    return tensor;
}

static attnkit_tensor in_view(const struct tensor *t, struct view view)
{
    attnkit_tensor tensor = {.data = t->data, .type = type_of(t), .layout = ATTNKIT_STRIDED};
    memcpy(tensor.strides, view.strides, sizeof view.strides);
    return tensor;
}

/* ------------------------------------------------------------------------------------- appending
 */

static void run_append(const attnkit_append_args *args, const char *isa)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {.size = sizeof exec, .isa = isa};
    if (attnkit_append_workspace(args, &exec, &exec.workspace_size, message) == ATTNKIT_OK)
        exec.workspace = malloc(exec.workspace_size);
    if (attnkit_append(args, &exec, message) != ATTNKIT_OK)
        give_up("attnkit_append: %s", message);
    free(exec.workspace);
}

/* Converts the rows of src to the type of dst, and appends them to dst. In each batch entry of dst,
 * the new rows follow the first `filled` rows. `from` is the view of src. */
static void append(const struct call *call, const struct tensor *src, struct view from,
                   struct tensor *dst, int64_t filled)
{
    const struct view to = view_of(dst, 0);
    int64_t *const starts = allocate(from.batch, sizeof *starts);
    for (int64_t b = 0; b < from.batch; b++)
        starts[b] = filled;
    const attnkit_append_args args = {
        .size = sizeof args,
        .batch = from.batch,
        .heads = from.heads,
        .len = from.rows,
        .dim = from.dim,
        .capacity = to.rows,
        .src = in_view(src, from),
        .dst = in_view(dst, to),
        .starts = {.data = starts},
    };
    run_append(&args, call->isa);
    free(starts);
}

/* Makes a tensor of the past keys or values followed by the keys or values of the call. */
static struct tensor make_present(const struct call *call, enum input past, enum input new)
{
    const struct tensor *const old = &call->in[past], *const t = &call->in[new];
    const struct view from = view_of(t, call->node.kv_num_heads);
    const int64_t filled = old->data ? old->dims[2] : 0;
    struct tensor present = make_4d(t->type, from.batch, from.heads, filled + from.rows, from.dim);
    if (old->data) {
        require(old->rank == 4 && old->dims[0] == from.batch && old->dims[1] == from.heads &&
                    old->dims[3] == from.dim && old->type == t->type,
                "a past that does not fit");
        append(call, old, view_of(old, 0), &present, 0);
    }
    append(call, t, from, &present, filled);
    return present;
}

/* ------------------------------------------------------------------------------------- attention
 */

static int64_t past_rows(const struct call *call)
{
    return call->in[IN_PAST_KEY].data ? call->in[IN_PAST_KEY].dims[2] : 0;
}

static bool has_present(const struct call *call)
{
    return call->in[IN_PAST_KEY].data || call->node.has_output[OUT_PRESENT_KEY] ||
           call->node.has_output[OUT_PRESENT_VALUE];
}

static void set_query(struct call *call)
{
    attnkit_attention_args *const a = &call->args;
    const struct view q = view_of(&call->in[IN_Q], call->node.q_num_heads);
    a->batch = q.batch;
    a->q_heads = q.heads;
    a->q_len = q.rows;
    a->head_dim = q.dim;
    a->q = in_view(&call->in[IN_Q], q);
}

static void set_keys(struct call *call)
{
    attnkit_attention_args *const a = &call->args;
    const struct tensor *k = &call->in[IN_K], *v = &call->in[IN_V];
    if (has_present(call)) {
        call->out[OUT_PRESENT_KEY] = make_present(call, IN_PAST_KEY, IN_K);
        call->out[OUT_PRESENT_VALUE] = make_present(call, IN_PAST_VALUE, IN_V);
        k = &call->out[OUT_PRESENT_KEY];
        v = &call->out[OUT_PRESENT_VALUE];
    }
    const struct view keys = view_of(k, call->node.kv_num_heads);
    const struct view values = view_of(v, call->node.kv_num_heads);
    require(keys.batch == a->batch && keys.dim == a->head_dim, "Q and K do not go together");
    require(values.batch == keys.batch && values.heads == keys.heads && values.rows == keys.rows,
            "K and V do not go together");
    a->kv_heads = keys.heads;
    a->kv_len = keys.rows;
    a->value_dim = values.dim;
    a->k = in_view(k, keys);
    a->v = in_view(v, values);
}

static void set_out(struct call *call)
{
    attnkit_attention_args *const a = &call->args;
    const struct tensor *const q = &call->in[IN_Q];
    const int64_t dims3[3] = {a->batch, a->q_len, a->q_heads * a->value_dim};
    const int64_t dims4[4] = {a->batch, a->q_heads, a->q_len, a->value_dim};
    const char *const wrong =
        tensor_make(q->type, q->rank, q->rank == 3 ? dims3 : dims4, &call->out[OUT_Y]);
    require(!wrong, wrong);
    a->out = in_view(&call->out[OUT_Y], view_of(&call->out[OUT_Y], a->q_heads));
}

/* Sets the lengths, the positions of the rows, causal masking and the window. Positions count from
 * the first past key, or from key 0 if there is no past. */
static void set_positions(struct call *call)
{
    attnkit_attention_args *const a = &call->args;
    const struct node *const node = &call->node;
    const bool windowed = node->left_window_size != -1 || node->right_window_size != -1;
    const int64_t *const kv_lens = call->in[IN_KV_LENS].data;
    call->visibility.kv_lens.data = kv_lens;
    if (!node->is_causal && !windowed && node->alibi_slope == 0.0f)
        return;
    call->q_offsets = allocate(a->batch, sizeof *call->q_offsets);
    for (int64_t b = 0; b < a->batch; b++)
        call->q_offsets[b] = kv_lens ? kv_lens[b] - a->q_len : past_rows(call);
    a->align = ATTNKIT_ALIGN_OFFSETS;
    a->q_offsets.data = call->q_offsets;
    a->flags |= node->is_causal ? ATTNKIT_CAUSAL : 0;
    if (!windowed)
        return;
    call->window = (attnkit_window){.size = sizeof call->window,
                                    .left = node->left_window_size,
                                    .right = node->right_window_size};
    call->visibility.window = &call->window;
}

/* Returns the mask or bias of the call as a tensor, and sets *columns to the number of its columns.
 * The dimensions of the mask are the last dimensions of [batch][q_heads][q_len][keys]. Batch, heads
 * and rows repeat if their size is 1. Keys after the last column are masked. */
static attnkit_tensor mask_tensor(const struct call *call, attnkit_type type, int64_t *columns)
{
    const struct tensor *const mask = &call->in[IN_MASK];
    attnkit_tensor tensor = {.data = mask->data, .type = type, .layout = ATTNKIT_STRIDED};
    const int64_t whole[3] = {call->args.batch, call->args.q_heads, call->args.q_len};
    require(mask->rank > 0, "a mask without dimensions");
    *columns = mask->dims[mask->rank - 1];
    require(*columns > 0 && *columns <= call->args.kv_len,
            "a mask with no columns, or with more columns than keys");
    int64_t stride = *columns * (int64_t)mask->element;
    for (int i = 2; i >= 0; i--) {
        const int at = mask->rank - 4 + i;
        const int64_t dim = at < 0 ? 1 : mask->dims[at];
        require(dim == 1 || dim == whole[i], "a mask that does not broadcast");
        tensor.strides[i] = dim == 1 ? 0 : stride;
        stride *= dim;
    }
    return tensor;
}

static void set_mask(struct call *call)
{
    attnkit_visibility *const visibility = &call->visibility;
    attnkit_score_mods *const scores = &call->scores;
    const struct tensor *const mask = &call->in[IN_MASK];
    if (!mask->data)
        return;
    if (mask->type == TENSOR_BOOL) {
        visibility->mask = mask_tensor(call, ATTNKIT_BOOL, &visibility->mask_columns);
        visibility->mask_kind = ATTNKIT_MASK_ATTEND;
    } else {
        scores->bias = mask_tensor(call, type_of(mask), &scores->bias_columns);
    }
}

static void set_scores(struct call *call)
{
    attnkit_attention_args *const a = &call->args;
    const struct node *const node = &call->node;
    if (node->has_scale) {
        a->flags |= ATTNKIT_SCALE_GIVEN;
        a->scale = (double)node->scale;
    }
    call->scores.softcap = (double)node->softcap;
    if (node->alibi_slope == 0.0f)
        return;
    call->slopes = allocate(a->q_heads, sizeof *call->slopes);
    for (int64_t h = 0; h < a->q_heads; h++)
        call->slopes[h] = node->alibi_slope;
    call->scores.alibi_slopes = call->slopes;
}

static void set_weights(struct call *call)
{
    static const attnkit_weights_kind kinds[] = {ATTNKIT_WEIGHTS_SCALED, ATTNKIT_WEIGHTS_CAPPED,
                                                 ATTNKIT_WEIGHTS_BIASED, ATTNKIT_WEIGHTS_SOFTMAX};
    const attnkit_attention_args *const a = &call->args;
    const int64_t mode = call->node.qk_matmul_output_mode;
    require(mode >= 0 && mode <= 3, "qk_matmul_output_mode is not 0, 1, 2 or 3");
    if (!call->node.has_output[OUT_QK])
        return;
    call->weights = make_4d(TENSOR_FLOAT, a->batch, a->q_heads, a->q_len, a->kv_len);
    call->weights_out.weights.data = call->weights.data;
    call->weights_out.kind = kinds[mode];
}

static void run_attention(const struct call *call)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {.size = sizeof exec, .isa = call->isa};
    if (attnkit_attention_workspace(&call->args, &exec, &exec.workspace_size, message) ==
        ATTNKIT_OK)
        exec.workspace = malloc(exec.workspace_size);
    if (attnkit_attention(&call->args, &exec, message) != ATTNKIT_OK)
        give_up("attnkit_attention: %s", message);
    free(exec.workspace);
}

/* Converts attnkit's scores or weights to the type of Q, which is the type of OUT_QK. */
static void convert_weights(struct call *call)
{
    const struct tensor *const w = &call->weights;
    if (!w->data)
        return;
    struct tensor *const out = &call->out[OUT_QK];
    *out = make_4d(call->in[IN_Q].type, w->dims[0], w->dims[1], w->dims[2], w->dims[3]);
    append(call, w, view_of(w, 0), out, 0);
}

static void check_inputs(const struct call *call)
{
    const struct tensor *const in = call->in, *const lens = &in[IN_KV_LENS];
    const int rank = in[IN_Q].rank;
    require(rank == 3 || rank == 4, "Q has neither 3 nor 4 dimensions");
    require(in[IN_K].rank == rank && in[IN_V].rank == rank, "Q, K and V differ in their rank");
    require(!in[IN_PAST_KEY].data == !in[IN_PAST_VALUE].data,
            "past_key without past_value, or past_value without past_key");
    require(!lens->data || !in[IN_PAST_KEY].data, "nonpad_kv_seqlen with a past");
    require(!lens->data || (lens->type == TENSOR_INT64 && lens->rank == 1 &&
                            lens->dims[0] == in[IN_Q].dims[0]),
            "nonpad_kv_seqlen is not an int64 for each batch entry");
}

/* Initialises the arguments with empty groups of options, which change nothing. set_positions adds
 * the window. */
static void begin_args(struct call *call)
{
    attnkit_attention_args_init(&call->args);
    attnkit_visibility_init(&call->visibility);
    attnkit_score_mods_init(&call->scores);
    attnkit_weights_out_init(&call->weights_out);
    call->args.visibility = &call->visibility;
    call->args.scores = &call->scores;
    call->args.weights = &call->weights_out;
}

static void attend(struct call *call)
{
    check_inputs(call);
    begin_args(call);
    set_query(call);
    set_keys(call);
    set_out(call);
    set_positions(call);
    set_mask(call);
    set_scores(call);
    set_weights(call);
    run_attention(call);
    convert_weights(call);
}

/* ------------------------------------------------------------------------------------- the files
 */

static void name_file(char path[PATH_SIZE], const char *folder, const char *name, int number)
{
    const int length = number < 0 ? snprintf(path, PATH_SIZE, "%s/%s.pb", folder, name)
                                  : snprintf(path, PATH_SIZE, "%s/%s_%d.pb", folder, name, number);
    require(length > 0 && length < PATH_SIZE, "a path that is too long");
}

static void read_node(const char *folder, struct node *node)
{
    char path[PATH_SIZE];
    uint8_t *data;
    struct bytes bytes;
    name_file(path, folder, "node", -1);
    const char *wrong = file_read(path, &data, &bytes);
    if (wrong)
        give_up("%s: %s", path, wrong);
    wrong = node_parse(bytes, node);
    free(data);
    if (wrong)
        give_up("%s: %s", path, wrong);
}

static void read_inputs(const char *folder, struct call *call)
{
    for (int i = 0; i < INPUTS; i++) {
        char path[PATH_SIZE];
        if (!call->node.has_input[i])
            continue;
        name_file(path, folder, "input", i);
        const char *const wrong = tensor_read(path, &call->in[i]);
        if (wrong)
            give_up("%s: %s", path, wrong);
    }
}

static void write_outputs(const char *folder, const struct call *call)
{
    for (int i = 0; i < OUTPUTS; i++) {
        char path[PATH_SIZE];
        if (!call->node.has_output[i])
            continue;
        name_file(path, folder, "output", i);
        const char *const wrong = tensor_write(path, &call->out[i]);
        if (wrong)
            give_up("%s: %s", path, wrong);
    }
}

static void free_call(struct call *call)
{
    for (int i = 0; i < INPUTS; i++)
        tensor_free(&call->in[i]);
    for (int i = 0; i < OUTPUTS; i++)
        tensor_free(&call->out[i]);
    tensor_free(&call->weights);
    free(call->q_offsets);
    free(call->slopes);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        give_up("usage: onnx_attention CASE OUT ISA");
    struct call call = {.isa = argv[3]};
    read_node(argv[1], &call.node);
    read_inputs(argv[1], &call);
    attend(&call);
    write_outputs(argv[2], &call);
    free_call(&call);
    return 0;
}
