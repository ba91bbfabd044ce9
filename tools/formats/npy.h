/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads NumPy's .npy files (formats 1.0 to 3.0) in C order, and writes .npy files (format 1.0). The
 * elements are floats, booleans, bytes or integers. Booleans and bytes are for masks. Integers are
 * for segment ids and key indices. A function that returns false has printed the reason on standard
 * error.
 */
#ifndef ATTNKIT_NPY_H
#define ATTNKIT_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/formats/path.h"

enum { NPY_MAX_RANK = 4, NPY_SHAPE_TEXT = 96 };

/* The type of the elements. */
enum npy_type { NPY_F32, NPY_F16, NPY_BOOL, NPY_U8, NPY_I32, NPY_I64, NPY_TYPES };

struct npy {
    int rank;
    int64_t shape[NPY_MAX_RANK];
    enum npy_type type;
    size_t bytes; /* size of data in bytes */
    void *data;   /* not NULL after npy_read or npy_make returned true, even if a size is 0 */
};

/* The arrays that a reader accepts. */
struct npy_form {
    unsigned types; /* 1 << type for each type that is allowed */
    int min_rank, max_rank;
};

/* Reads an array of this form. The file must be complete and have nothing after the elements. */
bool npy_read(const char *name, struct npy_form form, struct npy *array);

/* Allocates an array of zeros, of a rank of 0 .. NPY_MAX_RANK. `name` is for the error message. */
bool npy_make(const char *name, enum npy_type type, int rank, const int64_t *shape,
              struct npy *array);

/* Return the size of an element in bytes, and the name of its type in a file, such as "<f4". */
size_t npy_element(enum npy_type type);
const char *npy_descr(enum npy_type type);

void npy_free(struct npy *array);

/* Writes the shape to text in Python's form, such as "[2, 3]". Returns text. */
const char *npy_shape(const struct npy *array, char text[NPY_SHAPE_TEXT]);

/* A file to be written. */
struct npy_output {
    const char *option;      /* the option that names the file, for messages */
    const char *name;        /* the name as the user wrote it */
    const struct npy *array; /* NULL if the file consists of `content` */
    const void *content;
    size_t content_bytes;
    char path[PATH_ROOM];      /* absolute path without symbolic links, set by npy_output_at */
    char temporary[PATH_ROOM]; /* only npy_write uses this field */
};

/* Sets name and path. Checks that the folder of the file can be written, and that the file is a
 * regular file or does not exist yet. If a check fails, prints an error and returns false. Thus the
 * user sees these errors before the work is done. */
bool npy_output_at(const char *name, struct npy_output *output);

/* Writes all files. Each file is first completed under another name in the folder of its target.
 * The files are renamed when all of them are complete. */
bool npy_write(struct npy_output *outputs, int count);

#endif
