/* SPDX-License-Identifier: Apache-2.0
 *
 * NumPy's .npy files (formats 1.0 to 3.0) in C order, read and written: floats, and the types of
 * masks and segment ids. A function that returns false has said why on standard error, and has
 * written no file.
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
    size_t bytes; /* size of data */
    void *data;   /* never NULL, even if a size is 0; the caller must npy_free it */
};

/* The arrays that a reader accepts. */
struct npy_form {
    unsigned types; /* 1 << type for each type that is allowed */
    int min_rank, max_rank;
};

/* Reads an array of this form. The file must be whole and have nothing else. */
bool npy_read(const char *name, struct npy_form form, struct npy *array);

/* Makes room for an array of zeros of any rank up to 4. `name` is for the complaint. */
bool npy_make(const char *name, enum npy_type type, int rank, const int64_t *shape,
              struct npy *array);

/* Return the bytes of an element, and the name of its type in a file, such as "<f4". */
size_t npy_element(enum npy_type type);
const char *npy_descr(enum npy_type type);

void npy_free(struct npy *array);

/* Writes the shape as Python does, such as "[2, 3]". Returns text. */
const char *npy_shape(const struct npy *array, char text[NPY_SHAPE_TEXT]);

/* A file to be written. */
struct npy_output {
    const char *option;      /* the option that names the file, for messages */
    const char *name;        /* as written by the user */
    const struct npy *array; /* NULL: the file is `content` */
    const void *content;
    size_t content_bytes;
    char
        path[PATH_ROOM]; /* absolute, links followed; only npy_write uses this and the next field */
    char temporary[PATH_ROOM];
};

/* Sets name and path. Complains if npy_write is bound to fail, so that the user learns of it before
 * the work is done. */
bool npy_output_at(const char *name, struct npy_output *output);

/* Writes all of the files, .npy or not, or none: each is first completed under another name in its
 * folder. */
bool npy_write(struct npy_output *outputs, int count);

#endif
