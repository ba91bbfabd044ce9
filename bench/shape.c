/* SPDX-License-Identifier: Apache-2.0
 *
 * Shapes: text to numbers and back, and what they cost.
 */
#include "shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SIZE = 1 << 30 }; /* so that no sum of two sizes overflows */

/* Takes `prefix` and a number off the text. */
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

/* Takes "<prefix>a<between>b", or "<prefix>a" for two that are equal. */
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

bool shape_parse(const char *text, struct shape *shape)
{
    if (!take_size(&text, "B", &shape->batch) ||
        !take_pair(&text, "_H", "_", &shape->q_heads, &shape->kv_heads) ||
        !take_pair(&text, "_L", "x", &shape->q_len, &shape->kv_len) ||
        !take_pair(&text, "_D", "x", &shape->head_dim, &shape->value_dim))
        return false;
    shape->causal = take_word(&text, "_causal");
    shape->padded = take_word(&text, "_pad");
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
    strcat(text, shape->causal ? "_causal" : "");
    return strcat(text, shape->padded ? "_pad" : "");
}

int64_t shape_keys(const struct shape *shape, int64_t batch)
{
    return shape->kv_len - (shape->padded ? shape->kv_len * (batch % 8) / 16 : 0);
}

/* Pairs of a row and a key it sees, for one head; a causal square counts as half of one. */
static double visible_pairs(const struct shape *shape, int64_t batch)
{
    const double rows = (double)shape->q_len, keys = (double)shape_keys(shape, batch);
    if (!shape->causal)
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

double shape_kv_bytes(const struct shape *shape)
{
    double keys = 0.0;
    for (int64_t b = 0; b < shape->batch; b++)
        keys += (double)shape_keys(shape, b);
    return 4.0 * (double)(shape->head_dim + shape->value_dim) * (double)shape->kv_heads * keys;
}
