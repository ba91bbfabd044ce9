/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that gets its name when it is complete. Until then it has another name in the same folder,
 * and is removed if the program is interrupted. There can be only one such file at a time.
 */
#ifndef ATTNKIT_OUTPUT_H
#define ATTNKIT_OUTPUT_H

#include <stdbool.h>

/* Begins a file. Returns the temporary name to write to, or NULL if it has complained. */
const char *output_begin(const char *name);

/* Gives the file its name, or removes it if its text does not end with `ending`. Returns false if
 * it has complained. */
bool output_end(const char *ending);

/* Removes the unfinished file. */
void output_abandon(void);

#endif
