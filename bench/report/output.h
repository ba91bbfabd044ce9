/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that appears when it is complete: until then it grows under another name beside it, which
 * is removed if the program is interrupted. One at a time.
 */
#ifndef ATTNKIT_OUTPUT_H
#define ATTNKIT_OUTPUT_H

#include <stdbool.h>

/* The name to write to; NULL: complained. */
const char *output_begin(const char *name);

/* Gives the file its name, or removes it if its text does not end with `ending`. False: complained.
 */
bool output_end(const char *ending);

/* Removes it. */
void output_abandon(void);

#endif
