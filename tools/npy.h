/* SPDX-License-Identifier: Apache-2.0
 *
 * NumPy's .npy files (formats 1.0 to 3.0) of float32 in C order, read and written.
 * A function that returns false has said why on standard error, and has written nothing.
 */
#ifndef ATTNKIT_NPY_H
#define ATTNKIT_NPY_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NPY_MIN_READ_RANK = 2, NPY_MAX_RANK = 4, NPY_SHAPE_TEXT = 96 };

struct npy {
    int rank;
    int64_t shape[NPY_MAX_RANK];
    size_t element; /* bytes: 4 for float32, 2 for float16 */
    size_t bytes;   /* of data */
    void *data;     /* never NULL, even if a size is 0; the caller's to npy_free */
};

/* Reads an array of float32 or float16 of rank 2, 3 or 4. The file must be whole and hold nothing
 * else. */
bool npy_read(const char *name, struct npy *array);

/* Makes room for an array of float32 of any rank up to 4, all zeros. `name` is for the complaint.
 */
bool npy_make(const char *name, int rank, const int64_t *shape, struct npy *array);

void npy_free(struct npy *array);

/* The shape as Python writes it, "[2, 3]". Returns text. */
const char *npy_shape(const struct npy *array, char text[NPY_SHAPE_TEXT]);

/* A file to be written. */
struct npy_output {
    const char *name; /* as the user wrote it */
    const struct npy *array;
    char path[PATH_MAX]; /* absolute, links followed; the rest is for npy_write alone */
    char temporary[PATH_MAX];
};

/* Sets name and path. Complains where npy_write is bound to fail, so that it can be said before
 * the work and not after it. */
bool npy_output_at(const char *name, struct npy_output *output);

/* Writes all of the files or none: each is first completed under another name in its folder. */
bool npy_write(struct npy_output *outputs, int count);

#endif
