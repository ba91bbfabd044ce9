/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the weights of `attnkit layer`. Tensors are found by the names that models give to them.
 * The shapes of the tensors are checked against each other. The shape of the layer follows from the
 * shapes of the tensors and the numbers of heads.
 */
#define _POSIX_C_SOURCE 200809L
#include "tools/cli/layer/layer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES = 3, LISTED = 8, LIST_TEXT = 1024 };

/* The possible names of each role's tensor, without the prefix. in_proj_weight, in_proj_bias,
 * q_proj_weight, k_proj_weight and v_proj_weight are names of PyTorch's MultiheadAttention. */
static const char *const role_names[ROLES][NAMES] = {
    [W_Q] = {"q_proj.weight", "q_proj_weight"},
    [W_K] = {"k_proj.weight", "k_proj_weight"},
    [W_V] = {"v_proj.weight", "v_proj_weight"},
    [W_QKV] = {"in_proj_weight", "qkv_proj.weight"},
    [W_O] = {"o_proj.weight", "out_proj.weight"},
    [B_Q] = {"q_proj.bias"},
    [B_K] = {"k_proj.bias"},
    [B_V] = {"v_proj.bias"},
    [B_QKV] = {"in_proj_bias", "qkv_proj.bias"},
    [B_O] = {"o_proj.bias", "out_proj.bias"},
};

/* ------------------------------------------------------------------------------------ prefix */

/* If the name is a prefix followed by the name of a Q or QKV matrix, returns the length of the
 * prefix, else -1. A prefix is empty or ends with a dot. */
static int prefix_length(const char *name)
{
    static const enum role roles[] = {W_Q, W_QKV};
    const size_t length = strlen(name);
    for (size_t r = 0; r < 2; r++)
        for (int i = 0; i < NAMES && role_names[roles[r]][i]; i++) {
            const char *const last = role_names[roles[r]][i];
            const size_t rest = length - strlen(last);
            if (length >= strlen(last) && !strcmp(name + rest, last) &&
                (rest == 0 || name[rest - 1] == '.'))
                return (int)rest;
        }
    return -1;
}

/* Returns whether a name before names[at] is the name of a Q or QKV matrix of the same layer. The
 * prefix of this layer has `length` bytes. file->names is sorted, so that names with the same
 * beginning lie next to each other. */
static bool is_counted(const struct weights_file *file, size_t at, int length)
{
    const char *const name = file->names[at];
    while (at-- > 0 && !strncmp(file->names[at], name, (size_t)length))
        if (prefix_length(file->names[at]) == length)
            return true;
    return false;
}

/* Writes at most LISTED prefixes of the file's layers to `text`, and returns the number of all
 * prefixes. If there is a prefix and `first` is not NULL, sets *first to a copy of the first
 * prefix, which the caller frees. *first is NULL if there is no memory for the copy. */
static size_t list_prefixes(const struct weights_file *file, char text[LIST_TEXT], char **first)
{
    size_t count = 0, used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < file->count; i++) {
        const char *const name = file->names[i];
        const int length = prefix_length(name);
        if (length < 0 || is_counted(file, i, length))
            continue;
        if (count++ == 0 && first)
            *first = strndup(name, (size_t)length);
        if (count <= LISTED && used < LIST_TEXT)
            used += (size_t)snprintf(text + used, LIST_TEXT - used, "%s'%.*s'",
                                     count > 1 ? ", " : "", length, name);
    }
    if (count > LISTED && used < LIST_TEXT)
        snprintf(text + used, LIST_TEXT - used, " and %zu more", count - LISTED);
    return count;
}

/* Returns the prefix followed by the name in one string, which the caller frees. On an error,
 * prints it and returns NULL. */
static char *join(const char *prefix, const char *name)
{
    const size_t room = strlen(prefix) + strlen(name) + 1;
    char *const whole = malloc(room);
    if (whole)
        snprintf(whole, room, "%s%s", prefix, name);
    else
        complain("%s: no memory for a name", name);
    return whole;
}

