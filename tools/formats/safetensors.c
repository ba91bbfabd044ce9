/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads safetensors files. A safetensors file consists of the length of the header (eight bytes,
 * little-endian), the header, and the bytes of the tensors. The header is JSON,
 *
 *     {"__metadata__": {"format": "pt"},
 *      "q_proj.weight": {"dtype": "BF16", "shape": [64, 64], "data_offsets": [0, 8192]}, ...}
 *
 * possibly with white space after it. The tensors lie one after the other, without gaps, and fill
 * the file, so that each byte after the header belongs to exactly one tensor.
 */
#include "tools/formats/safetensors.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/formats/json.h"
#include "tools/cli/tool.h"

enum {
    LENGTH_BYTES = 8,
    MAX_HEADER = 100000000 /* bytes; other readers have the same limit */
};

struct parser {
    struct json json;
    char *room; /* place of the next string, with room for all strings that are left to parse */
    struct safetensors *to;
    size_t capacity; /* the number of tensors that fit into to->tensors */
    char *why;       /* the reason for a refusal of the header, SAFETENSORS_WHY bytes */
};

/* ---------------------------------------------------------------------------------- one tensor */

/* Writes the reason for a refusal of the header to parser->why. Returns false. Names may be
 * megabytes long, so callers quote only their beginning, by "%.200s". */
__attribute__((format(printf, 2, 3))) static bool refuse(struct parser *parser, const char *format,
                                                         ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(parser->why, SAFETENSORS_WHY, format, arguments);
    va_end(arguments);
    return false;
}

/* Takes a string, which lives as long as to->names. Returns NULL if json_take_string refuses the
 * string. */
static const char *take_name(struct parser *parser)
{
    char *const name = parser->room;
    if (!json_take_string(&parser->json, name))
        return NULL;
    parser->room += strlen(name) + 1;
    return name;
}

static unsigned bits_of(const char *dtype)
{
    static const struct {
        const char *dtype;
        unsigned bits;
    } dtypes[] = {
        {"F32", 32},    {"F16", 16},    {"BF16", 16},   {"F64", 64},    {"I64", 64},
        {"I32", 32},    {"I16", 16},    {"I8", 8},      {"U64", 64},    {"U32", 32},
        {"U16", 16},    {"U8", 8},      {"BOOL", 8},    {"F8_E4M3", 8}, {"F8_E5M2", 8},
        {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},      {"C64", 64},
    };
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (!strcmp(dtype, dtypes[i].dtype))
            return dtypes[i].bits;
    return 0;
}

static bool take_dtype(struct parser *parser, struct safetensor *tensor)
{
    tensor->dtype = take_name(parser);
    return tensor->dtype &&
           (bits_of(tensor->dtype) ||
            refuse(parser, "an unknown dtype: '%.200s' is '%.200s'", tensor->name, tensor->dtype));
}

static bool take_shape(struct parser *parser, struct safetensor *tensor, uint64_t *elements)
{
    bool fits = true, none = false;
    *elements = 1;
    if (!json_take(&parser->json, '['))
        return false;
    if (json_take(&parser->json, ']'))
        return true;
    do {
        uint64_t size;
        if (!json_take_natural(&parser->json, &size) || size > INT64_MAX)
            return false;
        if (tensor->rank < SAFETENSORS_MAX_RANK)
            tensor->shape[tensor->rank] = (int64_t)size;
        tensor->rank++;
        none = none || size == 0;
        fits = fits && !__builtin_mul_overflow(*elements, size, elements);
    } while (json_take(&parser->json, ','));
    if (none)
        *elements = 0;
    return json_take(&parser->json, ']') &&
           (fits || none ||
            refuse(parser, "a shape that is too large for the memory: '%.200s'", tensor->name));
}

static bool take_offsets(struct parser *parser, struct safetensor *tensor)
{
    struct json *const json = &parser->json;
    return json_take(json, '[') && json_take_natural(json, &tensor->begin) &&
           json_take(json, ',') && json_take_natural(json, &tensor->end) && json_take(json, ']');
}

static bool check_bytes(struct parser *parser, const struct safetensor *tensor, uint64_t elements)
{
    uint64_t bits;
    if (tensor->begin > tensor->end)
        return refuse(parser, "data_offsets that end before they begin: '%.200s'", tensor->name);
    return (!__builtin_mul_overflow(elements, bits_of(tensor->dtype), &bits) && bits % 8 == 0 &&
            bits / 8 == tensor->end - tensor->begin) ||
           refuse(parser, "data_offsets that do not fit the shape: '%.200s'", tensor->name);
}

