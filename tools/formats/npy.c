/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads .npy files. An .npy file consists of the magic "\x93NUMPY", a version (two bytes), the
 * length of the header (two bytes, or four from version 2 on, little-endian), the header, and the
 * elements. The header is a Python dict literal, as in
 *
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 *
 * padded with spaces and ended by a newline. A file need not be trusted: each size in it is checked
 * against the size of the file before anything is allocated.
 */
#include "tools/formats/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/formats/source.h"
#include "tools/cli/tool.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are read as they lie");

enum {
    MAGIC_SIZE = 6,
    PREFIX_V1 = 10,     /* magic, version, two bytes of length */
    PREFIX_V2 = 12,     /* magic, version, four bytes of length */
    MAX_HEADER = 65535, /* bytes, the limit of version 1; NumPy reads at most 10000 by default */
    DESCR_SIZE = 24
};

static const char magic[MAGIC_SIZE + 1] = "\x93NUMPY";

/* ------------------------------------------------------------------------------- the header */

struct header {
    char descr[DESCR_SIZE];
    bool fortran_order;
    int rank;                    /* from the file; may be more than NPY_MAX_RANK */
    int64_t shape[NPY_MAX_RANK]; /* sizes of the first dimensions */
};

/* The rest of the text, which has not been parsed yet. */
struct text {
    const char *at;
    const char *end;
};

static void skip_spaces(struct text *text)
{
    while (text->at < text->end && *text->at == ' ')
        text->at++;
}

/* Skips spaces, then takes the next character if it is c. Returns whether it is c. */
static bool take(struct text *text, char c)
{
    skip_spaces(text);
    if (text->at == text->end || *text->at != c)
        return false;
    text->at++;
    return true;
}

static bool take_word(struct text *text, const char *word)
{
    const size_t length = strlen(word);
    if (!take(text, word[0]))
        return false;
    if ((size_t)(text->end - text->at) < length - 1 || memcmp(text->at, word + 1, length - 1))
        return false;
    text->at += length - 1;
    return true;
}

/* Takes a string without escapes, in single or double quotes. Only printable ASCII is accepted,
 * because the string may go into a message. */
static bool take_string(struct text *text, char string[DESCR_SIZE])
{
    const char quote = take(text, '\'') ? '\'' : '"';
    if (quote == '"' && !take(text, '"'))
        return false;
    for (int i = 0; i < DESCR_SIZE && text->at < text->end; i++) {
        const char c = *text->at++;
        string[i] = c;
        if (c == quote) {
            string[i] = '\0';
            return true;
        }
        if (c < ' ' || c > '~' || c == '\\')
            return false;
    }
    return false;
}

static bool take_size(struct text *text, int64_t *size)
{
    skip_spaces(text);
    const char *const first = text->at;
    *size = 0;
    for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++)
        if (__builtin_mul_overflow(*size, 10, size) ||
            __builtin_add_overflow(*size, *text->at - '0', size))
            return false;
    return text->at > first;
}

/* Takes a tuple of sizes, such as (), (3,) or (3, 4). */
static bool take_shape(struct text *text, struct header *header)
{
    header->rank = 0;
    if (!take(text, '('))
        return false;
    while (!take(text, ')')) {
        int64_t size;
        if (!take_size(text, &size))
            return false;
        if (header->rank < NPY_MAX_RANK)
            header->shape[header->rank] = size;
        header->rank++;
        if (take(text, ','))
            continue;
        return header->rank > 1 && take(text, ')');
    }
    return true;
}

static bool take_bool(struct text *text, bool *value)
{
    *value = take_word(text, "True");
    return *value || take_word(text, "False");
}

