/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures as PNG files, by libpng if meson found it when the command was built.
 */
#ifndef ATTNKIT_PICTURE_H
#define ATTNKIT_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct picture {
    int width, height;
    uint8_t *pixels; /* red, green and blue of each, in rows from the top; the owner frees them */
};

/* Returns whether this command can write pictures. If not, complains and names the option that asks
 * for a picture.
 */
bool picture_can_be_written(const char *option);

/* Encodes the picture as a PNG file, which the caller frees. Returns false if it has complained of
 * the file. */
bool picture_encode(const char *name, const struct picture *picture, void **file, size_t *bytes);

#endif
