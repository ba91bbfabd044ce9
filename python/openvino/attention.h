// SPDX-License-Identifier: Apache-2.0
//
// The operation by which attnkit runs in OpenVINO. It has the inputs, the attribute and the meaning
// of opset13's ScaledDotProductAttention: q [.., q_len, head_dim], k [.., kv_len, head_dim], v
// [.., kv_len, value_dim], then mask and scale, which may be left out. The constructor throws
// ov::Exception if attnkit does not take the inputs. Only a run of the operation checks the sizes
// of mask and scale.
#ifndef ATTNKIT_OPENVINO_ATTENTION_H
#define ATTNKIT_OPENVINO_ATTENTION_H

#include <openvino/op/op.hpp>

namespace attnkit_openvino
{

class attention : public ov::op::Op
{
  public:
    OPENVINO_OP("Attention", "attnkit");

    attention() = default;
    attention(const ov::OutputVector &inputs, bool causal);

    void validate_and_infer_types() override;
    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector &inputs) const override;
    bool visit_attributes(ov::AttributeVisitor &visitor) override;
    bool has_evaluate() const override;
    bool evaluate(ov::TensorVector &outputs, const ov::TensorVector &inputs) const override;

  private:
    bool causal_ = false;
};

} // namespace attnkit_openvino

#endif // ATTNKIT_OPENVINO_ATTENTION_H
