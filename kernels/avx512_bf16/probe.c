/* SPDX-License-Identifier: Apache-2.0
 *
 * The two forms of VDPBF16PS that the tiles use, each as a function of one instruction, which
 * dispatch/cpu/probe.c tries.
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