static bool find_prefix(const struct weights_file *file, char **prefix)
{
    char text[LIST_TEXT];
    const size_t count = list_prefixes(file, text, prefix);
    if (count == 1)
        return *prefix || complain("%s: no memory for a prefix", file->path);
    if (count == 0)
        return complain("%s has no %s and no %s", file->path, role_names[W_Q][0],
                        role_names[W_QKV][0]);
    return complain("%s has %zu layers: --prefix must be one of %s", file->path, count, text);
}

/* ----------------------------------------------------------------------------------- reading */

/* Sets *name to the name of the role's tensor in the file, or to NULL if the file has no such
 * tensor. Refuses a file that has two tensors for the role. The caller frees *name in every
 * case. */
static bool find_role(const struct weights_file *file, const char *prefix, enum role role,
                      char **name)
{
    *name = NULL;
    for (int i = 0; i < NAMES && role_names[role][i]; i++) {
        char *const whole = join(prefix, role_names[role][i]);
        if (whole && weights_has(file, whole) && !*name) {
            *name = whole;
            continue;
        }
        const bool twice = whole && weights_has(file, whole);
        if (twice)
            complain("%s has both %s and %s", file->path, *name, whole);
        free(whole);
        if (twice || !whole)
            return false;
    }
    return true;
}

/* Returns whether the tensor is missing, or has this rank and no size of 0. A size of 0 is refused,
 * because the library would take 0 for a default. */
static bool check_tensor(const struct file_tensor *tensor, int rank)
{
    if (!tensor->data)
        return true;
    if (tensor->rank != rank)
        return complain("%s: its rank is %d: must be %d", tensor->name, tensor->rank, rank);
    for (int i = 0; i < rank; i++)
        if (tensor->shape[i] == 0)
            return complain("%s has no elements", tensor->name);
    return true;
}

static bool read_role(struct weights_file *file, enum role role, struct layer *layer)
{
    char *name;
    bool ok = find_role(file, layer->prefix, role, &name);
    if (ok && name)
        ok = weights_read(file, name, &layer->tensors[role]);
    free(name);
    return ok && check_tensor(&layer->tensors[role], role < B_Q ? 2 : 1);
}

/* Refuses a layer that has one of the tensors in `others`. Otherwise `attnkit layer` would ignore
 * the tensor, and the result would be wrong. */
static bool check_others(const struct weights_file *file, const char *prefix)
{
    static const char *const others[] = {"bias_k",
                                         "bias_v",
                                         "q_norm.weight",
                                         "k_norm.weight",
                                         "q_layernorm.weight",
                                         "k_layernorm.weight"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char *const name = join(prefix, others[i]);
        const bool there = name && weights_has(file, name);
        if (there)
            complain("%s has %s: attnkit layer does not support it", file->path, name);
        free(name);
        if (there || !name)
            return false;
    }
    return true;
}

static bool missing(const struct weights_file *file, const struct layer *layer, enum role role)
{
    return complain("%s has no %s%s", file->path, layer->prefix, role_names[role][0]);
}

/* Prints an error about a prefix without a layer, and returns false. If the file has layers, the
 * error lists at most LISTED of their prefixes. */
static bool no_layer(const struct weights_file *file, const struct layer *layer)
{
    char text[LIST_TEXT];
    if (list_prefixes(file, text, NULL) == 0)
        return missing(file, layer, W_Q);
    return complain("%s has no %s%s and no %s%s: --prefix must be one of %s", file->path,
                    layer->prefix, role_names[W_Q][0], layer->prefix, role_names[W_QKV][0], text);
}