/* Takes {"dtype": ..., "shape": ..., "data_offsets": ...}, in any order. */
static bool take_tensor(struct parser *parser, struct safetensor *tensor)
{
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    uint64_t elements = 0;
    unsigned seen = 0;
    if (!json_take(&parser->json, '{'))
        return false;
    do {
        const char *const key = take_name(parser);
        unsigned i = 0;
        while (key && i < 3 && strcmp(key, keys[i]))
            i++;
        if (!key || i == 3 || seen >> i & 1 || !json_take(&parser->json, ':'))
            return false;
        seen |= 1u << i;
        if (!(i == 0   ? take_dtype(parser, tensor)
              : i == 1 ? take_shape(parser, tensor, &elements)
                       : take_offsets(parser, tensor)))
            return false;
    } while (json_take(&parser->json, ','));
    return json_take(&parser->json, '}') && seen == 7 && check_bytes(parser, tensor, elements);
}

/* ---------------------------------------------------------------------------------- the header */

/* Takes {"key": "value", ...} and ignores the strings, because they say nothing about tensors. */
static bool skip_metadata(struct parser *parser)
{
    if (!json_take(&parser->json, '{'))
        return false;
    if (json_take(&parser->json, '}'))
        return true;
    do {
        if (!take_name(parser) || !json_take(&parser->json, ':') || !take_name(parser))
            return false;
    } while (json_take(&parser->json, ','));
    return json_take(&parser->json, '}');
}

static struct safetensor *add_tensor(struct parser *parser)
{
    struct safetensors *const to = parser->to;
    if (to->count == parser->capacity) {
        parser->capacity = parser->capacity ? 2 * parser->capacity : 64;
        struct safetensor *more = realloc(to->tensors, parser->capacity * sizeof *more);
        if (!more) {
            refuse(parser, "too many tensors for the memory");
            return NULL;
        }
        to->tensors = more;
    }
    to->tensors[to->count] = (struct safetensor){0};
    return &to->tensors[to->count++];
}

static bool take_entry(struct parser *parser, bool *metadata)
{
    const char *const name = take_name(parser);
    if (!name || !json_take(&parser->json, ':'))
        return false;
    if (!strcmp(name, "__metadata__")) {
        if (*metadata)
            return refuse(parser, "a name that occurs twice: '%s'", name);
        *metadata = true;
        return skip_metadata(parser);
    }
    struct safetensor *const tensor = add_tensor(parser);
    if (!tensor)
        return false;
    tensor->name = name;
    return take_tensor(parser, tensor);
}

static bool take_header(struct parser *parser)
{
    bool metadata = false;
    if (parser->json.at == parser->json.end || *parser->json.at != '{')
        return false;
    parser->json.at++;
    if (!json_take(&parser->json, '}')) {
        do {
            if (!take_entry(parser, &metadata))
                return false;
        } while (json_take(&parser->json, ','));
        if (!json_take(&parser->json, '}'))
            return false;
    }
    return json_ends(&parser->json);
}

/* -------------------------------------------------------------------- the order of the tensors */

static int by_name(const void *a, const void *b)
{
    const struct safetensor *const x = a, *const y = b;
    return strcmp(x->name, y->name);
}

static int by_place(const void *a, const void *b)
{
    const struct safetensor *const x = a, *const y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return by_name(a, b);
}

/* Refuses tensors that overlap. The tensors must be in the order of their places. check_full, which
 * finds gaps, comes later, because overlapping tensors often leave gaps. */
static bool check_apart(struct parser *parser)
{
    const struct safetensor *const tensors = parser->to->tensors;
    for (size_t i = 1; i < parser->to->count; i++)
        if (tensors[i].begin < tensors[i - 1].end)
            return refuse(parser,
                          "tensors that overlap: '%.200s' ends at byte %llu, '%.200s' "
                          "begins at byte %llu",
                          tensors[i - 1].name, (unsigned long long)tensors[i - 1].end,
                          tensors[i].name, (unsigned long long)tensors[i].begin);
    return true;
}

