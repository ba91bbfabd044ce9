/* SPDX-License-Identifier: Apache-2.0
 *
 * attnkit: the whole multi-head attention layer. Read attnkit.h, options.h, cache.h and linear.h
 * first.
 */
#include "attnkit.h" /* which includes this file in its turn */

#ifndef ATTNKIT_PUBLIC_LAYER_H
#define ATTNKIT_PUBLIC_LAYER_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------
 * The multi-head attention layer: projections, attention, output projection.
 *
 *     q = x W_Qᵀ + b_q     k = key W_Kᵀ + b_k     v = value W_Vᵀ + b_v     each row cut into heads
 *     out = attention(rotate(q), rotate(k), v) W_Oᵀ + b_o
 *
 * Self-attention has key = value = x. A layer gives the same bits as its parts: the calls
 * attnkit_linear, attnkit_append and attnkit_attention one after the other, with q, k, v and the
 * result of attention in binary32. In a cache, k and v have the types of the cache.
 *
 * The weights are packed once, into the caller's memory. The packed weights also hold the shapes
 * and types of the layer.
 */

/* The matrices and biases of a layer, before they are packed. */
typedef struct attnkit_layer_weights {
    size_t size; /* sizeof(attnkit_layer_weights) */

    int64_t d_model;   /* elements of a row of x */
    int64_t d_key;     /* elements of a row of key; 0: d_model */
    int64_t d_value;   /* elements of a row of value; 0: d_key */
    int64_t d_out;     /* elements of a row of out; 0: d_model */
    int64_t q_heads;   /* a multiple of kv_heads */
    int64_t kv_heads;  /* 0: q_heads */
    int64_t head_dim;  /* 0: d_model / q_heads, which must be an integer */
    int64_t value_dim; /* 0: head_dim */

    /* Dense matrices with a row for each output, as in PyTorch's Linear:
     * w_q [q_heads * head_dim][d_model], w_k [kv_heads * head_dim][d_key],
     * w_v [kv_heads * value_dim][d_value], w_o [d_out][q_heads * value_dim]. If d_model, d_key and
     * d_value are equal, w_qkv may replace w_q, w_k and w_v. w_qkv has the rows of w_q, w_k and w_v
     * one after the other, like in_proj_weight of PyTorch's MultiheadAttention. Each of the biases
     * b_q, b_k, b_v and b_o has an element for each row of its matrix, or is NULL. */
    const void *w_q;
    const void *w_k;
    const void *w_v;
    const void *w_qkv;
    const void *w_o;
    const void *b_q;
    const void *b_k;
    const void *b_v;
    const void *b_qkv; /* instead of b_q, b_k and b_v; allowed with w_qkv and without it */
    const void *b_o;
    attnkit_type w_type;      /* type of all matrices, as w.type in attnkit_pack_args */
    attnkit_type packed_type; /* packed type of all matrices, as in attnkit_pack_args */
    attnkit_type bias_type;   /* ATTNKIT_F32, ATTNKIT_F16 or ATTNKIT_BF16 */
    uint32_t flags;           /* 0 */
} attnkit_layer_weights;

/* Sets *bytes to the size of the packed weights. Reads no matrix and no bias: it only matters which
 * pointers to matrices and biases are NULL. */
ATTNKIT_API attnkit_status attnkit_layer_packed_size(const attnkit_layer_weights *weights,
                                                     size_t *bytes, char *message);

/* Packs the weights into `packed`. This memory is aligned to 64 bytes and overlaps nothing. `bytes`
 * is the size of this memory, at least the size that attnkit_layer_packed_size sets. Packed weights
 * may be kept in a file and mapped later, at any address with this alignment. exec is as in
 * attnkit_pack. */
ATTNKIT_API attnkit_status attnkit_layer_pack(const attnkit_layer_weights *weights, void *packed,
                                              size_t bytes, const attnkit_exec *exec,
                                              char *message);

#define ATTNKIT_NO_APPEND 1u /* bit of flags: attend over the cache, append nothing */

