/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls that pack the weights of a layer, and the reader of packed weights. Packed
 * weights begin with a description of 128 bytes. All parts are in the byte order of the machine.
 */
#include "dispatch/layer/layer.h"

#include "kernels/linear/linear.h"
#include "dispatch/cache/cache.h"
#include "dispatch/common/exec.h"
#include "dispatch/common/fp_modes.h"
#include "dispatch/cpu/isa.h"
#include "dispatch/linear/matrix.h"
#include "dispatch/common/versioned.h"
#include "dispatch/linear/pack.h"

/* The description of packed weights. Its first 8 bytes are a magic number, which changes with the
 * layout of the packed weights. */
struct description {
    char name[8];
    int64_t d_model, d_key, d_value, d_out;
    int64_t q_heads, kv_heads, head_dim, value_dim;
    int64_t type;
    int64_t biases; /* bit p: projection p has a bias */
    int64_t unused[5];
};

static const char NAME[8] = {'a', 't', 't', 'n', 'k', 'i', 't', '1'};

_Static_assert(sizeof(struct description) % MATRIX_ALIGNMENT == 0,
               "matrices follow the description");

static const struct version weights_version = VERSION_OF(attnkit_layer_weights, flags);

/* ------------------------------------------------------------------------------- the shape */

static attnkit_status check_dims(const struct description *d, char *message)
{
    const struct {
        const char *name;
        int64_t value;
    } dims[] = {{"d_model", d->d_model},   {"d_key", d->d_key},        {"d_value", d->d_value},
                {"d_out", d->d_out},       {"q_heads", d->q_heads},    {"kv_heads", d->kv_heads},
                {"head_dim", d->head_dim}, {"value_dim", d->value_dim}};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        if (dims[i].value < 1)
            return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is %lld: must be at least 1",
                          dims[i].name, (long long)dims[i].value);
    if (d->type < ATTNKIT_F32 || d->type > ATTNKIT_Q8_0)
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "packed_type is %lld: must be ATTNKIT_F32 (0), ATTNKIT_F16 (1), ATTNKIT_BF16 "
                      "(2) or ATTNKIT_Q8_0 (4)",
                      (long long)d->type);
    if (d->q_heads % d->kv_heads != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "q_heads is %lld: must be a multiple of kv_heads (%lld)",
                      (long long)d->q_heads, (long long)d->kv_heads);
    return ATTNKIT_OK;
}

/* Fills the description from the weights, with defaults for fields that are 0. */
static attnkit_status describe(const attnkit_layer_weights *w, struct description *d, char *message)
{
    *d = (struct description){.d_model = w->d_model,
                              .d_key = w->d_key ? w->d_key : w->d_model,
                              .d_out = w->d_out ? w->d_out : w->d_model,
                              .q_heads = w->q_heads,
                              .kv_heads = w->kv_heads ? w->kv_heads : w->q_heads,
                              .head_dim = w->head_dim,
                              .type = w->packed_type};
    d->d_value = w->d_value ? w->d_value : d->d_key;
    if (w->head_dim == 0 && w->q_heads > 0) {
        if (w->d_model % w->q_heads != 0)
            return refuse(
                message, ATTNKIT_BAD_ARGUMENT,
                "d_model is %lld: must be a multiple of q_heads (%lld), or head_dim must be given",
                (long long)w->d_model, (long long)w->q_heads);
        d->head_dim = w->d_model / w->q_heads;
    }
    d->value_dim = w->value_dim ? w->value_dim : d->head_dim;
    d->biases = (w->b_q || w->b_qkv) << Q | (w->b_k || w->b_qkv) << K | (w->b_v || w->b_qkv) << V |
                !!w->b_o << O;
    memcpy(d->name, NAME, sizeof NAME);
    return check_dims(d, message);
}

static attnkit_status multiply(const char *names, int64_t a, int64_t b, int64_t *product,
                               char *message)
{
    if (__builtin_mul_overflow(a, b, product))
        return refuse(message, ATTNKIT_OVERFLOW, "%s is %lld x %lld: beyond 63 bits", names,
                      (long long)a, (long long)b);
    return ATTNKIT_OK;
}

static bool add_bytes(int64_t *total, int64_t bytes)
{
    return !__builtin_add_overflow(*total, bytes, total) &&
           !__builtin_add_overflow(*total, -*total & (MATRIX_ALIGNMENT - 1), total);
}

