/* SPDX-License-Identifier: Apache-2.0
 *
 * A node of ONNX's Attention operator, opsets 23 to 25: which inputs and outputs it has, and its
 * attributes. node_parse reads a node from a NodeProto message of onnx.proto.
 */
#ifndef ATTNKIT_TEST_ONNX_NODE_H
#define ATTNKIT_TEST_ONNX_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/interop/onnx/protobuf.h"

/* The inputs and outputs in the operator's order. */
enum input { IN_Q, IN_K, IN_V, IN_MASK, IN_PAST_KEY, IN_PAST_VALUE, IN_KV_LENS, INPUTS };
enum output { OUT_Y, OUT_PRESENT_KEY, OUT_PRESENT_VALUE, OUT_QK, OUTPUTS };

struct node {
    bool has_input[INPUTS];
    bool has_output[OUTPUTS];
    bool has_scale;
    float scale;
    float softcap;     /* 0: none */
    float alibi_slope; /* slope of all heads; only in nodes that flex.py makes, not in ONNX */
    int64_t is_causal;
    int64_t q_num_heads; /* 0: not given */
    int64_t kv_num_heads;
    int64_t qk_matmul_output_mode;
    int64_t softmax_precision; /* ignored: attnkit has no such option */
    int64_t left_window_size;  /* -1: no bound */
    int64_t right_window_size;
};

/* Parses a node. Returns NULL, or an error message. An unknown attribute is an error, because to
 * ignore it could change the result. */
const char *node_parse(struct bytes message, struct node *node);

#endif