/* Takes one `key: value`. Sets bit i of *seen if the key is keys[i]. Each key may occur once. */
static bool take_entry(struct text *text, struct header *header, unsigned *seen)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    char key[DESCR_SIZE];
    if (!take_string(text, key) || !take(text, ':'))
        return false;
    unsigned i = 0;
    while (i < 3 && strcmp(key, keys[i]))
        i++;
    if (i == 3 || *seen >> i & 1)
        return false;
    *seen |= 1u << i;
    if (i == 0)
        return take_string(text, header->descr);
    return i == 1 ? take_bool(text, &header->fortran_order) : take_shape(text, header);
}

/* Parses the whole header. If parse_header returns false, text->at points to the place that could
 * not be understood. */
static bool parse_header(struct text *text, struct header *header)
{
    unsigned seen = 0;
    if (!take(text, '{'))
        return false;
    while (seen != 7) {
        if (!take_entry(text, header, &seen))
            return false;
        if (!take(text, ',') && seen != 7)
            return false;
    }
    return take(text, '}') && take(text, '\n') && text->at == text->end;
}

/* ------------------------------------------------------------------------- what a file holds */

static const struct {
    const char *descr, *name;
    size_t bytes;
} types[NPY_TYPES] = {
    [NPY_F32] = {"<f4", "float32", 4}, [NPY_F16] = {"<f2", "float16", 2},
    [NPY_BOOL] = {"|b1", "bool", 1},   [NPY_U8] = {"|u1", "uint8", 1},
    [NPY_I32] = {"<i4", "int32", 4},   [NPY_I64] = {"<i8", "int64", 8},
};

size_t npy_element(enum npy_type type)
{
    return types[type].bytes;
}

const char *npy_descr(enum npy_type type)
{
    return types[type].descr;
}

/* Writes the allowed types as in "'<f4' (float32) or '<f2' (float16)". */
static void spell_types(unsigned allowed, char text[NPY_TYPES * DESCR_SIZE])
{
    int used = 0;
    for (int i = 0; i < NPY_TYPES; i++)
        if (allowed >> i & 1)
            used += snprintf(text + used, (size_t)(NPY_TYPES * DESCR_SIZE - used), "%s'%s' (%s)",
                             used ? " or " : "", types[i].descr, types[i].name);
}

static bool find_type(const char *name, const char *descr, unsigned allowed, enum npy_type *type)
{
    for (int i = 0; i < NPY_TYPES; i++)
        if (allowed >> i & 1 && !strcmp(descr, types[i].descr)) {
            *type = (enum npy_type)i;
            return true;
        }
    char text[NPY_TYPES * DESCR_SIZE];
    spell_types(allowed, text);
    return complain("%s: its dtype is '%s': must be %s", name, descr, text);
}

static bool check_rank(const char *name, int rank, struct npy_form form)
{
    if (rank >= form.min_rank && rank <= form.max_rank)
        return true;
    if (form.min_rank == form.max_rank)
        return complain("%s: its rank is %d: must be %d", name, rank, form.min_rank);
    return complain("%s: its rank is %d: must be %d .. %d", name, rank, form.min_rank,
                    form.max_rank);
}

static bool check_header(const char *name, const struct header *header, struct npy_form form,
                         enum npy_type *type)
{
    if (!find_type(name, header->descr, form.types, type))
        return false;
    if (header->fortran_order)
        return complain("%s: its elements are in Fortran order: must be in C order", name);
    return check_rank(name, header->rank, form);
}

/* ---------------------------------------------------------------------------------- reading */

/* Reads the bytes before the header, and sets *length to the length of the header. */
static bool read_prefix(struct source *source, uint32_t *length)
{
    unsigned char prefix[PREFIX_V2] = {0};
    if (!source_take(source, prefix, PREFIX_V1))
        return false;
    if (memcmp(prefix, magic, MAGIC_SIZE))
        return complain("%s: not a .npy file", source->name);
    const int major = prefix[MAGIC_SIZE], minor = prefix[MAGIC_SIZE + 1];
    if (major < 1 || major > 3 || minor != 0)
        return complain("%s: its format is %d.%d: must be 1.0, 2.0 or 3.0", source->name, major,
                        minor);
    if (major > 1 && !source_take(source, prefix + PREFIX_V1, PREFIX_V2 - PREFIX_V1))
        return false;
    *length = prefix[8] | (uint32_t)prefix[9] << 8 | (uint32_t)prefix[10] << 16 |
              (uint32_t)prefix[11] << 24;
    if (*length > MAX_HEADER)
        return complain("%s: its header has %u bytes: must be at most %d", source->name,
                        (unsigned)*length, MAX_HEADER);
    return true;
}

