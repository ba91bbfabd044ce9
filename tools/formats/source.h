/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that is read from front to back, or in pieces, and of which nothing is believed: what is
 * asked for is compared with what the file still has. A function that returns false has complained.
 */
#ifndef ATTNKIT_SOURCE_H
#define ATTNKIT_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct source {
    const char *name;
    const char *kind; /* for a file that is too short: ".npy" */
    FILE *file;
    int64_t left; /* bytes of the file after those that were read */
};

/* Opens a regular file, at its first byte. */
bool source_open(const char *name, const char *kind, struct source *source);

/* Reads so many bytes, or fewer are left. */
bool source_take(struct source *source, void *bytes, size_t count);

/* Goes to a byte of the file, counted from its first one: where source_take goes on. */
bool source_seek(struct source *source, int64_t offset);

void source_close(struct source *source);

#endif
