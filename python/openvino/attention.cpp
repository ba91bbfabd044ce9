// SPDX-License-Identifier: Apache-2.0
//
// Which inputs the operation accepts, and the type and shape of its result. OpenVINO's own
// operation infers the type and the shape, so that the results of both operations always have the
// same type and shape.
#include "python/openvino/attention.h"

#include "python/openvino/run.h"

#include <openvino/op/scaled_dot_product_attention.hpp>

namespace attnkit_openvino
{

namespace
{

constexpr int64_t most_dims = 4; // batch, heads, rows, elements

constexpr const char *names[] = {"query", "key", "value", "attention_mask", "scale"};

void check_rank(const ov::Node *node, size_t input)
{
    const ov::Rank rank = node->get_input_partial_shape(input).rank();
    NODE_VALIDATION_CHECK(node, rank.is_static() && rank.get_length() <= most_dims, names[input],
                          " has ", rank, " dimensions: attnkit takes up to ", most_dims);
}

bool is_float(const ov::element::Type &type)
{
    return type == ov::element::f32 || type == ov::element::f16 || type == ov::element::bf16;
}

// OpenVINO's plugin for the CPU turns bool into bytes when it compiles a model.
bool is_bool(const ov::element::Type &type)
{
    return type == ov::element::boolean || type == ov::element::u8;
}

void check_types(const ov::Node *node)
{
    const ov::element::Type type = node->get_input_element_type(0);
    NODE_VALIDATION_CHECK(node, is_float(type), "query is ", type,
                          ": attnkit takes f32, f16 and bf16");
    for (size_t i = 1; i < 3; i++)
        NODE_VALIDATION_CHECK(node, node->get_input_element_type(i) == type,
                              "query, key and value have different types");
    for (size_t i = 3; i < node->get_input_size(); i++) {
        const ov::element::Type extra = node->get_input_element_type(i);
        NODE_VALIDATION_CHECK(node, is_float(extra) || (i == 3 && is_bool(extra)), names[i], " is ",
                              extra, ": attnkit takes f32, f16",
                              i == 3 ? ", bf16 and boolean" : " and bf16");
    }
}

} // namespace

attention::attention(const ov::OutputVector &inputs, bool causal) : Op(inputs), causal_(causal)
{
    constructor_validate_and_infer_types();
}

void attention::validate_and_infer_types()
{
    const size_t count = get_input_size();
    NODE_VALIDATION_CHECK(this, count >= 3 && count <= 5, count,
                          " inputs: attnkit takes query, key, value, attention_mask and scale");
    check_types(this);
    for (size_t i = 0; i < count && i < 4; i++)
        check_rank(this, i);
    const ov::op::v13::ScaledDotProductAttention theirs(input_value(0), input_value(1),
                                                        input_value(2), causal_);
    set_output_type(0, theirs.get_output_element_type(0), theirs.get_output_partial_shape(0));
}

std::shared_ptr<ov::Node> attention::clone_with_new_inputs(const ov::OutputVector &inputs) const
{
    return std::make_shared<attention>(inputs, causal_);
}

bool attention::visit_attributes(ov::AttributeVisitor &visitor)
{
    visitor.on_attribute("causal", causal_);
    return true;
}

bool attention::has_evaluate() const
{
    return true;
}

bool attention::evaluate(ov::TensorVector &outputs, const ov::TensorVector &inputs) const
{
    run(outputs[0], inputs, causal_);
    return true;
}

} // namespace attnkit_openvino
