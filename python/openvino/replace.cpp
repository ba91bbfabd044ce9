// SPDX-License-Identifier: Apache-2.0
//
// The pass replaces a ScaledDotProductAttention by attnkit's operation with the same inputs, name
// and run-time information. If attnkit's operation does not accept the inputs, its constructor
// throws, and the ScaledDotProductAttention stays as it is. Exported language models keep their KV
// cache as a state, and gather rows of this state by the indices of beams. Attention over such a
// cache also stays as it is. OpenVINO appends to such a cache in place, inside its own attention.
// For any other operation, OpenVINO would copy the cache.
#include "python/openvino/replace.h"

#include "python/openvino/attention.h"

#include <openvino/core/except.hpp>
#include <openvino/core/graph_util.hpp>
#include <openvino/core/rt_info.hpp>
#include <openvino/op/concat.hpp>
#include <openvino/op/matmul.hpp>
#include <openvino/op/scaled_dot_product_attention.hpp>
#include <openvino/op/util/gather_base.hpp>
#include <openvino/op/util/read_value_base.hpp>
#include <openvino/pass/pattern/matcher.hpp>
#include <openvino/pass/pattern/op/wrap_type.hpp>

#include <algorithm>

namespace attnkit_openvino
{

using sdpa = ov::op::v13::ScaledDotProductAttention;

namespace
{

// The most operations between an attention and the operation that gathers rows of its cache.
constexpr int most_steps = 10;

// Returns whether `node`, from whose result K or V is made, takes rows from a state by the indices
// of beams. New rows may follow these rows. Looks at most `steps` operations back. The result of a
// projection is no cache, so the search ends at a MatMul.
bool is_beam_cache(const ov::Node *node, int steps)
{
    if (ov::is_type<ov::op::util::GatherBase>(node) &&
        ov::is_type<ov::op::util::ReadValueBase>(node->get_input_node_ptr(0)))
        return true;
    if (ov::is_type<ov::op::v0::MatMul>(node))
        return false;
    const bool joins = ov::is_type<ov::op::v0::Concat>(node);
    const size_t count =
        joins ? node->get_input_size() : std::min<size_t>(node->get_input_size(), 1);
    for (size_t i = 0; steps > 0 && i < count; i++)
        if (is_beam_cache(node->get_input_node_ptr(i), steps - 1))
            return true;
    return false;
}

} // namespace

std::shared_ptr<ov::Node> replacement(const ov::Node &theirs)
{
    if (is_beam_cache(theirs.get_input_node_ptr(1), most_steps) ||
        is_beam_cache(theirs.get_input_node_ptr(2), most_steps))
        return nullptr;
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
