/* SPDX-License-Identifier: Apache-2.0
 *
 * Shapes of calls, and types such as f16, as text. The shape R512_I4096_O2048 is a linear map of
 * 512 rows, 4096 inputs and 2048 outputs. An example of a shape of attention is
 * B1_H32_8_L2048_D128_causal:
 *
 *   B1         batch entries
 *   H32_8      query heads, KV heads; H12 if equal
 *   L448x1500  query rows, keys; L2048 if equal
 *   D64x128    head_dim, value_dim; D64 if equal
 *   _M4096     a layer: rows of 4096 elements in and out. If there are more keys than rows, the
 *              first keys are in the layer's cache
 *   _causal    a row sees the keys up to its own; the last row sees all keys
 *   _pad       not for a layer: batch entry b has (16 - b % 8) / 16 of the keys, on average 78 %
 *              with 8 batch entries
 *   _token     K and V, or the cache, are [batch][keys][heads][dim], not [batch][heads][keys][dim]
 *   _tiles     K is in tiles of 16 keys (ATTNKIT_TILED), V is not
 *   _window512 a row sees the 512 keys up to its own; rows have positions as with _causal
 *
 * and, not for a layer, at most one of
 *
 *   _alltrue   a bool mask [rows][keys] for all heads; every row sees every key
 *   _dense     _causal as a bool mask [rows][keys]
 *   _half      _causal as an additive f16 mask of 0 and -inf
 *   _tree      a speculative tree: with n rows, a row sees all keys before the last n keys. Among
 *              the last n keys it sees its own key and its ancestors' keys in a binary tree
 *   _cells     row i of n sees every n-th key from key i on, as if n sequences shared one cache
 *   _padmask   _pad as a bool mask [batch][keys]
 *   _bias      an additive mask [rows][keys] of random f32 for all heads
 *   _scaledbias  the mask of _bias, and for each head a factor of the mask
 *   _ring      the cache is a ring, by key_index: the newest keys are in the first third of the
 *              cells, and the oldest key is in the cell after them
 *   _integers  K and V of I8 or Q8_0 are multiplied as integers (ATTNKIT_INTEGERS)
 *   _products  products of bf16 (ATTNKIT_BF16_PRODUCTS). q, K and V must be bf16, so the types of
 *              the row are bf16_bf16 (see types_parse)
 *   _shortproducts  like _products, but with ATTNKIT_SHORT_WEIGHTS
 *   _alibi _softcap _sinks _dropout  the score mod of this name (attnkit_score_mods)
 *   _weights   the call also writes the weights of the softmax (attnkit_weights_out)
 */
#ifndef ATTNKIT_SHAPE_H
#define ATTNKIT_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "attnkit.h"

enum { SHAPE_TEXT = 128 };

enum extra {
    NO_EXTRA,
    ALL_TRUE,
    DENSE_CAUSAL,
    HALF_CAUSAL,
    TREE,
    CELLS,
    PAD_MASK,
    BIAS,
    SCALED_BIAS,
    RING,
    ALIBI,
    SOFTCAP,
    SINKS,
    DROPOUT,
    WEIGHTS,
    INTEGERS,
    PRODUCTS,
    SHORT_PRODUCTS,
    EXTRAS,
};

struct shape {
    int64_t batch, q_heads, kv_heads, q_len, kv_len, head_dim, value_dim;
    int64_t d_model;                         /* layers only; 0: attention */
    bool causal, padded, token_major, tiled; /* token_major and tiled exclude each other */
    int64_t window;                          /* keys; 0: none */
    enum extra extra;
};

struct linear_shape {
    int64_t rows, in_dim, out_dim;
    bool integers; /* "_integers": the map multiplies integers (ATTNKIT_INTEGERS) */
};

/* Reads a shape. Returns false if the text is not a shape. */
bool shape_parse(const char *text, struct shape *shape);
bool linear_shape_parse(const char *text, struct linear_shape *shape);

/* Writes the shortest form of a shape to `text`. Returns `text`. */
const char *shape_text(const struct shape *shape, char text[SHAPE_TEXT]);
const char *linear_shape_text(const struct linear_shape *shape, char text[SHAPE_TEXT]);

/* Returns the number of keys of a batch entry, without the keys that _pad or _padmask hides. */
int64_t shape_keys(const struct shape *shape, int64_t batch);

/* Returns whether the shape is a layer with a cache. */
bool shape_is_cached(const struct shape *shape);

/* Returns the FLOPs of the visible pairs of rows and keys, without the projections of a layer. If
 * all rows see all keys, a query head of a batch entry has 2 (head_dim + value_dim) q_len kv_len
 * FLOPs. For a causal call with q_len = kv_len, half as many are counted. With a window, only pairs
 * within the window count. With _tree or _cells, the pairs that the mask hides count, too. */
double shape_flops(const struct shape *shape);

/* Returns the bytes of K and V in this type, including scales. Keys that _pad or _padmask hides and
 * keys outside the windows of all rows are not counted. All other keys are counted, visible or
 * not. */
double shape_kv_bytes(const struct shape *shape, attnkit_type type);

/* Reads a type: "f32", "f16", "bf16", "i8", "q8_0", "q4_0" and so on. Returns false if the text is
 * not a type. */
bool type_parse(const char *text, attnkit_type *type);
const char *type_text(attnkit_type type);

/* Types in the name of a row of the benches: the type of K and V or of the matrix, with "bf16_"
 * before it if the input is bf16, as in "bf16_bf16". types_parse returns false if the text is no
 * such name. */
bool types_parse(const char *text, attnkit_type *type, attnkit_type *input);
const char *input_text(attnkit_type input); /* "bf16_" if the input is bf16, else "" */

/* type_row_bytes returns the bytes of a row of K or V. type_scale_bytes returns the bytes of the
 * scale that lies outside the row, or 0. In the benches, ATTNKIT_I8 and ATTNKIT_F8_E4M3 have one
 * such scale for each row. Other types have none. */
int64_t type_row_bytes(attnkit_type type, int64_t dim);
int64_t type_scale_bytes(attnkit_type type);

#endif