/* Sets the offsets of matrices and biases. */
static attnkit_status place_parts(struct layer *layer, char *message)
{
    int64_t end = sizeof(struct description);
    for (int i = 0; i < PROJECTIONS; i++) {
        struct projection_shape *p = &layer->projection[i];
        attnkit_status status = attnkit_check_matrix_type("packed_type", (attnkit_type)layer->type,
                                                          "the input dim", p->in_dim, message);
        if (status == ATTNKIT_OK)
            status = attnkit_check_matrix_size("out_dim", p->out_dim, "in_dim", p->in_dim, message);
        if (status != ATTNKIT_OK)
            return status;
        p->w = end;
        if (!add_bytes(&end, matrix_tiles(p->out_dim) * matrix_tile_bytes(layer->type, p->in_dim)))
            return refuse(message, ATTNKIT_OVERFLOW,
                          "the size of the packed weights is beyond 63 bits");
    }
    for (int i = 0; i < PROJECTIONS; i++) {
        struct projection_shape *p = &layer->projection[i];
        p->bias = end;
        if (p->has_bias && !add_bytes(&end, p->out_dim * (int64_t)sizeof(float)))
            return refuse(message, ATTNKIT_OVERFLOW,
                          "the size of the packed weights is beyond 63 bits");
    }
    layer->bytes = end;
    return ATTNKIT_OK;
}

static attnkit_status set_layer(const struct description *d, struct layer *layer, char *message)
{
    int64_t q, k, v, result;
    attnkit_status status = multiply("q_heads x head_dim", d->q_heads, d->head_dim, &q, message);
    if (status == ATTNKIT_OK)
        status = multiply("kv_heads x head_dim", d->kv_heads, d->head_dim, &k, message);
    if (status == ATTNKIT_OK)
        status = multiply("kv_heads x value_dim", d->kv_heads, d->value_dim, &v, message);
    if (status == ATTNKIT_OK)
        status = multiply("q_heads x value_dim", d->q_heads, d->value_dim, &result, message);
    if (status != ATTNKIT_OK)
        return status;
    *layer = (struct layer){
        .q_heads = d->q_heads,
        .kv_heads = d->kv_heads,
        .head_dim = d->head_dim,
        .value_dim = d->value_dim,
        .type = (enum type)d->type,
        .projection = {[Q] = {.out_dim = q, .in_dim = d->d_model},
                       [K] = {.out_dim = k, .in_dim = d->d_key},
                       [V] = {.out_dim = v, .in_dim = d->d_value},
                       [O] = {.out_dim = d->d_out, .in_dim = result}},
    };
    for (int i = 0; i < PROJECTIONS; i++)
        layer->projection[i].has_bias = d->biases >> i & 1;
    return place_parts(layer, message);
}

attnkit_status attnkit_read_layer(const void *packed, size_t size, struct layer *layer,
                                  char *message)
{
    struct description d;
    if (!packed)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "packed is NULL");
    if ((uintptr_t)packed % MATRIX_ALIGNMENT != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "packed is %p: must be aligned to %d bytes",
                      packed, MATRIX_ALIGNMENT);
    if (size >= sizeof d)
        memcpy(&d, packed, sizeof d);
    if (size < sizeof d || memcmp(d.name, NAME, sizeof NAME) != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "packed (%p, %zu bytes) is not what attnkit_layer_pack wrote", packed, size);
    attnkit_status status = check_dims(&d, message);
    if (status == ATTNKIT_OK)
        status = set_layer(&d, layer, message);
    if (status != ATTNKIT_OK)
        return status;
    if (size < (size_t)layer->bytes)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "packed_size is %zu: the layer has %lld bytes",
                      size, (long long)layer->bytes);
    layer->packed = packed;
    return ATTNKIT_OK;
}

/* -------------------------------------------------------------------------------- packing */

/* A matrix and a bias of the caller. */
struct matrix_source {
    const char *w_name, *b_name;
    const char *w, *b;
};

