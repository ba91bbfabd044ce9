/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads files in the safetensors format, one tensor at a time, by its name. A file need not be
 * trusted: everything in its header is checked.
 */
#ifndef ATTNKIT_SAFETENSORS_H
#define ATTNKIT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/formats/source.h"

enum { SAFETENSORS_MAX_RANK = 4, SAFETENSORS_WHY = 1024 };

struct safetensor {
    const char *name;
    const char *dtype;                   /* from the file, such as "BF16" */
    int rank;                            /* may be more than SAFETENSORS_MAX_RANK */
    int64_t shape[SAFETENSORS_MAX_RANK]; /* sizes of the first dimensions */
    uint64_t begin, end; /* the place of the tensor's bytes, in bytes from the end of the header */
};

struct safetensors {
    struct safetensor *tensors; /* in the order of their names */
    size_t count;
    char *names; /* the memory of all strings of the header */
    struct source source;
    int64_t data; /* offset of the end of the header in the file */
};

/* Reads the header of a file. On an error, prints it and returns false. The caller then has nothing
 * to close. */
bool safetensors_open(const char *name, struct safetensors *file);

/* Returns the tensor of this name, or NULL. */
const struct safetensor *safetensors_find(const struct safetensors *file, const char *name);

/* Reads all end - begin bytes of a tensor. On an error, prints it and returns false. */
bool safetensors_read(struct safetensors *file, const struct safetensor *tensor, void *bytes);

void safetensors_close(struct safetensors *file);

/* Parses a header. In the file, data_bytes bytes follow the header. Fills `tensors` and `names`,
 * which safetensors_close frees. Returns false if the header is wrong, and writes the reason to
 * `why`. */
bool safetensors_parse(const char *header, size_t size, uint64_t data_bytes,
                       struct safetensors *file, char why[SAFETENSORS_WHY]);

#endif
