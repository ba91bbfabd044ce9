/* SPDX-License-Identifier: Apache-2.0
 *
 * The entry of struct byte_kernels that runs SDOT, for the units of NEON that have SDOT.
 */
#ifndef ATTNKIT_NEON_TRIAL_H
#define ATTNKIT_NEON_TRIAL_H

#include "kernels/neon/neon.h"

static void dot(int32_t *sum, const int8_t *a, const int8_t *b)
{
    for (int i = 0; i < MAX_VECTOR; i += VECTOR) {
        const int8x16_t x = vld1q_s8(a + 4 * i), y = vld1q_s8(b + 4 * i);
        vst1q_s32(sum + i, vdotq_s32(vld1q_s32(sum + i), x, y));
    }
}

#endif
