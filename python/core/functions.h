// SPDX-License-Identifier: Apache-2.0
//
// The functions of the module attnkit._core, one for each name that Python sees.
#ifndef ATTNKIT_PYTHON_FUNCTIONS_H
#define ATTNKIT_PYTHON_FUNCTIONS_H

#include "python/core/errors.h"

namespace attnkit_python
{

function attention, scaled_dot_product_attention, attention_varlen, attend_cache, attend_part;
function append, merge, pack, linear, layer_pack, layer;
function info, enable, copied;
function torch_load, torch_override, torch_runs;

} // namespace attnkit_python

#endif
