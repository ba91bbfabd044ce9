/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts shapes and types from text to numbers and back, and computes the FLOPs and bytes of a
 * shape.
 */
#include "bench/rows/shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

enum { MAX_SIZE = 1 << 30 }; /* sums of two sizes then never overflow */

/* Reads `prefix` and a number, and advances *text past the number. Returns false if the text does
 * not begin with `prefix` and a number from 1 to MAX_SIZE. *size receives a larger number, too, and
 * is unchanged if there is no number. */
static bool take_size(const char **text, const char *prefix, int64_t *size)
{
    const size_t length = strlen(prefix);
    char *end;
    if (strncmp(*text, prefix, length) || (*text)[length] < '1' || (*text)[length] > '9')
        return false;
    const long long number = strtoll(*text + length, &end, 10);
    *text = end;
    *size = number;
    return number <= MAX_SIZE;
}

/* Reads "<prefix>a<between>b", or "<prefix>a" for two equal numbers. */
static bool take_pair(const char **text, const char *prefix, const char *between, int64_t *a,
                      int64_t *b)
{
    if (!take_size(text, prefix, a))
        return false;
    *b = *a;
    return strncmp(*text, between, strlen(between)) || (*text)[strlen(between)] < '0' ||
           (*text)[strlen(between)] > '9' || take_size(text, between, b);
}

static bool take_word(const char **text, const char *word)
{
    const size_t length = strlen(word);
    if (strncmp(*text, word, length))
        return false;
    *text += length;
    return true;
}

static const char *const extras[EXTRAS] = {
    [NO_EXTRA] = "",          [ALL_TRUE] = "_alltrue",  [DENSE_CAUSAL] = "_dense",
    [HALF_CAUSAL] = "_half",  [TREE] = "_tree",         [CELLS] = "_cells",
    [PAD_MASK] = "_padmask",  [BIAS] = "_bias",         [SCALED_BIAS] = "_scaledbias",
    [RING] = "_ring",         [ALIBI] = "_alibi",       [SOFTCAP] = "_softcap",
    [SINKS] = "_sinks",       [DROPOUT] = "_dropout",   [WEIGHTS] = "_weights",
    [INTEGERS] = "_integers", [PRODUCTS] = "_products", [SHORT_PRODUCTS] = "_shortproducts",
};

static enum extra take_extra(const char **text)
{
    for (int i = NO_EXTRA + 1; i < EXTRAS; i++)
        if (take_word(text, extras[i]))
            return (enum extra)i;
    return NO_EXTRA;
}

bool shape_is_cached(const struct shape *shape)
{
    return shape->d_model > 0 && shape->q_len < shape->kv_len;
}

bool shape_parse(const char *text, struct shape *shape)
{
    if (!take_size(&text, "B", &shape->batch) ||
        !take_pair(&text, "_H", "_", &shape->q_heads, &shape->kv_heads) ||
        !take_pair(&text, "_L", "x", &shape->q_len, &shape->kv_len) ||
        !take_pair(&text, "_D", "x", &shape->head_dim, &shape->value_dim))
        return false;
    shape->d_model = shape->window = 0;
    const bool is_layer = take_size(&text, "_M", &shape->d_model);
    if (!is_layer && shape->d_model)
        return false;
    const bool has_kv = !is_layer || shape_is_cached(shape);
    shape->causal = take_word(&text, "_causal");
    shape->padded = !is_layer && strncmp(text, "_padmask", 8) && take_word(&text, "_pad");
    shape->token_major = has_kv && take_word(&text, "_token");
    shape->tiled = has_kv && !shape->token_major && take_word(&text, "_tiles");
    if (!take_size(&text, "_window", &shape->window) && shape->window)
        return false;
    shape->extra = is_layer ? NO_EXTRA : take_extra(&text);
    return !*text && (!is_layer || shape->q_len <= shape->kv_len);
}

bool linear_shape_parse(const char *text, struct linear_shape *shape)
{
    if (!take_size(&text, "R", &shape->rows) || !take_size(&text, "_I", &shape->in_dim) ||
        !take_size(&text, "_O", &shape->out_dim))
        return false;
    shape->integers = take_word(&text, "_integers");
    return !*text;
}

static void append(char text[SHAPE_TEXT], const char *prefix, int64_t size)
{
    const size_t used = strlen(text);
    snprintf(text + used, SHAPE_TEXT - used, "%s%lld", prefix, (long long)size);
}

static void append_pair(char text[SHAPE_TEXT], const char *prefix, const char *between, int64_t a,
                        int64_t b)
{
    append(text, prefix, a);
    if (a != b)
        append(text, between, b);
}

