/* SPDX-License-Identifier: Apache-2.0
 *
 * Changes the soname of a shared library: the name by which the loader knows the library and other
 * files request the library.
 */
#ifndef ATTNKIT_COMPARE_SONAME_H
#define ATTNKIT_COMPARE_SONAME_H

#include <stdbool.h>

/* Writes the last two digits of `number` over the first two characters of the soname, in the
 * library and in a module that was linked with it. With 7, libattnkit.so.0 becomes 07battnkit.so.0.
 * `side` names the side in error messages. On an error, prints it and returns false. */
bool soname_number(const char *library, const char *module, int number, const char *side);

#endif
