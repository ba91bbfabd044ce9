// SPDX-License-Identifier: Apache-2.0
//
// Turns the shape of a mask into [batch][heads][rows][keys]. A dimension of length 1 that stands
// for several batch entries, heads, rows or keys gets a stride of 0. A mask is copied only if it
// has one column for several keys, or if the elements of its rows are not adjacent.
#include "python/torch/mask.h"

#include <cstring>

namespace attnkit_torch
{

void mask::broadcast(const attnkit_attention_args &args, const char *name)
{
    const int64_t whole[4] = {args.batch, args.q_heads, args.q_len, args.kv_len};
    view wide = view_;
    wide.ndim = 4;
    for (int d = 0; d < 4; d++) {
        const int from = d - (4 - view_.ndim);
        const int64_t length = from < 0 ? 1 : view_.shape[from];
        if (length != 1 && length != whole[d])
            refuse(std::string(name) + " has the shape " + shape_text(view_) +
                   ": must broadcast to (" + std::to_string(whole[0]) + ", " +
                   std::to_string(whole[1]) + ", " + std::to_string(whole[2]) + ", " +
                   std::to_string(whole[3]) + ")");
        wide.shape[d] = length;
        wide.strides[d] = length == 1 ? 0 : view_.strides[from];
    }
    view_ = wide;
}

// Copies the mask to memory in which the only element of each row stands in all columns.
void mask::repeat_columns(int64_t columns)
{
    const int64_t *const n = view_.shape, row = columns * view_.item;
    copy_.reset(new char[(size_t)(n[0] * n[1] * n[2] * row)]);
    char *next = copy_.get();
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t h = 0; h < n[1]; h++)
            for (int64_t i = 0; i < n[2]; i++)
                for (int64_t j = 0; j < columns; j++, next += view_.item)
                    memcpy(next,
                           view_.data + b * view_.strides[0] + h * view_.strides[1] +
                               i * view_.strides[2],
                           (size_t)view_.item);
    view_.data = copy_.get();
    view_.strides[2] = n[2] > 1 ? row : 0;
    view_.strides[1] = n[1] > 1 ? n[2] * row : 0;
    view_.strides[0] = n[0] > 1 ? n[1] * n[2] * row : 0;
    view_.shape[3] = columns;
    view_.strides[3] = view_.item;
}

void mask::add(attnkit_python::description &d, tensor t, mask_kind kind, const char *name)
{
    tensor_ = std::move(t);
    view_ = read_rows(tensor_, name);
    if (kind == NUMBERS)
        expect_float(view_, name);
    else if (view_.type != ATTNKIT_BOOL)
        refuse(std::string(name) + " must be bool, true where a row sees a key");
    broadcast(d.args, name);
    if (d.args.kv_len == 0)
        return;
    if (view_.shape[3] != d.args.kv_len)
        repeat_columns(d.args.kv_len);
    if (kind == BOOLS) {
        d.visibility.size = sizeof d.visibility;
        d.visibility.mask = describe(view_);
        d.visibility.mask_columns = d.args.kv_len;
        d.visibility.mask_kind = ATTNKIT_MASK_ATTEND;
    } else {
        d.scores.size = sizeof d.scores;
        d.scores.bias = describe(view_);
        d.scores.bias_columns = d.args.kv_len;
    }
}

} // namespace attnkit_torch
