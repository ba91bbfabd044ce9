/* SPDX-License-Identifier: Apache-2.0
 *
 * Encodes pictures as PNG files, by libpng. If the command was built without libpng, each function
 * prints an error and returns false.
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

/* Sets *file to the contents of a PNG file of the picture, and *bytes to the size of the contents.
 * `name` is the name of the file, for error messages. On an error, prints it and returns false. The
 * caller initializes *file to NULL, and frees *file, also after an error. */
bool picture_encode(const char *name, const struct picture *picture, void **file, size_t *bytes);

#endif
