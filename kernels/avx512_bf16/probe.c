/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles use two forms of VDPBF16PS. Each function here runs one of these forms once, so that
 * dispatch/cpu/probe.c can try the form.
 */
#include "kernels/avx512_bf16/avx512_bf16.h"

void attnkit_avx512_bf16_add(float *sum, const float *x, const float *w)
{
    store_floats(sum, multiply_step(load_floats(x), load_floats(w), load_floats(sum), true));
}

void attnkit_avx512_bf16_add_one(float *sum, const float *x, const float *w)
{
    store_floats(sum, multiply_step_one(x, load_floats(w), load_floats(sum)));
}
