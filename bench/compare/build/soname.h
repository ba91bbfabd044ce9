/* SPDX-License-Identifier: Apache-2.0
 *
 * Changes the soname of a shared library: the name by which the loader knows it and other files
 * request it.
 */
#ifndef ATTNKIT_COMPARE_SONAME_H
#define ATTNKIT_COMPARE_SONAME_H

#include <stdbool.h>

/* Writes a number over the beginning of the soname (libattnkit.so.0 becomes 07battnkit.so.0), in
 * the library and in a module that was linked with it. `side` names the side in error messages. On
 * an error, prints it and returns false. */
bool soname_number(const char *library, const char *module, int number, const char *side);

#endif
