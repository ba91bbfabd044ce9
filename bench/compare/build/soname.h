/* SPDX-License-Identifier: Apache-2.0
 *
 * The soname of a shared library: the name by which the loader knows it and other files ask for it.
 */
#ifndef ATTNKIT_COMPARE_SONAME_H
#define ATTNKIT_COMPARE_SONAME_H

#include <stdbool.h>

/* Writes a number over the beginning of the soname (libattnkit.so.0 becomes 07battnkit.so.0), in
 * the library and in a module that was linked with it. side is the name in complaints. Returns
 * false if it has complained. */
bool soname_number(const char *library, const char *module, int number, const char *side);

#endif