static bool read_header(struct source *source, struct header *header)
{
    static char bytes[MAX_HEADER];
    uint32_t length = 0;
    if (!read_prefix(source, &length) || !source_take(source, bytes, length))
        return false;
    struct text text = {bytes, bytes + length};
    if (!parse_header(&text, header))
        return complain("%s: malformed header: byte %d of '{'descr': ..., 'fortran_order': ..., "
                        "'shape': ...}' is not understood",
                        source->name, (int)(text.at - bytes));
    return true;
}

/* Sets *bytes to the size of all elements in bytes. Returns false if this size exceeds
 * PTRDIFF_MAX. */
static bool data_bytes(int rank, const int64_t *shape, size_t element, size_t *bytes)
{
    *bytes = element;
    bool fits = true;
    for (int i = 0; i < rank; i++) {
        if (shape[i] == 0) {
            *bytes = 0;
            return true;
        }
        fits = fits && !__builtin_mul_overflow(*bytes, shape[i], bytes);
    }
    return fits && *bytes <= PTRDIFF_MAX;
}

static bool read_data(struct source *source, const struct header *header, enum npy_type type,
                      struct npy *array)
{
    size_t bytes;
    if (!data_bytes(header->rank, header->shape, npy_element(type), &bytes) ||
        bytes > (uint64_t)source->left)
        return complain("%s: not a whole .npy file: its shape needs more than the %lld bytes "
                        "after the header",
                        source->name, (long long)source->left);
    if (bytes < (uint64_t)source->left)
        return complain("%s: %lld bytes follow the %zu bytes of its array: must be none",
                        source->name, (long long)(source->left - (int64_t)bytes), bytes);
    return npy_make(source->name, type, header->rank, header->shape, array) &&
           source_take(source, array->data, bytes);
}

bool npy_read(const char *name, struct npy_form form, struct npy *array)
{
    struct source source;
    struct header header;
    enum npy_type type = NPY_F32;
    *array = (struct npy){0};
    if (!source_open(name, ".npy", &source))
        return false;
    const bool ok = read_header(&source, &header) && check_header(name, &header, form, &type) &&
                    read_data(&source, &header, type, array);
    source_close(&source);
    if (!ok)
        npy_free(array);
    return ok;
}

/* ----------------------------------------------------------------------------------- arrays */

bool npy_make(const char *name, enum npy_type type, int rank, const int64_t *shape,
              struct npy *array)
{
    *array = (struct npy){.rank = rank, .type = type};
    memcpy(array->shape, shape, (size_t)rank * sizeof *shape);
    if (data_bytes(rank, shape, npy_element(type), &array->bytes))
        array->data = calloc(1, array->bytes ? array->bytes : 1);
    if (array->data)
        return true;
    char text[NPY_SHAPE_TEXT];
    return complain("%s: no memory for the shape %s", name, npy_shape(array, text));
}

void npy_free(struct npy *array)
{
    free(array->data);
    array->data = NULL;
}

const char *npy_shape(const struct npy *array, char text[NPY_SHAPE_TEXT])
{
    int used = snprintf(text, NPY_SHAPE_TEXT, "[");
    for (int i = 0; i < array->rank; i++)
        used += snprintf(text + used, (size_t)(NPY_SHAPE_TEXT - used), "%s%lld", i ? ", " : "",
                         (long long)array->shape[i]);
    snprintf(text + used, (size_t)(NPY_SHAPE_TEXT - used), "]");
    return text;
}
