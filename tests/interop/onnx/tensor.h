/* SPDX-License-Identifier: Apache-2.0
 *
 * ONNX tensors in memory and in files. A file is a TensorProto message of onnx.proto, which stores
 * elements as raw bytes or as numbers. Only the element types of the Attention operator are
 * supported.
 */
#ifndef ATTNKIT_TEST_ONNX_TENSOR_H
#define ATTNKIT_TEST_ONNX_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/interop/onnx/protobuf.h"

enum { TENSOR_MAX_RANK = 4 };

/* The types have the numbers of TensorProto.DataType. */
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
    size_t element; /* size of an element in bytes */
    void *data; /* dense elements, with the last dimension innermost; NULL if there is no tensor */
};

/* Parses a TensorProto message. Returns NULL, or an error message. If tensor_parse returns NULL,
 * the caller frees the tensor by tensor_free. */
const char *tensor_parse(struct bytes message, struct tensor *tensor);

/* Reads a file and parses its bytes like tensor_parse. */
const char *tensor_read(const char *path, struct tensor *tensor);

/* Makes a tensor filled with bytes 0xff, so that floating-point elements are NaN until they are
 * written. Returns NULL, or an error message. The caller frees the tensor by tensor_free. */
const char *tensor_make(enum tensor_type type, int rank, const int64_t *dims,
                        struct tensor *tensor);

/* Writes the tensor to a file as a message with raw bytes. Returns NULL, or an error message. */
const char *tensor_write(const char *path, const struct tensor *tensor);

void tensor_free(struct tensor *tensor);

/* Reads a whole file into new memory *data. *bytes is the range of the file's bytes in *data.
 * Returns NULL, or an error message. If file_read returns NULL, the caller frees *data. */
const char *file_read(const char *path, uint8_t **data, struct bytes *bytes);

#endif
