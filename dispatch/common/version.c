/* SPDX-License-Identifier: Apache-2.0
 *
 * The version of the library, and the names of its statuses.
 */
#include "attnkit.h"

#ifndef BUILD_NOTE /* marks the version of a build that must not be installed */
#define BUILD_NOTE ""
#endif

#define STRING(x) #x
#define VERSION(major, minor, patch) STRING(major) "." STRING(minor) "." STRING(patch)

const char *attnkit_version(void)
{
    return VERSION(ATTNKIT_VERSION_MAJOR, ATTNKIT_VERSION_MINOR, ATTNKIT_VERSION_PATCH) BUILD_NOTE;
}

const char *attnkit_status_string(attnkit_status status)
{
    static const char *const names[] = {
        "ATTNKIT_OK",       "ATTNKIT_BAD_ARGUMENT",  "ATTNKIT_UNSUPPORTED",
        "ATTNKIT_OVERFLOW", "ATTNKIT_BAD_WORKSPACE", "ATTNKIT_BAD_ISA",
    };
    const unsigned index = (unsigned)status;
    return index < sizeof names / sizeof names[0] ? names[index] : "unknown attnkit_status";
}
