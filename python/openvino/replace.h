// SPDX-License-Identifier: Apache-2.0
//
// The pass that replaces the ScaledDotProductAttention operations of a model by attnkit's
// operation. The comment of replace_attention names the exceptions. A program in C++ links the
// extension and runs the pass:
//
//     ov::pass::Manager manager;
//     manager.register_pass<attnkit_openvino::replace_attention>();
//     manager.run_passes(model);
#ifndef ATTNKIT_OPENVINO_REPLACE_H
#define ATTNKIT_OPENVINO_REPLACE_H

#include <openvino/core/node.hpp>
#include <openvino/pass/matcher_pass.hpp>

namespace attnkit_openvino
{

// Two kinds of attention are not replaced: attention with inputs that attnkit's operation does not
// accept, and attention over a cache that OpenVINO extends in place.
class __attribute__((visibility("default"))) replace_attention : public ov::pass::MatcherPass
{
  public:
    OPENVINO_MATCHER_PASS_RTTI("attnkit::replace_attention");
    replace_attention();
};

// Returns attnkit's operation for a ScaledDotProductAttention, or null if this attention is left to
// OpenVINO.
std::shared_ptr<ov::Node> replacement(const ov::Node &theirs);

} // namespace attnkit_openvino

#endif // ATTNKIT_OPENVINO_REPLACE_H
