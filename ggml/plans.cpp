// SPDX-License-Identifier: Apache-2.0
// Finds plans by the bytes of their op_shape and by their number of threads. This search costs less
// than checking the arguments anew.
#include "ggml/plans.h"

#include <cstring>

namespace attnkit_ggml
{

planned::planned(const op_shape &op, const attnkit_exec &exec)
    : threads(exec.threads), slopes(attnkit_ggml::slopes(op)), plan(arguments(op), exec)
{
    std::memcpy(&shape, &op, sizeof shape); // assignment may leave the padding out
}

const planned &plans::find(const op_shape &shape, const attnkit_exec &exec)
{
    for (const auto &kept : kept_)
        if (kept && kept->threads == exec.threads &&
            std::memcmp(&kept->shape, &shape, sizeof shape) == 0)
            return *kept;
    std::unique_ptr<planned> &place = kept_[oldest_];
    place.reset(new planned(shape, exec));
    oldest_ = (oldest_ + 1) % kept_.size();
    return *place;
}

} // namespace attnkit_ggml
