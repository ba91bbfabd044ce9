// SPDX-License-Identifier: Apache-2.0
//
// A shape is looked up by its bytes, which costs less than checking its arguments anew.
#include "ggml/plans.h"

#include <cstring>

namespace attnkit_ggml
{

namespace
{

attnkit_exec exec_of(int64_t threads)
{
    attnkit_exec exec = attnkit::make<attnkit_exec>();
    exec.threads = threads;
    return exec;
}

bool is_for(const planned &kept, const op_shape &shape, int64_t threads)
{
    return kept.threads == threads && std::memcmp(&kept.shape, &shape, sizeof shape) == 0;
}

} // namespace

planned::planned(const op_shape &op, int64_t most)
    : shape(op), threads(most), slopes(attnkit_ggml::slopes(op)), plan(arguments(op), exec_of(most))
{
    std::memcpy(&shape, &op, sizeof shape); // a copy may leave the padding out
}

const planned &plans::find(const op_shape &shape, int64_t threads)
{
    for (const auto &kept : kept_)
        if (kept && is_for(*kept, shape, threads))
            return *kept;
    std::unique_ptr<planned> &place = kept_[oldest_];
    place.reset(new planned(shape, threads));
    oldest_ = (oldest_ + 1) % kept_.size();
    return *place;
}

} // namespace attnkit_ggml
