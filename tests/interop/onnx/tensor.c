/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads TensorProto in two passes. The first pass finds the type and the dimensions, which may come
 * after the elements. The second pass reads the elements. The reader trusts no size in a message.
 * An element takes at least one byte of the message, so the reader refuses dimensions that ask for
 * more elements than the message has bytes. This check bounds the memory of the tensor.
 */
#include "tests/interop/onnx/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "raw bytes are taken as they lie");

enum {
    FIELD_DIMS = 1,
    FIELD_TYPE = 2,
    FIELD_SEGMENT = 3,
    FIELD_FLOATS = 4,
    FIELD_INT32S = 5,
    FIELD_INT64S = 7,
    FIELD_RAW = 9,
    FIELD_EXTERNAL = 13,
    FIELD_LOCATION = 14,
};

/* How the elements of a type are stored. */
struct storage {
    size_t element;   /* size of an element in bytes, in memory and as raw bytes */
    uint64_t field;   /* number of the field that holds elements as numbers */
    enum wire wire;   /* wire type of an element in this field */
    uint64_t largest; /* the largest valid number */
};

static const struct storage *storage_of(int64_t type)
{
    static const struct storage floats = {4, FIELD_FLOATS, WIRE_FIXED32, UINT32_MAX},
                                int64s = {8, FIELD_INT64S, WIRE_VARINT, UINT64_MAX},
                                bools = {1, FIELD_INT32S, WIRE_VARINT, 1},
                                halves = {2, FIELD_INT32S, WIRE_VARINT, UINT16_MAX};
    switch (type) {
    case TENSOR_FLOAT:
        return &floats;
    case TENSOR_INT64:
        return &int64s;
    case TENSOR_BOOL:
        return &bools;
    case TENSOR_FLOAT16:
    case TENSOR_BFLOAT16:
        return &halves;
    default:
        return NULL;
    }
}

/* ------------------------------------------------------------------------- type and dimensions */

static const char *add_dim(struct tensor *tensor, uint64_t dim)
{
    if (tensor->rank == TENSOR_MAX_RANK)
        return "a tensor of more than 4 dimensions";
    if (dim > INT64_MAX)
        return "a negative dimension";
    tensor->dims[tensor->rank++] = (int64_t)dim;
    return NULL;
}

static const char *add_dims(struct tensor *tensor, const struct field *field)
{
    if (field->wire == WIRE_VARINT)
        return add_dim(tensor, field->value);
    if (field->wire != WIRE_BYTES)
        return "dims: of the wrong kind";
    struct bytes packed = field->bytes;
    while (packed.at < packed.end) {
        uint64_t dim;
        if (!protobuf_number(&packed, WIRE_VARINT, &dim))
            return "dims: a number is cut off or too long";
        const char *const wrong = add_dim(tensor, dim);
        if (wrong)
            return wrong;
    }
    return NULL;
}

static const char *take_property(struct tensor *tensor, const struct field *field)
{
    switch (field->number) {
    case FIELD_DIMS:
        return add_dims(tensor, field);
    case FIELD_TYPE:
        if (field->wire != WIRE_VARINT || !storage_of((int64_t)field->value))
            return "data_type: not a type that Attention takes";
        tensor->type = (enum tensor_type)field->value;
        return NULL;
    case FIELD_SEGMENT:
    case FIELD_EXTERNAL:
        return "elements in other messages or files";
    case FIELD_LOCATION:
        return field->wire == WIRE_VARINT && field->value == 0 ? NULL : "elements in another file";
    default:
        return NULL;
    }
}

static const char *take_properties(struct bytes message, struct tensor *tensor)
{
    struct field field;
    enum next next;
    while ((next = protobuf_next(&message, &field)) == NEXT_FIELD) {
        const char *const wrong = take_property(tensor, &field);
        if (wrong)
            return wrong;
    }
    if (next == NEXT_BROKEN)
        return "not a whole message";
    return tensor->type ? NULL : "no data_type";
}

/* ------------------------------------------------------------------------------------ elements */

/* Sets the element size and the count, which follow from the type and the dimensions. */
static const char *set_sizes(struct tensor *tensor)
{
    size_t bytes = 0;
    tensor->element = storage_of(tensor->type)->element;
    tensor->count = 1;
    for (int i = 0; i < tensor->rank; i++)
        if (__builtin_mul_overflow(tensor->count, (size_t)tensor->dims[i], &tensor->count))
            return "dimensions that are too large for the memory";
    if (__builtin_mul_overflow(tensor->count, tensor->element, &bytes) || bytes >= SIZE_MAX / 2)
        return "dimensions that are too large for the memory";
    return NULL;
}

static const char *allocate(struct tensor *tensor)
{
    const size_t bytes = tensor->count * tensor->element;
    tensor->data = malloc(bytes + 1);
    if (!tensor->data)
        return "no memory";
    memset(tensor->data, 0xff, bytes);
    return NULL;
}

/* Adds an element to the tensor. *filled is the number of elements that the tensor has already. */
static const char *add_element(struct tensor *tensor, size_t *filled, uint64_t value)
{
    if (*filled == tensor->count)
        return "more elements than the dimensions say";
    if (value > storage_of(tensor->type)->largest)
        return "an element beyond its type";
    memcpy((char *)tensor->data + *filled * tensor->element, &value, tensor->element);
    ++*filled;
    return NULL;
}

