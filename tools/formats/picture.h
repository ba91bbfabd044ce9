/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes pictures as PNG files. This needs libpng, which meson must have found when the command was
 * built.
 */
#ifndef ATTNKIT_PICTURE_H
#define ATTNKIT_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct picture {
    int width, height;
    uint8_t
        *pixels; /* red, green and blue of each pixel, in rows from the top; the owner frees them */
};

/* Returns whether this command can write pictures. If not, prints an error with the name of the
 * option that asks for a picture.
 */
bool picture_can_be_written(const char *option);

/* Encodes the picture as a PNG file, which the caller frees. On an error, prints it with the name
 * of the file and returns false. */
bool picture_encode(const char *name, const struct picture *picture, void **file, size_t *bytes);

#endif
