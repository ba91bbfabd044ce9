/* SPDX-License-Identifier: Apache-2.0
 *
 * A field begins with a varint, which is the number of the field * 8 + its wire type. Then comes
 * the content, in the form that the wire type says. A varint has seven bits in each byte, the
 * lowest bits first. The eighth bit of a byte says whether another byte follows.
 */
#include "tests/interop/onnx/protobuf.h"

#include <string.h>

static bool take_varint(struct bytes *message, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 64 && message->at < message->end; shift += 7) {
        const uint8_t byte = *message->at++;
        if (shift == 63 && byte > 1)
            return false;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

static bool take_fixed(struct bytes *message, int size, uint64_t *value)
{
    if (message->end - message->at < size)
        return false;
    *value = 0;
    for (int i = 0; i < size; i++)
        *value |= (uint64_t)message->at[i] << 8 * i;
    message->at += size;
    return true;
}

static bool take_bytes(struct bytes *message, struct bytes *bytes)
{
    uint64_t size;
    if (!take_varint(message, &size) || size > (uint64_t)(message->end - message->at))
        return false;
    *bytes = (struct bytes){message->at, message->at + size};
    message->at += size;
    return true;
}

bool protobuf_number(struct bytes *message, enum wire wire, uint64_t *value)
{
    switch (wire) {
    case WIRE_VARINT:
        return take_varint(message, value);
    case WIRE_FIXED64:
        return take_fixed(message, 8, value);
    case WIRE_FIXED32:
        return take_fixed(message, 4, value);
    default:
        return false;
    }
}

enum next protobuf_next(struct bytes *message, struct field *field)
{
    uint64_t key;
    if (message->at == message->end)
        return NEXT_END;
    if (!take_varint(message, &key) || key >> 3 == 0 || key >> 3 >= 1 << 29)
        return NEXT_BROKEN;
    *field = (struct field){.number = key >> 3, .wire = (enum wire)(key & 7)};
    const bool ok = field->wire == WIRE_BYTES
                        ? take_bytes(message, &field->bytes)
                        : protobuf_number(message, field->wire, &field->value);
    return ok ? NEXT_FIELD : NEXT_BROKEN;
}

bool protobuf_is_text(const struct field *field, const char *text)
{
    const size_t size = strlen(text);
    return field->wire == WIRE_BYTES && (size_t)(field->bytes.end - field->bytes.at) == size &&
           (size == 0 || memcmp(field->bytes.at, text, size) == 0);
}
