// SPDX-License-Identifier: Apache-2.0
//
// core.add_extension() loads attnkit's operation and a reader. The reader replaces a
// ScaledDotProductAttention of a file of OpenVINO by this operation, so that unchanged models run
// on attnkit. replace.h says which attention is not replaced.
#include "python/openvino/attention.h"
#include "python/openvino/replace.h"

#include <openvino/core/op_extension.hpp>
#include <openvino/op/scaled_dot_product_attention.hpp>

namespace
{

using sdpa = ov::op::v13::ScaledDotProductAttention;

// Makes attnkit's operation for a ScaledDotProductAttention of a file, or OpenVINO's own operation
// if replacement() leaves this attention to OpenVINO.
class reader : public ov::BaseOpExtension
{
  public:
    const ov::DiscreteTypeInfo &get_type_info() const override
    {
        return sdpa::get_type_info_static();
    }

    ov::OutputVector create(const ov::OutputVector &inputs,
                            ov::AttributeVisitor &visitor) const override
    {
        const std::shared_ptr<ov::Node> theirs =
            ov::OpExtension<sdpa>().create(inputs, visitor).at(0).get_node_shared_ptr();
        const std::shared_ptr<ov::Node> ours = attnkit_openvino::replacement(*theirs);
        return (ours ? ours : theirs)->outputs();
    }

    std::vector<ov::Extension::Ptr> get_attached_extensions() const override
    {
        return {};
    }
};

std::vector<ov::Extension::Ptr> all()
{
    return {std::make_shared<ov::OpExtension<attnkit_openvino::attention>>(),
            std::make_shared<reader>()};
}

} // namespace

OPENVINO_CREATE_EXTENSIONS(all())