/* Finds matrices and biases. w_qkv and b_qkv are treated as three matrices and three biases. */
static void find_sources(const attnkit_layer_weights *w, const struct layer *layer,
                         struct matrix_source source[PROJECTIONS])
{
    const struct projection_shape *p = layer->projection;
    const struct matrix_source all[PROJECTIONS] = {
        {"w_q", "b_q", w->w_q, w->b_q},
        {"w_k", "b_k", w->w_k, w->b_k},
        {"w_v", "b_v", w->w_v, w->b_v},
        {"w_o", "b_o", w->w_o, w->b_o},
    };
    int64_t row = 0;
    for (int i = 0; i < PROJECTIONS; i++) {
        source[i] = all[i];
        if (w->w_qkv && i != O) {
            source[i].w_name = "w_qkv";
            source[i].w =
                (const char *)w->w_qkv + row * bytes_of((enum type)w->w_type, p[i].in_dim);
        }
        if (w->b_qkv && i != O) {
            source[i].b_name = "b_qkv";
            source[i].b = (const char *)w->b_qkv + bytes_of((enum type)w->bias_type, row);
        }
        row += p[i].out_dim;
    }
}

static attnkit_status check_joined(const attnkit_layer_weights *w, const struct layer *layer,
                                   char *message)
{
    const struct projection_shape *p = layer->projection;
    if (w->w_qkv && (w->w_q || w->w_k || w->w_v))
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s and w_qkv are both given",
                      w->w_q   ? "w_q"
                      : w->w_k ? "w_k"
                               : "w_v");
    if (w->b_qkv && (w->b_q || w->b_k || w->b_v))
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s and b_qkv are both given",
                      w->b_q   ? "b_q"
                      : w->b_k ? "b_k"
                               : "b_v");
    if (w->w_qkv && (p[K].in_dim != p[Q].in_dim || p[V].in_dim != p[Q].in_dim))
        return refuse(
            message, ATTNKIT_BAD_ARGUMENT,
            "w_qkv is given, but d_model, d_key and d_value are %lld, %lld and %lld: must be equal",
            (long long)p[Q].in_dim, (long long)p[K].in_dim, (long long)p[V].in_dim);
    return ATTNKIT_OK;
}

static attnkit_status check_shape(const attnkit_layer_weights *theirs, attnkit_layer_weights *ours,
                                  struct description *d, struct layer *layer, char *message)
{
    if (!theirs)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "weights is NULL");
    const void *read;
    attnkit_status status = read_struct(&weights_version, theirs, ours, &read, message);
    if (status != ATTNKIT_OK)
        return status;
    if (read != ours)
        *ours = *theirs;
    if (ours->flags)
        return refuse(message, ATTNKIT_UNSUPPORTED, "flags is 0x%x: bits 0x%x are not known",
                      (unsigned)ours->flags, (unsigned)ours->flags);
    status = describe(ours, d, message);
    if (status == ATTNKIT_OK)
        status = attnkit_check_rounded("bias_type", ours->bias_type, message);
    if (status == ATTNKIT_OK)
        status = set_layer(d, layer, message);
    for (int i = 0; status == ATTNKIT_OK && i < PROJECTIONS; i++)
        status = attnkit_check_matrix_type("w_type", ours->w_type, "the input dim",
                                           layer->projection[i].in_dim, message);
    if (status == ATTNKIT_OK)
        status = check_joined(ours, layer, message);
    if (status != ATTNKIT_OK)
        return status;
    if (ours->w_type == ATTNKIT_Q8_0 && ours->packed_type != ATTNKIT_Q8_0)
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "packed_type is %d: must be ATTNKIT_Q8_0 (4), as w_type is",
                      (int)ours->packed_type);
    return ATTNKIT_OK;
}

attnkit_status attnkit_layer_packed_size(const attnkit_layer_weights *weights, size_t *bytes,
                                         char *message)
{
    attnkit_layer_weights ours = {0};
    struct description d;
    struct layer layer;
    if (!bytes)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "bytes is NULL");
    const attnkit_status status = check_shape(weights, &ours, &d, &layer, message);
    if (status != ATTNKIT_OK)
        return status;
    *bytes = (size_t)layer.bytes;
    return accept(message);
}

/* The memory of a call: the packed weights, then each matrix, then each bias. */
enum { PARTS = 1 + 2 * PROJECTIONS };

