/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads weights by name: the tensors of a safetensors file, or the .npy files of a folder. An .npy
 * file is named after its tensor. If weights_open or weights_read returns false, the function has
 * printed an error, and the caller has nothing to close or to free.
 */
#ifndef ATTNKIT_WEIGHTS_FILE_H
#define ATTNKIT_WEIGHTS_FILE_H

#include <attnkit.h>

#include <stdbool.h>

#include "tools/formats/npy.h"
#include "tools/formats/safetensors.h"

struct weights_file {
    const char *path;
    bool is_folder;
    char **names;            /* the names of all tensors, sorted */
    size_t count;            /* number of names */
    struct safetensors file; /* empty for a folder */
};

/* A matrix or a bias. */
struct file_tensor {
    char *name;    /* for messages */
    bool own_file; /* whether the tensor has its own .npy file; `name` is then the file's path */
    attnkit_type type;
    int rank; /* 1 or 2 */
    int64_t shape[2];
    void *data; /* NULL if there is no such tensor */
};

bool weights_open(const char *path, struct weights_file *file);
bool weights_has(const struct weights_file *file, const char *name);

/* Reads the tensor of this name, which the file must have. */
bool weights_read(struct weights_file *file, const char *name, struct file_tensor *tensor);

void weights_close(struct weights_file *file);
void weights_free(struct file_tensor *tensor);

#endif
