/* SPDX-License-Identifier: Apache-2.0
 *
 * Refuses to write pictures, in a command that is built without libpng.
 */
#include "tools/formats/picture.h"

#include "tools/cli/tool.h"

bool picture_can_be_written(const char *option)
{
    return complain("%s needs libpng, which was missing when attnkit was built: install it "
                    "(Debian: libpng-dev), then meson setup --reconfigure and build again",
                    option);
}

bool picture_encode(const char *name, const struct picture *picture, void **file, size_t *bytes)
{
    (void)name, (void)picture, (void)file, (void)bytes;
    return picture_can_be_written("a picture");
}
