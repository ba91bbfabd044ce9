// SPDX-License-Identifier: Apache-2.0
//
// Runs the pass replace_attention on a model in memory. The model has an attention that attnkit
// takes, and an attention that attnkit does not take, because its tensors have five dimensions.
// Prints TAP.
#include "python/openvino/replace.h"

#include <openvino/core/model.hpp>
#include <openvino/op/parameter.hpp>
#include <openvino/op/scaled_dot_product_attention.hpp>
#include <openvino/pass/manager.hpp>

#include <cstdio>
#include <string>

namespace
{

using sdpa = ov::op::v13::ScaledDotProductAttention;

int failures = 0, count = 0;

void check(bool ok, const char *name)
{
    failures += !ok;
    std::printf("%sok %d - %s\n", ok ? "" : "not ", ++count, name);
}

// Returns an attention with a single input, which is query, key and value. Adds this input to
// `inputs`.
std::shared_ptr<sdpa> attend(const ov::PartialShape &shape, ov::ParameterVector &inputs)
{
    inputs.push_back(std::make_shared<ov::op::v0::Parameter>(ov::element::f32, shape));
    return std::make_shared<sdpa>(inputs.back(), inputs.back(), inputs.back(), true);
}

} // namespace

int main()
{
    ov::ParameterVector inputs;
    const auto taken = attend({-1, 4, -1, 32}, inputs), left = attend({2, 2, 4, 9, 32}, inputs);
    taken->set_friendly_name("taken");
    const auto model = std::make_shared<ov::Model>(ov::OutputVector{taken, left}, inputs);
    ov::pass::Manager manager;
    manager.register_pass<attnkit_openvino::replace_attention>();
    manager.run_passes(model);
    const ov::Node *const first = model->get_results()[0]->get_input_node_ptr(0);
    const ov::Node *const second = model->get_results()[1]->get_input_node_ptr(0);
    check(first->get_type_info().version_id == std::string("attnkit"),
          "pass: attention is replaced");
    check(first->get_friendly_name() == "taken", "pass: the new node keeps the name");
    check(first->get_output_partial_shape(0) == taken->get_output_partial_shape(0),
          "pass: the new node keeps the shape");
    check(second == left.get(), "pass: an attention that attnkit does not take is left alone");
    std::printf("1..%d\n", count);
    return failures != 0;
}