const char *shape_text(const struct shape *shape, char text[SHAPE_TEXT])
{
    text[0] = '\0';
    append(text, "B", shape->batch);
    append_pair(text, "_H", "_", shape->q_heads, shape->kv_heads);
    append_pair(text, "_L", "x", shape->q_len, shape->kv_len);
    append_pair(text, "_D", "x", shape->head_dim, shape->value_dim);
    if (shape->d_model)
        append(text, "_M", shape->d_model);
    strcat(text, shape->causal ? "_causal" : "");
    strcat(text, shape->padded ? "_pad" : "");
    strcat(text, shape->token_major ? "_token" : shape->tiled ? "_tiles" : "");
    if (shape->window)
        append(text, "_window", shape->window);
    return strcat(text, extras[shape->extra]);
}

const char *linear_shape_text(const struct linear_shape *shape, char text[SHAPE_TEXT])
{
    text[0] = '\0';
    append(text, "R", shape->rows);
    append(text, "_I", shape->in_dim);
    append(text, "_O", shape->out_dim);
    return strcat(text, shape->integers ? "_integers" : "");
}

int64_t shape_keys(const struct shape *shape, int64_t batch)
{
    const bool padded = shape->padded || shape->extra == PAD_MASK;
    return shape->kv_len - (padded ? shape->kv_len * (batch % 8) / 16 : 0);
}

static double windowed_pairs(const struct shape *shape, int64_t batch)
{
    const int64_t keys = shape_keys(shape, batch);
    double pairs = 0.0;
    for (int64_t i = 0; i < shape->q_len; i++) {
        const int64_t up_to = keys - shape->q_len + i + 1;
        pairs += up_to < 0 ? 0.0 : (double)(up_to < shape->window ? up_to : shape->window);
    }
    return pairs;
}

/* Returns the number of pairs of a row and a key that the row sees, for one head of batch entry
 * `batch`. In a causal call with as many keys as rows, half of all (row, key) pairs are counted.
 * Pairs that a mask of TREE or of CELLS hides are counted, too. */
static double visible_pairs(const struct shape *shape, int64_t batch)
{
    const double rows = (double)shape->q_len, keys = (double)shape_keys(shape, batch);
    if (shape->window)
        return windowed_pairs(shape, batch);
    if (!shape->causal && shape->extra != DENSE_CAUSAL && shape->extra != HALF_CAUSAL)
        return rows * keys;
    return rows <= keys ? rows * keys - rows * rows / 2.0 : keys * keys / 2.0;
}

double shape_flops(const struct shape *shape)
{
    double pairs = 0.0;
    for (int64_t b = 0; b < shape->batch; b++)
        pairs += visible_pairs(shape, b);
    return 2.0 * (double)(shape->head_dim + shape->value_dim) * (double)shape->q_heads * pairs;
}

static const char *const types[] = {
    [ATTNKIT_F32] = "f32",        [ATTNKIT_F16] = "f16",   [ATTNKIT_BF16] = "bf16",
    [ATTNKIT_I8] = "i8",          [ATTNKIT_Q8_0] = "q8_0", [ATTNKIT_Q4_0] = "q4_0",
    [ATTNKIT_Q4_1] = "q4_1",      [ATTNKIT_Q5_0] = "q5_0", [ATTNKIT_Q5_1] = "q5_1",
    [ATTNKIT_IQ4_NL] = "iq4_nl",  [ATTNKIT_Q1_0] = "q1_0", [ATTNKIT_Q2_0] = "q2_0",
    [ATTNKIT_F8_E4M3] = "f8_e4m3"};

bool type_parse(const char *text, attnkit_type *type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(text, types[i])) {
            *type = (attnkit_type)i;
            return true;
        }
    return false;
}

const char *type_text(attnkit_type type)
{
    return types[type];
}

const char *input_text(attnkit_type input)
{
    return input == ATTNKIT_BF16 ? "bf16_" : "";
}

bool types_parse(const char *text, attnkit_type *type, attnkit_type *input)
{
    const char *const before = input_text(ATTNKIT_BF16);
    *input = ATTNKIT_F32;
    if (!strncmp(text, before, strlen(before))) {
        *input = ATTNKIT_BF16;
        text += strlen(before);
    }
    return type_parse(text, type);
}

int64_t type_row_bytes(attnkit_type type, int64_t dim)
{
    return bytes_of((enum type)type, dim);
}

int64_t type_scale_bytes(attnkit_type type)
{
    return has_scales((enum type)type) ? (int64_t)sizeof(float) : 0;
}

double shape_kv_bytes(const struct shape *shape, attnkit_type type)
{
    const int64_t key = type_row_bytes(type, shape->head_dim) +
                        type_row_bytes(type, shape->value_dim) + 2 * type_scale_bytes(type);
    double keys = 0.0;
    for (int64_t b = 0; b < shape->batch; b++) {
        const int64_t all = shape_keys(shape, b), last = shape->window + shape->q_len - 1;
        keys += (double)(shape->window && last < all ? last : all);
    }
    return (double)key * (double)shape->kv_heads * keys;
}