/* Checks pointers, alignment, overlaps and the size of the memory for the packed weights. */
static attnkit_status check_memory(const attnkit_layer_weights *w, const struct layer *layer,
                                   const struct matrix_source source[PROJECTIONS], void *packed,
                                   size_t bytes, char *message)
{
    struct tensor tensors[PARTS];
    struct memory memory[PARTS];
    const void *data[PARTS] = {packed};
    attnkit_begin_matrix(&tensors[0], "packed", TYPE_F32, 1, 1);
    tensors[0].row_bytes = layer->bytes;
    tensors[0].alignment = MATRIX_ALIGNMENT;
    tensors[0].output = true;
    for (int i = 0; i < PROJECTIONS; i++) {
        const struct projection_shape *p = &layer->projection[i];
        const int b = 1 + PROJECTIONS + i;
        attnkit_begin_matrix(&tensors[1 + i], source[i].w_name, (enum type)w->w_type, p->out_dim,
                             p->in_dim);
        attnkit_begin_matrix(&tensors[b], source[i].b_name, (enum type)w->bias_type,
                             p->has_bias ? 1 : 0, p->out_dim);
        data[1 + i] = source[i].w;
        data[b] = source[i].b;
    }
    attnkit_status status = ATTNKIT_OK;
    for (int i = 0; status == ATTNKIT_OK && i < PARTS; i++)
        status = attnkit_plan_dense(&tensors[i], message);
    if (status == ATTNKIT_OK && bytes < (size_t)layer->bytes)
        status = refuse(message, ATTNKIT_BAD_ARGUMENT, "bytes is %zu: %lld needed", bytes,
                        (long long)layer->bytes);
    for (int i = 0; status == ATTNKIT_OK && i < PARTS; i++)
        status = attnkit_bind(&memory[i], &tensors[i], data[i], message);
    return status == ATTNKIT_OK ? attnkit_check_overlaps(memory, PARTS, message) : status;
}

/* Clears the padding after the part of the packed weights that ends at byte `end`, so that equal
 * weights give equal bytes. */
static void clear_gap(char *packed, int64_t end)
{
    memset(packed + end, 0, (size_t)(-end & (MATRIX_ALIGNMENT - 1)));
}

static void clear_gaps(const struct layer *layer, char *packed)
{
    for (int i = 0; i < PROJECTIONS; i++) {
        const struct projection_shape *p = &layer->projection[i];
        clear_gap(packed,
                  p->w + matrix_tiles(p->out_dim) * matrix_tile_bytes(layer->type, p->in_dim));
        if (p->has_bias)
            clear_gap(packed, p->bias + p->out_dim * (int64_t)sizeof(float));
    }
}

static void write_biases(const attnkit_layer_weights *w, const struct layer *layer,
                         const struct kernels *kernels,
                         const struct matrix_source source[PROJECTIONS], char *packed)
{
    const fp_modes callers = fp_modes_begin();
    for (int i = 0; i < PROJECTIONS; i++)
        if (layer->projection[i].has_bias)
            kernels->widen((enum type)w->bias_type, source[i].b, NULL, 0,
                           layer->projection[i].out_dim,
                           (float *)(packed + layer->projection[i].bias));
    fp_modes_end(callers);
}

static void pack_matrices(const attnkit_layer_weights *w, const struct layer *layer,
                          const struct kernels *kernels, const attnkit_exec *exec,
                          const struct matrix_source source[PROJECTIONS], char *packed)
{
    for (int i = 0; i < PROJECTIONS; i++) {
        const struct projection_shape *p = &layer->projection[i];
        const struct packing packing = {
            .out_dim = p->out_dim,
            .in_dim = p->in_dim,
            .type = (enum type)w->w_type,
            .packed_type = layer->type,
            .w = source[i].w,
            .stride = bytes_of((enum type)w->w_type, p->in_dim),
            .packed = packed + p->w,
        };
        attnkit_pack_execute(&packing, kernels, exec);
    }
}

attnkit_status attnkit_layer_pack(const attnkit_layer_weights *weights, void *packed, size_t bytes,
                                  const attnkit_exec *exec, char *message)
{
    attnkit_layer_weights w = {0};
    struct description d;
    struct layer layer;
    struct matrix_source source[PROJECTIONS];
    struct isa_choice choice;
    attnkit_exec ours;
    attnkit_status status = check_shape(weights, &w, &d, &layer, message);
    if (status != ATTNKIT_OK)
        return status;
    find_sources(&w, &layer, source);
    status = check_memory(&w, &layer, source, packed, bytes, message);
    if (status == ATTNKIT_OK)
        status = attnkit_read_exec(exec, &ours, message);
    if (status == ATTNKIT_OK)
        status = attnkit_isa_pick(ours.isa, &choice, message);
    if (status != ATTNKIT_OK)
        return status;
    pack_matrices(&w, &layer, choice.kernels, &ours, source, packed);
    if (ours.thread == 0) {
        write_biases(&w, &layer, choice.kernels, source, packed);
        clear_gaps(&layer, packed);
        memcpy(packed, &d, sizeof d);
    }
    return accept(message);
}