/* The arguments of a layer. */
typedef struct attnkit_layer_args {
    size_t size;       /* sizeof(attnkit_layer_args) */
    uint32_t flags;    /* ATTNKIT_NO_APPEND, or 0 */
    uint32_t reserved; /* 0 */

    const void *packed; /* weights that attnkit_layer_pack wrote */
    size_t packed_size; /* bytes, at least the size that attnkit_layer_packed_size sets */

    /* batch and q_len may be 0. If q_len is 0, there is no result, but a layer with a cache still
     * appends the rows of key. */
    int64_t batch;
    int64_t q_len;
    int64_t kv_len; /* rows of key, 0 without key */

    /* x [batch][q_len][d_model], key [batch][kv_len][d_key], value [batch][kv_len][d_value], out
     * [batch][q_len][d_out], each of ATTNKIT_F32, F16 or BF16; key and value have the type of x.
     * With ATTNKIT_STRIDED, strides[0] is the stride of batch entries, strides[2] of rows, and
     * strides[1] is ignored. Without key, x serves as key and value, and kv_len is 0. Without
     * value, key serves as value. out overlaps nothing. If the attention's storage has
     * cu_seqlens_q, x and out have no batch dimension. If the storage has cu_seqlens_kv, key and
     * value have no batch dimension. Without key, cu_seqlens_q also serves as cu_seqlens_kv. */
    attnkit_tensor x;
    attnkit_tensor key;
    attnkit_tensor value;
    attnkit_tensor out;

    /* Rotation of q and of new keys, or NULL. Not allowed if `key` is given. In q and in the
     * new keys, row i of entry b is at position positions[b] + i. Without positions, row i is at
     * cached[b] + i, or at i if there is no cache. */
    const attnkit_rotation *rotation;

    /* All other arguments of attention: flags, align, scale, lse, q_offsets and the groups, with
     * their shapes and strides. NULL stands for arguments that are all 0. Fields that the layer
     * sets itself must be 0: batch, heads, dims, q_len, kv_len (except with a cache), q and out.
     * first_key, state_in, state_out, ATTNKIT_INTEGERS, ATTNKIT_BF16_PRODUCTS and
     * ATTNKIT_SHORT_WEIGHTS are not supported.
     *
     * Cache: with `cached`, k, v and storage of attention are the cache, and kv_len of attention is
     * the room in the cache: the number of keys that the cache can hold for each entry. The call
     * computes new keys and values from x or key and appends them after the first cached[b] keys,
     * as attnkit_append does. With ATTNKIT_NO_APPEND the call appends no keys: it does not use W_K
     * and W_V, and key must be none. A row can see the cached[b] old keys and the new keys. kv_lens
     * must be none. A cache is not allowed with packed sequences. Without `cached`, attention must
     * have no k, no v, no scales of k and v, and no pages. */
    const attnkit_attention_args *attention;
    attnkit_ints cached; /* [batch], keys in the cache; none: no cache */

    /* The mean over all heads of ATTNKIT_WEIGHTS_SOFTMAX, or NULL. Dense: [batch][q_len][keys], or
     * [q_len][keys] if the call has cu_seqlens_q. With a cache, `keys` is the room in the cache.
     * Without a cache, `keys` is kv_len, or q_len if key is none. Not allowed with weights of
     * another kind. */
    float *mean_weights;
} attnkit_layer_args;

/* Sets *bytes to the workspace that attnkit_layer needs for these args and this exec (NULL: one
 * thread). Reads the struct `attention` with its groups, the struct `rotation`, and shapes and
 * types from `packed`; for all other pointers it only matters whether they are NULL. The size is
 * about the sum of three terms. The first term is 4 bytes for each element of q, k, v and the
 * result of attention. The second term is 4 bytes for each weight of each head, if mean_weights is
 * given and attention asks for no weights. The third term is the workspace of the part that needs
 * the most. */
ATTNKIT_API attnkit_status attnkit_layer_workspace(const attnkit_layer_args *args,
                                                   const attnkit_exec *exec, size_t *bytes,
                                                   char *message);

/* Computes a layer. exec is as for attention, but several threads of your own need a barrier. After
 * an error, out, the cache, lse, weights and mean_weights are unchanged.
 * Cost: four calls of attnkit_linear (two with ATTNKIT_NO_APPEND), the appends and the attention. A
 * call with one row reads the weights and the cache once. */
ATTNKIT_API attnkit_status attnkit_layer(const attnkit_layer_args *args, const attnkit_exec *exec,
                                         char *message);

/* Plan and run, as for attention. batch, q_len, kv_len, attention->kv_len and exec.threads are
 * upper bounds. Planning reads shapes and types from `packed`. One plan serves all layers whose
 * packed weights have the same shapes and types. attnkit_layer_plan_size returns the bytes of a
 * plan. The memory of a plan must be aligned to 16 bytes. */
ATTNKIT_API size_t attnkit_layer_plan_size(void);

/* Writes a plan, as attnkit_attention_plan does. */
ATTNKIT_API attnkit_status attnkit_layer_plan(const attnkit_layer_args *args,
                                              const attnkit_exec *exec, void *plan,
                                              size_t plan_size, char *message);

/* Sets *bytes to the workspace that any run of the plan needs. */
ATTNKIT_API attnkit_status attnkit_layer_plan_workspace(const void *plan, size_t *bytes,
                                                        char *message);

/* The lengths and pointers of a run. Each field has the meaning of the field with the same name in
 * attnkit_layer_args; positions, cos and sin are arrays of the rotation. attention has the cache,
 * lse, q_offsets, cu_seqlens and the data of the groups. In attention, batch and q_len are 0,
 * kv_len is the room in the cache (0 without a cache), q and out are NULL. */
typedef struct attnkit_layer_data {
    size_t size; /* sizeof(attnkit_layer_data) */
    const void *packed;
    size_t packed_size;
    int64_t batch;
    int64_t q_len;
    int64_t kv_len;
    const void *x;
    const void *key;
    const void *value;
    void *out;
    const void *cached;
    const void *positions;
    const float *cos;
    const float *sin;
    const attnkit_attention_data *attention; /* or NULL */
    float *mean_weights;
} attnkit_layer_data;

/* Runs a plan. exec is as for attnkit_attention_run. */
ATTNKIT_API attnkit_status attnkit_layer_run(const void *plan, const attnkit_layer_data *data,
                                             const attnkit_exec *exec, char *message);

static inline void attnkit_layer_weights_init(attnkit_layer_weights *weights)
{
    memset(weights, 0, sizeof *weights);
    weights->size = sizeof *weights;
}

static inline void attnkit_layer_args_init(attnkit_layer_args *args)
{
    memset(args, 0, sizeof *args);
    args->size = sizeof *args;
}

static inline void attnkit_layer_data_init(attnkit_layer_data *data)
{
    memset(data, 0, sizeof *data);
    data->size = sizeof *data;
}

#ifdef __cplusplus
}
#endif

#endif /* ATTNKIT_PUBLIC_LAYER_H */
