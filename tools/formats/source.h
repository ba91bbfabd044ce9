/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that is read from front to back, or in pieces. The file need not be trusted: each
 * requested length is checked against the bytes that are left. A function that returns false has
 * printed an error.
 */
#ifndef ATTNKIT_SOURCE_H
#define ATTNKIT_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct source {
    const char *name;
    const char *kind; /* the kind of file in messages, such as ".npy" */
    FILE *file;
    int64_t left; /* bytes from the byte that source_take takes next, up to the end of the file */
};

/* Opens a regular file for reading from its first byte. */
bool source_open(const char *name, const char *kind, struct source *source);

/* Reads `count` bytes. Returns false if fewer bytes are left, or if reading fails. */
bool source_take(struct source *source, void *bytes, size_t count);

/* Sets the place where source_take reads next, in bytes from the beginning of the file. */
bool source_seek(struct source *source, int64_t offset);

void source_close(struct source *source);

#endif
