/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors of ONNX in memory and in files: the message TensorProto of onnx.proto, with its elements
 * as raw bytes or as numbers. It has the element types of the Attention operator.
 */
#ifndef ATTNKIT_TEST_ONNX_TENSOR_H
#define ATTNKIT_TEST_ONNX_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/interop/onnx/protobuf.h"

enum { TENSOR_MAX_RANK = 4 };

/* As TensorProto.DataType numbers them. */
enum tensor_type {
    TENSOR_FLOAT = 1,
    TENSOR_INT64 = 7,
    TENSOR_BOOL = 9,
    TENSOR_FLOAT16 = 10,
    TENSOR_BFLOAT16 = 16,
};

struct tensor {
    enum tensor_type type;
    int rank;
    int64_t dims[TENSOR_MAX_RANK];
    size_t count;   /* number of elements */
    size_t element; /* bytes of an element */
    void *data;     /* dense, the last dimension innermost; NULL: there is no tensor */
};

/* Parses a message. Returns a text that says what is wrong, or NULL; then the caller frees the
 * tensor by tensor_free. */
const char *tensor_parse(struct bytes message, struct tensor *tensor);

/* Parses a whole file in the same way. */
const char *tensor_read(const char *path, struct tensor *tensor);

/* Makes a tensor whose elements are bytes 0xff, which are NaN until they are written. */
const char *tensor_make(enum tensor_type type, int rank, const int64_t *dims,
                        struct tensor *tensor);

/* Writes the message, with raw bytes. */
const char *tensor_write(const char *path, const struct tensor *tensor);

void tensor_free(struct tensor *tensor);

/* Reads a whole file; the caller frees *data. Returns NULL, or a text that says what is wrong. */
const char *file_read(const char *path, uint8_t **data, struct bytes *bytes);

#endif
