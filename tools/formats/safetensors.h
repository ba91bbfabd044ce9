/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads files of the format safetensors: tensors by name, one after the other. A file may come from
 * anywhere, and nothing in it is believed.
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
    const char *dtype;                   /* as the file has it: "BF16" */
    int rank;                            /* may be more than SAFETENSORS_MAX_RANK */
    int64_t shape[SAFETENSORS_MAX_RANK]; /* the first of the sizes */
    uint64_t begin, end;                 /* its bytes, counted from the end of the header */
};

struct safetensors {
    struct safetensor *tensors; /* in the order of their names */
    size_t count;
    char *names;
    struct source source;
    int64_t data; /* where the first tensor's bytes are in the file */
};

/* Reads the header of a file. False: complained, and there is nothing to close. */
bool safetensors_open(const char *name, struct safetensors *file);

/* The tensor of that name, or NULL. */
const struct safetensor *safetensors_find(const struct safetensors *file, const char *name);

/* Reads all end - begin bytes of a tensor. False: complained. */
bool safetensors_read(struct safetensors *file, const struct safetensor *tensor, void *bytes);

void safetensors_close(struct safetensors *file);

/* Parses the header alone, of a file with data_bytes after it, into tensors and names;
 * safetensors_close frees them. False: `why` says what is wrong with the file. */
bool safetensors_parse(const char *header, size_t size, uint64_t data_bytes,
                       struct safetensors *file, char why[SAFETENSORS_WHY]);

#endif
