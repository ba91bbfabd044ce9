/* SPDX-License-Identifier: Apache-2.0
 *
 * An output file that gets its name when it is complete. Until then it has another name in the same
 * folder, and is removed if the program is interrupted. Only one file can be unfinished at a time.
 */
#ifndef ATTNKIT_OUTPUT_H
#define ATTNKIT_OUTPUT_H

#include <stdbool.h>

/* Begins a file. Returns the temporary name to write to. If the file cannot be written, prints an
 * error and returns NULL. */
const char *output_begin(const char *name);

/* Gives the file its name if its text ends with `ending`. Prints an error, removes the file and
 * returns false if the text ends otherwise or the file cannot be renamed. */
bool output_end(const char *ending);

/* Removes the unfinished file. */
void output_abandon(void);

#endif