static bool check_complete(const struct weights_file *file, const struct layer *layer)
{
    const struct file_tensor *const t = layer->tensors;
    if (!t[W_Q].data && !t[W_QKV].data)
        return no_layer(file, layer);
    for (enum role r = W_Q; r <= W_V; r++) {
        if (!t[W_QKV].data && !t[r].data)
            return missing(file, layer, r);
        if (t[W_QKV].data && t[r].data)
            return complain("%s has both %s and %s", file->path, t[W_QKV].name, t[r].name);
    }
    for (enum role r = B_Q; r <= B_V; r++)
        if (t[B_QKV].data && t[r].data)
            return complain("%s has both %s and %s", file->path, t[B_QKV].name, t[r].name);
    return t[W_O].data || missing(file, layer, W_O);
}

static bool read_all(struct weights_file *file, const char *prefix, struct layer *layer)
{
    layer->prefix = prefix ? join(prefix, "") : NULL;
    if (prefix ? !layer->prefix : !find_prefix(file, &layer->prefix))
        return false;
    for (int r = 0; r < ROLES; r++)
        if (!read_role(file, (enum role)r, layer))
            return false;
    return check_complete(file, layer) && check_others(file, layer->prefix);
}

/* ------------------------------------------------------------------------------------- shape */

static const char *shape_of(const struct file_tensor *tensor, char text[NPY_SHAPE_TEXT])
{
    const struct npy same = {.rank = tensor->rank, .shape = {tensor->shape[0], tensor->shape[1]}};
    return npy_shape(&same, text);
}

/* Returns whether the tensor is missing, or has `rows` rows. In the message, `why` says from which
 * other tensors or options this number follows. */
static bool check_rows(const struct file_tensor *tensor, int64_t rows, const char *why)
{
    char shape[NPY_SHAPE_TEXT];
    return !tensor->data || tensor->shape[0] == rows ||
           complain("%s is %s: its first size must be %lld, %s", tensor->name,
                    shape_of(tensor, shape), (long long)rows, why);
}

static bool check_columns(const struct file_tensor *tensor, int64_t columns, const char *why)
{
    char shape[NPY_SHAPE_TEXT];
    return tensor->shape[1] == columns ||
           complain("%s is %s: its last size must be %lld, %s", tensor->name,
                    shape_of(tensor, shape), (long long)columns, why);
}

/* Sets *part to the number of rows divided by `by`. The division must have no remainder, and the
 * quotient must not be 0. In the message, `what` says what `by` counts. */
static bool divide_rows(const struct file_tensor *tensor, int64_t by, const char *what,
                        int64_t *part)
{
    char shape[NPY_SHAPE_TEXT];
    *part = tensor->shape[0] / by;
    return (*part > 0 && tensor->shape[0] % by == 0) ||
           complain("%s is %s: its first size must be a multiple of %lld, %s", tensor->name,
                    shape_of(tensor, shape), (long long)by, what);
}

/* Sets the shape from a fused QKV matrix. The heads of q, k and v have the same length. */
static bool shape_fused(const struct file_tensor *t, struct layer *layer)
{
    attnkit_layer_weights *const w = &layer->weights;
    w->kv_heads = layer->kv_heads ? layer->kv_heads : layer->heads;
    w->d_model = w->d_key = w->d_value = t[W_QKV].shape[1];
    const bool ok = divide_rows(&t[W_QKV], w->q_heads + 2 * w->kv_heads,
                                "the heads of q, k and v together", &w->head_dim);
    w->value_dim = w->head_dim;
    return ok;
}

/* Sets the number of KV heads. Without --kv-heads, this number is the rows of W_K divided by
 * head_dim. */
static bool find_kv_heads(const struct file_tensor *w_k, struct layer *layer)
{
    attnkit_layer_weights *const w = &layer->weights;
    w->kv_heads = layer->kv_heads;
    if (w->kv_heads)
        return check_rows(w_k, w->kv_heads * w->head_dim, "--kv-heads times head_dim");
    return divide_rows(w_k, w->head_dim, "head_dim", &w->kv_heads) &&
           (w->q_heads % w->kv_heads == 0 ||
            complain("%s has rows for %lld heads: must divide --heads, %lld", w_k->name,
                     (long long)w->kv_heads, (long long)w->q_heads));
}

