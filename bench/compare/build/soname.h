/* SPDX-License-Identifier: Apache-2.0
 *
 * The name by which the loader knows a shared library, and by which others ask for it.
 */
#ifndef ATTNKIT_COMPARE_SONAME_H
#define ATTNKIT_COMPARE_SONAME_H

#include <stdbool.h>

/* Writes a number over the beginning of the name of the library (libattnkit.so.0 becomes
 * 07battnkit.so.0), in its file and in that of a module that was linked with it. side is for
 * complaints. False: complained. */
bool soname_number(const char *library, const char *module, int number, const char *side);

#endif
