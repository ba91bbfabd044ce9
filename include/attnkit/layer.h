/* SPDX-License-Identifier: Apache-2.0
 *
 * attnkit: the whole multi-head attention layer. attnkit.h, options.h, cache.h and linear.h come
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
 * Self-attention has key = value = x. The layer is what its parts are: the bits are those of the
 * calls attnkit_linear, attnkit_append and attnkit_attention one after the other, with q, k, v and
 * the result of attention in binary32.
 *
 * The weights are packed once, into the caller's memory, which from then on describes the layer.
 */

/* The matrices and biases of a layer, before they are packed. */
typedef struct attnkit_layer_weights {
    size_t size; /* sizeof(attnkit_layer_weights) */

    int64_t d_model;   /* elements of a row of x */
    int64_t d_key;     /* of a row of key; 0: d_model */
    int64_t d_value;   /* of a row of value; 0: d_key */
    int64_t d_out;     /* of a row of out; 0: d_model */
    int64_t q_heads;   /* a multiple of kv_heads */
    int64_t kv_heads;  /* 0: q_heads */
    int64_t head_dim;  /* 0: d_model / q_heads, which then is whole */
    int64_t value_dim; /* 0: head_dim */

    /* Dense, in rows of an output each as PyTorch's Linear has them: w_q [q_heads * head_dim]
     * [d_model], w_k [kv_heads * head_dim][d_key], w_v [kv_heads * value_dim][d_value],
     * w_o [d_out][q_heads * value_dim]; or, with the three input dims equal, instead of the first
     * three w_qkv, which has their rows one after the other, as in_proj_weight of PyTorch's
     * MultiheadAttention. The biases b_q, b_k, b_v and b_o have an element for each row; each may
     * be NULL. */
    const void *w_q;
    const void *w_k;
    const void *w_v;
    const void *w_qkv;
    const void *w_o;
    const void *b_q;
    const void *b_k;
    const void *b_v;
    const void *b_qkv; /* instead of the first three, with w_qkv or without */
    const void *b_o;
    attnkit_type w_type;      /* of all matrices, as in attnkit_pack_args */
    attnkit_type packed_type; /* the same */
    attnkit_type bias_type;   /* ATTNKIT_F32, ATTNKIT_F16 or ATTNKIT_BF16 */
    uint32_t flags;           /* 0 */
} attnkit_layer_weights;

/* Bytes that attnkit_layer_pack writes; no pointer is read through. */
ATTNKIT_API attnkit_status attnkit_layer_packed_size(const attnkit_layer_weights *weights,
                                                     size_t *bytes, char *message);

/* Packs the weights into `packed`, aligned to 64 bytes, at least `bytes` of them, which overlaps
 * nothing. They may be kept in a file and mapped later, at any address that is aligned so. exec as
 * in attnkit_pack. */
ATTNKIT_API attnkit_status attnkit_layer_pack(const attnkit_layer_weights *weights, void *packed,
                                              size_t bytes, const attnkit_exec *exec,
                                              char *message);

#define ATTNKIT_NO_APPEND 1u /* of flags: attend over the cache as it is */

