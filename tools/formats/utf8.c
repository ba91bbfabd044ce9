/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes UTF-8. A character has 1 to 4 bytes. The first byte gives the number of bytes,
 * and each further byte holds six bits of the character.
 */
#include "tools/formats/utf8.h"

enum { SURROGATES = 0xD800, SURROGATES_END = 0xE000 };

/* Accepts a character only in its shortest form. Surrogates and characters beyond U+10FFFF are not
 * accepted. */
int utf8_take(const char *at, const char *end, uint32_t *character)
{
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    const uint8_t first = (uint8_t)*at++;
    const int more = first < 0x80 ? 0 : first < 0xC0 ? -1 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
    if (more < 0 || first > 0xF4 || end - at < more)
        return 0;
    *character = more ? first & (0x3Fu >> more) : first;
    for (int i = 0; i < more; i++) {
        const uint8_t next = (uint8_t)at[i];
        if (next >> 6 != 2)
            return 0;
        *character = *character << 6 | (next & 0x3Fu);
    }
    const bool is_surrogate = *character >= SURROGATES && *character < SURROGATES_END;
    return *character >= least[more] && *character <= 0x10FFFF && !is_surrogate ? 1 + more : 0;
}

char *utf8_put(char *string, uint32_t character)
{
    if (character < 0x80) {
        *string++ = (char)character;
        return string;
    }
    const int more = character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
    *string++ = (char)(0xFF00u >> (more + 1) | character >> 6 * more);
    for (int i = more - 1; i >= 0; i--)
        *string++ = (char)(0x80 | (character >> 6 * i & 0x3F));
    return string;
}

bool utf8_is_control(uint32_t character)
{
    return character < 0x20 || (character >= 0x7F && character < 0xA0);
}