static const char *add_numbers(struct tensor *tensor, size_t *filled, const struct field *field)
{
    const enum wire wire = storage_of(tensor->type)->wire;
    if (field->wire == wire)
        return add_element(tensor, filled, field->value);
    if (field->wire != WIRE_BYTES)
        return "elements of the wrong kind";
    struct bytes packed = field->bytes;
    while (packed.at < packed.end) {
        uint64_t value;
        if (!protobuf_number(&packed, wire, &value))
            return "elements: a number is cut off or too long";
        const char *const wrong = add_element(tensor, filled, value);
        if (wrong)
            return wrong;
    }
    return NULL;
}

static const char *add_raw(struct tensor *tensor, size_t *filled, const struct field *field)
{
    const size_t size = tensor->count * tensor->element;
    if (field->wire != WIRE_BYTES || (size_t)(field->bytes.end - field->bytes.at) != size)
        return "raw_data: not as long as the dimensions say";
    if (*filled != 0)
        return "raw_data after other elements";
    if (size > 0)
        memcpy(tensor->data, field->bytes.at, size);
    *filled = tensor->count;
    return NULL;
}

static bool is_elements(uint64_t field)
{
    return field >= FIELD_FLOATS && field <= 11 && field != 8; /* field 8 is the name */
}

static const char *take_elements(struct bytes message, struct tensor *tensor)
{
    size_t filled = 0;
    struct field field;
    while (protobuf_next(&message, &field) == NEXT_FIELD) {
        const char *wrong = NULL;
        if (field.number == FIELD_RAW)
            wrong = add_raw(tensor, &filled, &field);
        else if (field.number == storage_of(tensor->type)->field)
            wrong = add_numbers(tensor, &filled, &field);
        else if (is_elements(field.number))
            wrong = "elements of another type";
        if (wrong)
            return wrong;
    }
    return filled == tensor->count ? NULL : "fewer elements than the dimensions say";
}

/* In the file, any byte but 0 is true. In memory, true is 1. */
static void normalise_bools(struct tensor *tensor)
{
    uint8_t *const bytes = tensor->data;
    for (size_t i = 0; tensor->type == TENSOR_BOOL && i < tensor->count; i++)
        bytes[i] = bytes[i] != 0;
}

static const char *parse(struct bytes message, struct tensor *tensor)
{
    const char *wrong = take_properties(message, tensor);
    if (!wrong)
        wrong = set_sizes(tensor);
    if (!wrong && tensor->count > (size_t)(message.end - message.at))
        wrong = "fewer elements than the dimensions say";
    if (!wrong)
        wrong = allocate(tensor);
    if (!wrong)
        wrong = take_elements(message, tensor);
    if (!wrong)
        normalise_bools(tensor);
    return wrong;
}

const char *tensor_parse(struct bytes message, struct tensor *tensor)
{
    *tensor = (struct tensor){0};
    const char *const wrong = parse(message, tensor);
    if (wrong)
        tensor_free(tensor);
    return wrong;
}

const char *tensor_make(enum tensor_type type, int rank, const int64_t *dims, struct tensor *tensor)
{
    *tensor = (struct tensor){.type = type, .rank = rank};
    memcpy(tensor->dims, dims, (size_t)rank * sizeof *dims);
    const char *const wrong = set_sizes(tensor);
    return wrong ? wrong : allocate(tensor);
}

void tensor_free(struct tensor *tensor)
{
    free(tensor->data);
    *tensor = (struct tensor){0};
}

/* --------------------------------------------------------------------------------------- files */

/* Returns the size of a file in bytes, or -1 on an error. Leaves the read position at the
 * beginning. */
static long size_of(FILE *file)
{
    if (fseek(file, 0, SEEK_END) != 0)
        return -1;
    const long size = ftell(file);
    return fseek(file, 0, SEEK_SET) == 0 ? size : -1;
}

static const char *read_open(FILE *file, uint8_t **data, struct bytes *bytes)
{
    const long size = size_of(file);
    if (size < 0)
        return "cannot be read";
    *data = malloc((size_t)size + 1);
    if (!*data)
        return "no memory";
    if (fread(*data, 1, (size_t)size, file) != (size_t)size) {
        free(*data);
        return "cannot be read";
    }
    *bytes = (struct bytes){*data, *data + size};
    return NULL;
}

const char *file_read(const char *path, uint8_t **data, struct bytes *bytes)
{
    FILE *const file = fopen(path, "rb");
    if (!file)
        return "cannot be opened";
    const char *const wrong = read_open(file, data, bytes);
    fclose(file);
    return wrong;
}

const char *tensor_read(const char *path, struct tensor *tensor)
{
    uint8_t *data;
    struct bytes bytes;
    *tensor = (struct tensor){0};
    const char *wrong = file_read(path, &data, &bytes);
    if (wrong)
        return wrong;
    wrong = tensor_parse(bytes, tensor);
    free(data);
    return wrong;
}

static void put_varint(FILE *file, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        putc((int)(value & 0x7f) | 0x80, file);
    putc((int)value, file);
}

static void put_key(FILE *file, uint64_t field, enum wire wire)
{
    put_varint(file, field << 3 | (uint64_t)wire);
}

const char *tensor_write(const char *path, const struct tensor *tensor)
{
    const size_t size = tensor->count * tensor->element;
    FILE *const file = fopen(path, "wb");
    if (!file)
        return "cannot be opened";
    for (int i = 0; i < tensor->rank; i++) {
        put_key(file, FIELD_DIMS, WIRE_VARINT);
        put_varint(file, (uint64_t)tensor->dims[i]);
    }
    put_key(file, FIELD_TYPE, WIRE_VARINT);
    put_varint(file, (uint64_t)tensor->type);
    put_key(file, FIELD_RAW, WIRE_BYTES);
    put_varint(file, size);
    fwrite(tensor->data, 1, size, file);
    const bool failed = ferror(file) != 0;
    return fclose(file) != 0 || failed ? "cannot be written" : NULL;
}
