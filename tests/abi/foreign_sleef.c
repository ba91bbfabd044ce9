/* SPDX-License-Identifier: Apache-2.0
 *
 * Nine functions with the names of SLEEF's functions that attnkit once imported. Another library in
 * the process, such as PyTorch, may also bring functions with these names. The functions of this
 * file end the process. One build of client.c is linked with this file. The test of this build
 * fails if a call reaches one of the functions.
 */
#include <stdlib.h>

void Sleef_cinz_exp2d1_u10purec(void);
void Sleef_cinz_log2d1_u10purec(void);
void Sleef_cinz_sincosd1_u10purec(void);
void Sleef_finz_logf16_u10avx512f(void);
void Sleef_finz_logf4_u10advsimd(void);
void Sleef_finz_logf8_u10avx2(void);
void Sleef_finz_tanhf16_u10avx512f(void);
void Sleef_finz_tanhf4_u10advsimd(void);
void Sleef_finz_tanhf8_u10avx2(void);

void Sleef_cinz_exp2d1_u10purec(void)
{
    abort();
}

void Sleef_cinz_log2d1_u10purec(void)
{
    abort();
}

void Sleef_cinz_sincosd1_u10purec(void)
{
    abort();
}

void Sleef_finz_logf16_u10avx512f(void)
{
    abort();
}

void Sleef_finz_logf4_u10advsimd(void)
{
    abort();
}

void Sleef_finz_logf8_u10avx2(void)
{
    abort();
}

void Sleef_finz_tanhf16_u10avx512f(void)
{
    abort();
}

void Sleef_finz_tanhf4_u10advsimd(void)
{
    abort();
}

void Sleef_finz_tanhf8_u10avx2(void)
{
    abort();
}
