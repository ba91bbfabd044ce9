/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the fields of a protobuf message one after the other. The bytes may come from anywhere: no
 * byte outside the message is read, and bytes that are no field are reported.
 */
#ifndef ATTNKIT_TEST_PROTOBUF_H
#define ATTNKIT_TEST_PROTOBUF_H

#include <stdbool.h>
#include <stdint.h>

/* The bytes that are left to be read. */
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
    uint64_t value;     /* if it is a number */
    struct bytes bytes; /* if it is WIRE_BYTES */
};

enum next {
    NEXT_FIELD,
    NEXT_END,
    NEXT_BROKEN,
};

/* Takes the next field. */
enum next protobuf_next(struct bytes *message, struct field *field);

/* Takes a number of the given kind, such as an element of a packed field, or returns false. */
bool protobuf_number(struct bytes *message, enum wire wire, uint64_t *value);

/* Returns whether the field holds exactly this text. */
bool protobuf_is_text(const struct field *field, const char *text);

#endif