/* What a layer computes, and on what. */
typedef struct attnkit_layer_args {
    size_t size;       /* sizeof(attnkit_layer_args) */
    uint32_t flags;    /* ATTNKIT_NO_APPEND, or 0 */
    uint32_t reserved; /* 0 */

    const void *packed; /* what attnkit_layer_pack wrote */
    size_t packed_size; /* at least what attnkit_layer_packed_size says */

    /* batch or q_len of 0 are legal: there is no result, but new keys go into the cache. */
    int64_t batch;
    int64_t q_len;
    int64_t kv_len; /* rows of key, 0 without key */

    /* x [batch][q_len][d_model], key [batch][kv_len][d_key], value [batch][kv_len][d_value], out
     * [batch][q_len][d_out], each of ATTNKIT_F32, F16 or BF16, key and value of the type of x.
     * strides[0] is of batch entries, strides[2] of rows, strides[1] is not looked at. Without key,
     * key and value are x, and kv_len is 0; without value it is key. out overlaps nothing. With
     * cu_seqlens_q or cu_seqlens_kv of the attention's storage shapes begin with the rows; without
     * key, cu_seqlens_q are cu_seqlens_kv, too. */
    attnkit_tensor x;
    attnkit_tensor key;
    attnkit_tensor value;
    attnkit_tensor out;

    /* Rotation of q and of new keys, or NULL: row i of entry b of both is at positions[b] + i,
     * without positions at cached[b] + i, and without a cache at i. Only without key. */
    const attnkit_rotation *rotation;

    /* Everything else that an attention call has: flags, align, scale, lse and the groups, shaped
     * and strided as there; NULL: nothing of it. What the layer knows is 0: batch, heads, dims,
     * q_len and kv_len (but see below), q and out.
     *
     * Cache: with `cached`, attention has the cache: k, v, their storage, and the room in kv_len.
     * The call appends the new keys and values, those of x or key, behind the cached[b] that are
     * there, by attnkit_append; with ATTNKIT_NO_APPEND it appends none, W_K and W_V are not used
     * and there is no key. The rows then see cached[b] and new keys, as if that were kv_lens, which
     * is none. Not with packed sequences. Without `cached` k and v of attention are none. */
    const attnkit_attention_args *attention;
    attnkit_ints cached; /* [batch], or none: no cache */

    /* ATTNKIT_WEIGHTS_SOFTMAX, the mean of all heads, dense [batch][q_len][keys], with cu_seqlens_q
     * [q_len][keys], where keys is kv_len of the attention; or NULL. Not with weights of another
     * kind. */
    float *mean_weights;
} attnkit_layer_args;

/* Bytes of workspace that attnkit_layer needs for these args and this exec (NULL: one thread). Of
 * what `packed` points to it reads the description, at `attention` the struct; of other pointers it
 * only matters which are NULL. About 4 bytes for each element of q, k, v and the result of
 * attention, with mean_weights alone for each weight of each head, and what the calls need. */
ATTNKIT_API attnkit_status attnkit_layer_workspace(const attnkit_layer_args *args,
                                                   const attnkit_exec *exec, size_t *bytes,
                                                   char *message);

/* The layer. exec as for attention; threads of your own need its barrier. On an error out, cache,
 * lse and weights are as they were. Cost: that of four attnkit_linear, the appends and the
 * attention; for one row that is reading the weights and the cache once. */
ATTNKIT_API attnkit_status attnkit_layer(const attnkit_layer_args *args, const attnkit_exec *exec,
                                         char *message);

/* Plan and run, as those of an attention: batch, q_len, kv_len (of key, and the room of a cache)
 * and exec.threads are upper bounds. One plan serves all layers whose packed weights describe the
 * same shapes and types; of packed weights, too, planning reads the description.
 * attnkit_layer_plan_size: bytes of a plan, whose memory is aligned to 16. */
ATTNKIT_API size_t attnkit_layer_plan_size(void);

/* Writes a plan, as attnkit_attention_plan does. */
ATTNKIT_API attnkit_status attnkit_layer_plan(const attnkit_layer_args *args,
                                              const attnkit_exec *exec, void *plan,
                                              size_t plan_size, char *message);

/* Bytes of workspace that any run of the plan needs. */
ATTNKIT_API attnkit_status attnkit_layer_plan_workspace(const void *plan, size_t *bytes,
                                                        char *message);

/* What a run brings: fields of the same names in attnkit_layer_args; positions, cos and sin are the
 * rotation's. attention has the cache, lse, q_offsets, cu_seqlens and the data of the groups; its
 * batch and q_len are 0, its kv_len is the room of the cache, 0 without one, q and out are NULL. */
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

/* Runs a plan. exec as for attnkit_attention_run. */
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
