/* SPDX-License-Identifier: Apache-2.0
 *
 * Angles in binary64, their cos and sin rounded once to binary32. The functions are SLEEF's
 * scalar ones without FMA: they have the same bits on every CPU, and none is called in an inner
 * loop.
 */
#include "kernels/cache/rope.h"

#include "isa_config.h"

#if ATTNKIT_HAVE_SLEEF
#include <sleef.h>

bool attnkit_rope_has_angles(void)
{
    return true;
}

void attnkit_rope_frequencies(double base, int64_t pairs, double *frequency)
{
    const double log2_base = Sleef_cinz_log2d1_u10purec(base);
    for (int64_t i = 0; i < pairs; i++)
        frequency[i] = Sleef_cinz_exp2d1_u10purec(-(double)i / (double)pairs * log2_base);
}

void attnkit_rope_cos_sin(int64_t position, const double *frequency, int64_t pairs, float *cos,
                          float *sin)
{
    for (int64_t i = 0; i < pairs; i++) {
        const Sleef_double_2 sin_cos =
            Sleef_cinz_sincosd1_u10purec((double)position * frequency[i]);
        sin[i] = (float)sin_cos.x;
        cos[i] = (float)sin_cos.y;
    }
}

#else

bool attnkit_rope_has_angles(void)
{
    return false;
}

void attnkit_rope_frequencies(double base, int64_t pairs, double *frequency)
{
    (void)base, (void)pairs, (void)frequency;
}

void attnkit_rope_cos_sin(int64_t position, const double *frequency, int64_t pairs, float *cos,
                          float *sin)
{
    (void)position, (void)frequency, (void)pairs, (void)cos, (void)sin;
}
#endif
