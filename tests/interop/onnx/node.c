/* SPDX-License-Identifier: Apache-2.0
 *
 * NodeProto has the names of inputs and outputs in order. An input that is left out has an empty
 * name, or no name if all later inputs are left out, too. Outputs follow the same rule. The
 * attributes are AttributeProto messages with a name and a value.
 */
#include "tests/interop/onnx/node.h"

#include <stddef.h>
#include <string.h>

enum {
    NODE_INPUT = 1,
    NODE_OUTPUT = 2,
    NODE_OP_TYPE = 4,
    NODE_ATTRIBUTE = 5,
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_FLOAT = 2,
    ATTRIBUTE_INT = 3,
};

struct attribute {
    struct field name;
    bool has_float, has_int;
    float f;
    int64_t i;
};

static const char *parse_attribute(struct bytes message, struct attribute *attribute)
{
    struct field field;
    enum next next;
    *attribute = (struct attribute){0};
    while ((next = protobuf_next(&message, &field)) == NEXT_FIELD) {
        if (field.number == ATTRIBUTE_NAME && field.wire == WIRE_BYTES)
            attribute->name = field;
        if (field.number == ATTRIBUTE_FLOAT && field.wire == WIRE_FIXED32) {
            const uint32_t bits = (uint32_t)field.value;
            memcpy(&attribute->f, &bits, sizeof bits);
            attribute->has_float = true;
        }
        if (field.number == ATTRIBUTE_INT && field.wire == WIRE_VARINT) {
            attribute->i = (int64_t)field.value;
            attribute->has_int = true;
        }
    }
    return next == NEXT_BROKEN ? "an attribute is not a whole message" : NULL;
}

static bool set_float(struct node *node, const struct attribute *attribute)
{
    const struct {
        const char *name;
        float *value;
    } floats[] = {
        {"scale", &node->scale},
        {"softcap", &node->softcap},
        {"alibi_slope", &node->alibi_slope},
    };
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        if (attribute->has_float && protobuf_is_text(&attribute->name, floats[i].name)) {
            *floats[i].value = attribute->f;
            node->has_scale = node->has_scale || floats[i].value == &node->scale;
            return true;
        }
    return false;
}

static bool set_int(struct node *node, const struct attribute *attribute)
{
    const struct {
        const char *name;
        int64_t *value;
    } ints[] = {
        {"is_causal", &node->is_causal},
        {"q_num_heads", &node->q_num_heads},
        {"kv_num_heads", &node->kv_num_heads},
        {"qk_matmul_output_mode", &node->qk_matmul_output_mode},
        {"softmax_precision", &node->softmax_precision},
        {"left_window_size", &node->left_window_size},
        {"right_window_size", &node->right_window_size},
    };
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        if (attribute->has_int && protobuf_is_text(&attribute->name, ints[i].name)) {
            *ints[i].value = attribute->i;
            return true;
        }
    return false;
}

static const char *take_attribute(struct node *node, const struct field *field)
{
    struct attribute attribute;
    if (field->wire != WIRE_BYTES)
        return "an attribute of the wrong kind";
    const char *const wrong = parse_attribute(field->bytes, &attribute);
    if (wrong)
        return wrong;
    return set_float(node, &attribute) || set_int(node, &attribute)
               ? NULL
               : "an unknown attribute, or one of the wrong type";
}

/* Sets has[*count] to whether the name in the field is not empty, and increments *count. Returns
 * NULL, or an error message, for example if *count is `most` already. */
static const char *take_name(const struct field *field, bool *has, int *count, int most)
{
    if (field->wire != WIRE_BYTES)
        return "a name of the wrong kind";
    if (*count == most)
        return "more inputs or outputs than Attention has";
    has[(*count)++] = field->bytes.at < field->bytes.end;
    return NULL;
}

const char *node_parse(struct bytes message, struct node *node)
{
    int inputs = 0, outputs = 0;
    struct field field;
    enum next next;
    *node = (struct node){.left_window_size = -1, .right_window_size = -1};
    while ((next = protobuf_next(&message, &field)) == NEXT_FIELD) {
        const char *wrong = NULL;
        if (field.number == NODE_INPUT)
            wrong = take_name(&field, node->has_input, &inputs, INPUTS);
        else if (field.number == NODE_OUTPUT)
            wrong = take_name(&field, node->has_output, &outputs, OUTPUTS);
        else if (field.number == NODE_ATTRIBUTE)
            wrong = take_attribute(node, &field);
        else if (field.number == NODE_OP_TYPE && !protobuf_is_text(&field, "Attention"))
            wrong = "another operator than Attention";
        if (wrong)
            return wrong;
    }
    if (next == NEXT_BROKEN)
        return "not a whole message";
    if (!node->has_input[IN_Q] || !node->has_input[IN_K] || !node->has_input[IN_V])
        return "no Q, K or V";
    return node->has_output[OUT_Y] ? NULL : "no Y";
}
