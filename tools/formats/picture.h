/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures as PNG files, by libpng where meson found it when the command was built.
 */
#ifndef ATTNKIT_PICTURE_H
#define ATTNKIT_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct picture {
    int width, height;
    uint8_t *pixels; /* red, green and blue of each, in rows from the top; the owner's to free */
};

/* Returns whether this command can write pictures. False: complained, naming the option that asks
 * for it.
 */
bool picture_can_be_written(const char *option);

/* The picture as a PNG file, the caller's to free. False: complained, naming the file. */
bool picture_encode(const char *name, const struct picture *picture, void **file, size_t *bytes);

#endif
