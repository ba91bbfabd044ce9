// SPDX-License-Identifier: Apache-2.0
//
// The pass, in one step: a ScaledDotProductAttention becomes attnkit's operation with the same
// inputs, name and run-time information. Its constructor decides whether it accepts the inputs.
#include "python/openvino/replace.h"

#include "python/openvino/attention.h"

#include <openvino/core/except.hpp>
#include <openvino/core/graph_util.hpp>
#include <openvino/core/rt_info.hpp>
#include <openvino/op/scaled_dot_product_attention.hpp>
#include <openvino/pass/pattern/matcher.hpp>
#include <openvino/pass/pattern/op/wrap_type.hpp>

namespace attnkit_openvino
{

using sdpa = ov::op::v13::ScaledDotProductAttention;

std::shared_ptr<ov::Node> replacement(const ov::Node &theirs)
{
    try {
        const bool causal = static_cast<const sdpa &>(theirs).get_causal();
        return std::make_shared<attention>(theirs.input_values(), causal);
    } catch (const ov::Exception &) {
        return nullptr;
    }
}

replace_attention::replace_attention()
{
    const auto pattern = ov::pass::pattern::wrap_type<sdpa>();
    register_matcher(std::make_shared<ov::pass::pattern::Matcher>(pattern, "attnkit"),
                     [](ov::pass::pattern::Matcher &found) {
                         const std::shared_ptr<ov::Node> theirs = found.get_match_root();
                         const std::shared_ptr<ov::Node> ours = replacement(*theirs);
                         if (!ours)
                             return false;
                         ours->set_friendly_name(theirs->get_friendly_name());
                         ov::copy_runtime_info(theirs, ours);
                         ov::replace_node(theirs, ours);
                         return true;
                     });
}

} // namespace attnkit_openvino
