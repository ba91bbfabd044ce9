/* SPDX-License-Identifier: Apache-2.0
 *
 * Encodes pictures as PNG files by libpng.
 */
#include "tools/formats/picture.h"

#include <png.h>
#include <stdlib.h>

#include "tools/cli/tool.h"

bool picture_can_be_written(const char *option)
{
    (void)option;
    return true;
}

bool picture_encode(const char *name, const struct picture *picture, void **file, size_t *bytes)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)picture->width,
                       .height = (png_uint_32)picture->height,
                       .format = PNG_FORMAT_RGB};
    png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
    *file = malloc(size);
    if (!*file)
        return complain("%s: no memory for a picture", name);
    if (!png_image_write_to_memory(&image, *file, &size, 0, picture->pixels, 0, NULL))
        return complain("cannot write %s: %s", name, image.message);
    *bytes = size;
    return true;
}