static bool shape_separate(const struct file_tensor *t, struct layer *layer)
{
    attnkit_layer_weights *const w = &layer->weights;
    w->d_model = t[W_Q].shape[1];
    w->d_key = t[W_K].shape[1];
    w->d_value = t[W_V].shape[1];
    return divide_rows(&t[W_Q], w->q_heads, "--heads", &w->head_dim) &&
           find_kv_heads(&t[W_K], layer) &&
           divide_rows(&t[W_V], w->kv_heads, "the KV heads", &w->value_dim) &&
           check_columns(&t[W_V], w->d_key, "the last size of the weights of k");
}

static bool check_biases(const struct file_tensor *t, const attnkit_layer_weights *w)
{
    const int64_t q = w->q_heads * w->head_dim, k = w->kv_heads * w->head_dim;
    const int64_t v = w->kv_heads * w->value_dim;
    return check_rows(&t[B_Q], q, "one for each row of the weights") &&
           check_rows(&t[B_K], k, "one for each row of the weights") &&
           check_rows(&t[B_V], v, "one for each row of the weights") &&
           check_rows(&t[B_QKV], q + k + v, "one for each row of the weights") &&
           check_rows(&t[B_O], w->d_out, "one for each row of the weights");
}

static bool find_shape(struct layer *layer)
{
    const struct file_tensor *const t = layer->tensors;
    attnkit_layer_weights *const w = &layer->weights;
    w->size = sizeof *w;
    w->q_heads = layer->heads;
    if (!(t[W_QKV].data ? shape_fused(t, layer) : shape_separate(t, layer)))
        return false;
    w->d_out = t[W_O].shape[0];
    return check_columns(&t[W_O], w->q_heads * w->value_dim, "--heads times value_dim") &&
           check_biases(t, w);
}

/* ------------------------------------------------------------------------------------- types */

/* Sets *type to the common type of the tensors in the roles from first to end - 1. The file may
 * lack some of these tensors. If it lacks all of them, *type stays as it is. */
static bool find_type(const struct file_tensor *t, int first, int end, attnkit_type *type)
{
    static const char *const names[] = {"f32", "f16", "bf16"};
    const struct file_tensor *before = NULL;
    for (int r = first; r < end; r++) {
        if (!t[r].data)
            continue;
        if (before && before->type != t[r].type)
            return complain("%s is %s, %s is %s: must be the same", before->name,
                            names[before->type], t[r].name, names[t[r].type]);
        before = &t[r];
        *type = t[r].type;
    }
    return true;
}

static bool find_types(const struct layer_options *options, struct layer *layer)
{
    attnkit_layer_weights *const w = &layer->weights;
    if (!find_type(layer->tensors, W_Q, B_Q, &w->w_type) ||
        !find_type(layer->tensors, B_Q, ROLES, &w->bias_type))
        return false;
    if (!options->weight_type)
        w->packed_type = w->w_type;
    return true;
}

static void set_pointers(const struct file_tensor *t, attnkit_layer_weights *w)
{
    w->w_q = t[W_Q].data;
    w->w_k = t[W_K].data;
    w->w_v = t[W_V].data;
    w->w_qkv = t[W_QKV].data;
    w->w_o = t[W_O].data;
    w->b_q = t[B_Q].data;
    w->b_k = t[B_K].data;
    w->b_v = t[B_V].data;
    w->b_qkv = t[B_QKV].data;
    w->b_o = t[B_O].data;
}

bool layer_read_weights(const struct layer_options *options, struct layer *layer)
{
    struct weights_file file;
    if (!weights_open(options->weights, &file))
        return false;
    const bool ok = read_all(&file, options->prefix, layer);
    weights_close(&file);
    if (!ok || !find_shape(layer) || !find_types(options, layer))
        return false;
    set_pointers(layer->tensors, &layer->weights);
    return true;
}
