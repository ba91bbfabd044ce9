/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the fields of a protobuf message one after the other. The message need not be trusted. The
 * functions read only bytes of the message, and report bytes that are not a field.
 */
#ifndef ATTNKIT_TEST_PROTOBUF_H
#define ATTNKIT_TEST_PROTOBUF_H

#include <stdbool.h>
#include <stdint.h>

/* The bytes of a message that are still to be read. */
struct bytes {
    const uint8_t *at;
    const uint8_t *end;
};

enum wire {
    WIRE_VARINT = 0,
    WIRE_FIXED64 = 1,
    WIRE_BYTES = 2,
    WIRE_FIXED32 = 5,
};

struct field {
    uint64_t number;
    enum wire wire;
    uint64_t value;     /* the value, if the field is a number */
    struct bytes bytes; /* the content, if the field is WIRE_BYTES */
};

enum next {
    NEXT_FIELD,
    NEXT_END,
    NEXT_BROKEN,
};

/* Reads the next field of the message, and moves message->at behind this field. Returns NEXT_END at
 * the end of the message, and NEXT_BROKEN if the bytes are not a whole field. */
enum next protobuf_next(struct bytes *message, struct field *field);

/* Reads a number of the given wire type, such as an element of a packed field, and moves
 * message->at behind the number. Returns false if there is no whole number of this type. */
bool protobuf_number(struct bytes *message, enum wire wire, uint64_t *value);

/* Returns whether the field holds exactly this text. */
bool protobuf_is_text(const struct field *field, const char *text);

#endif