/* Refuses bytes that belong to no tensor, and tensors beyond the end of the file. */
static bool check_full(struct parser *parser, uint64_t data_bytes)
{
    const struct safetensor *const tensors = parser->to->tensors;
    const size_t count = parser->to->count;
    uint64_t end = 0;
    if (count > 0 && tensors[count - 1].end > data_bytes)
        return refuse(parser,
                      "tensors beyond the end of the file: '%.200s' ends at byte %llu of "
                      "%llu",
                      tensors[count - 1].name, (unsigned long long)tensors[count - 1].end,
                      (unsigned long long)data_bytes);
    for (size_t i = 0; i < count; i++) {
        if (tensors[i].begin > end)
            return refuse(parser, "a gap: no tensor has the bytes %llu .. %llu before '%.200s'",
                          (unsigned long long)end, (unsigned long long)tensors[i].begin - 1,
                          tensors[i].name);
        end = tensors[i].end;
    }
    return end == data_bytes || refuse(parser, "%llu bytes after the last tensor",
                                       (unsigned long long)(data_bytes - end));
}

static bool check_names(struct parser *parser)
{
    const struct safetensors *const to = parser->to;
    for (size_t i = 1; i < to->count; i++)
        if (!strcmp(to->tensors[i - 1].name, to->tensors[i].name))
            return refuse(parser, "a name that occurs twice: '%.200s'", to->tensors[i].name);
    return true;
}

static void sort(struct safetensors *to, int (*order)(const void *, const void *))
{
    if (to->count > 0)
        qsort(to->tensors, to->count, sizeof *to->tensors, order);
}

static bool parse(struct parser *parser, uint64_t data_bytes)
{
    if (!take_header(parser))
        return false;
    sort(parser->to, by_name);
    if (!check_names(parser))
        return false;
    sort(parser->to, by_place);
    if (!check_apart(parser) || !check_full(parser, data_bytes))
        return false;
    sort(parser->to, by_name);
    return true;
}

bool safetensors_parse(const char *header, size_t size, uint64_t data_bytes,
                       struct safetensors *file, char why[SAFETENSORS_WHY])
{
    struct parser parser = {
        .json = {header, header + size}, .room = malloc(size + 1), .to = file, .why = why};
    *file = (struct safetensors){.names = parser.room};
    if (!file->names)
        return refuse(&parser, "a header that is too large for the memory");
    refuse(&parser, "a malformed header");
    if (parse(&parser, data_bytes))
        return true;
    safetensors_close(file);
    return false;
}

/* ------------------------------------------------------------------------------------ the file */

static bool take_length(struct source *source, uint64_t *length)
{
    unsigned char bytes[LENGTH_BYTES];
    if (!source_take(source, bytes, sizeof bytes))
        return false;
    *length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        *length = *length << 8 | bytes[i];
    return *length <= MAX_HEADER ||
           complain("%s: not a safetensors file: its header would have %llu bytes: must be at most "
                    "%d",
                    source->name, (unsigned long long)*length, MAX_HEADER);
}

static bool read_header(struct source *source, struct safetensors *file)
{
    uint64_t length;
    if (!take_length(source, &length))
        return false;
    char *const header = malloc(length + 1);
    if (!header)
        return complain("%s: no memory for a header of %llu bytes", source->name,
                        (unsigned long long)length);
    char why[SAFETENSORS_WHY];
    const bool taken = source_take(source, header, length);
    const bool ok = taken && safetensors_parse(header, length, (uint64_t)source->left, file, why);
    free(header);
    if (taken && !ok)
        complain("%s: not a whole safetensors file: it has %s", source->name, why);
    file->data = LENGTH_BYTES + (int64_t)length;
    return ok;
}

bool safetensors_open(const char *name, struct safetensors *file)
{
    struct source source;
    *file = (struct safetensors){0};
    if (!source_open(name, "safetensors", &source))
        return false;
    const bool ok = read_header(&source, file);
    if (ok)
        file->source = source;
    else
        source_close(&source);
    return ok;
}

const struct safetensor *safetensors_find(const struct safetensors *file, const char *name)
{
    const struct safetensor key = {.name = name};
    return file->count ? bsearch(&key, file->tensors, file->count, sizeof key, by_name) : NULL;
}

bool safetensors_read(struct safetensors *file, const struct safetensor *tensor, void *bytes)
{
    return source_seek(&file->source, file->data + (int64_t)tensor->begin) &&
           source_take(&file->source, bytes, tensor->end - tensor->begin);
}

void safetensors_close(struct safetensors *file)
{
    source_close(&file->source);
    free(file->tensors);
    free(file->names);
    file->tensors = NULL;
    file->names = NULL;
    file->count = 0;
}
