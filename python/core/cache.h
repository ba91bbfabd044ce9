// SPDX-License-Identifier: Apache-2.0
//
// The contents of a KVCache of Python. The KVCache passes its contents to each call as a tuple of
// numbers and arrays.
#ifndef ATTNKIT_PYTHON_CACHE_H
#define ATTNKIT_PYTHON_CACHE_H

#include "python/core/array.h"

namespace attnkit_python
{

// The tuple has the numbers first, and the arrays after them, in the order of these fields.
struct cache {
    void read(PyObject *object);

    int64_t type, batch, kv_heads, capacity, head_dim, value_dim, is_tiled, page_size, pages;
    int64_t group; // elements that share a scale; 0: all elements of a row
    array k, v, k_scales, v_scales, table;

    attnkit_tensor k_tensor() const;
    attnkit_tensor v_tensor() const;
    bool has_pages() const
    {
        return page_size > 0;
    }
    attnkit_pages page_group() const;
};

} // namespace attnkit_python

#endif
