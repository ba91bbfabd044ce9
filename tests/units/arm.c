/* SPDX-License-Identifier: Apache-2.0
 *
 * NEON's instructions for bf16 and bytes, from the extensions BF16, DotProd and I8MM. Linux reports
 * whether the CPU has these extensions. BFDOT and BFMMLA run in the mode without EBF16, because the
 * test leaves the bit EBF of FPCR at 0.
 */
#include <arm_neon.h>
#include <stddef.h>
#include <sys/auxv.h>

#include "tests/units/instructions.h"

/* Bits of AT_HWCAP and AT_HWCAP2 in the auxiliary vector. Older headers do not define all these
 * bits. */
enum { HAS_DOTPROD = 20, HAS2_I8MM = 13, HAS2_BF16 = 14 };

static bool has_dotprod(void)
{
    return getauxval(AT_HWCAP) >> HAS_DOTPROD & 1;
}

static bool has_i8mm(void)
{
    return getauxval(AT_HWCAP2) >> HAS2_I8MM & 1;
}

static bool has_bf16(void)
{
    return getauxval(AT_HWCAP2) >> HAS2_BF16 & 1;
}

__attribute__((target("arch=armv8.2-a+bf16"))) static void
run_bfdot(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    const float32x4_t sum =
        vbfdotq_f32(vreinterpretq_f32_u32(vld1q_u32(acc)), vreinterpretq_bf16_u32(vld1q_u32(a)),
                    vreinterpretq_bf16_u32(vld1q_u32(b)));
    vst1q_u32(acc, vreinterpretq_u32_f32(sum));
}

__attribute__((target("arch=armv8.2-a+bf16"))) static void
run_bfmmla(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    const float32x4_t sum =
        vbfmmlaq_f32(vreinterpretq_f32_u32(vld1q_u32(acc)), vreinterpretq_bf16_u32(vld1q_u32(a)),
                     vreinterpretq_bf16_u32(vld1q_u32(b)));
    vst1q_u32(acc, vreinterpretq_u32_f32(sum));
}

__attribute__((target("arch=armv8.2-a+bf16"))) static void
run_bfmlalb(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    const float32x4_t sum =
        vbfmlalbq_f32(vreinterpretq_f32_u32(vld1q_u32(acc)), vreinterpretq_bf16_u32(vld1q_u32(a)),
                      vreinterpretq_bf16_u32(vld1q_u32(b)));
    vst1q_u32(acc, vreinterpretq_u32_f32(sum));
}

__attribute__((target("arch=armv8.2-a+bf16"))) static void
run_bfmlalt(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    const float32x4_t sum =
        vbfmlaltq_f32(vreinterpretq_f32_u32(vld1q_u32(acc)), vreinterpretq_bf16_u32(vld1q_u32(a)),
                      vreinterpretq_bf16_u32(vld1q_u32(b)));
    vst1q_u32(acc, vreinterpretq_u32_f32(sum));
}

__attribute__((target("arch=armv8.2-a+dotprod"))) static void
run_sdot(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    const int32x4_t sum =
        vdotq_s32(vreinterpretq_s32_u32(vld1q_u32(acc)), vreinterpretq_s8_u32(vld1q_u32(a)),
                  vreinterpretq_s8_u32(vld1q_u32(b)));
    vst1q_u32(acc, vreinterpretq_u32_s32(sum));
}

__attribute__((target("arch=armv8.2-a+dotprod"))) static void
run_udot(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    vst1q_u32(acc, vdotq_u32(vld1q_u32(acc), vreinterpretq_u8_u32(vld1q_u32(a)),
                             vreinterpretq_u8_u32(vld1q_u32(b))));
}

__attribute__((target("arch=armv8.2-a+i8mm"))) static void
run_usdot(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    const int32x4_t sum =
        vusdotq_s32(vreinterpretq_s32_u32(vld1q_u32(acc)), vreinterpretq_u8_u32(vld1q_u32(a)),
                    vreinterpretq_s8_u32(vld1q_u32(b)));
    vst1q_u32(acc, vreinterpretq_u32_s32(sum));
}

__attribute__((target("arch=armv8.2-a+i8mm"))) static void
run_smmla(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    const int32x4_t sum =
        vmmlaq_s32(vreinterpretq_s32_u32(vld1q_u32(acc)), vreinterpretq_s8_u32(vld1q_u32(a)),
                   vreinterpretq_s8_u32(vld1q_u32(b)));
    vst1q_u32(acc, vreinterpretq_u32_s32(sum));
}

__attribute__((target("arch=armv8.2-a+i8mm"))) static void
run_ummla(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    vst1q_u32(acc, vmmlaq_u32(vld1q_u32(acc), vreinterpretq_u8_u32(vld1q_u32(a)),
                              vreinterpretq_u8_u32(vld1q_u32(b))));
}

__attribute__((target("arch=armv8.2-a+i8mm"))) static void
run_usmmla(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    const int32x4_t sum =
        vusmmlaq_s32(vreinterpretq_s32_u32(vld1q_u32(acc)), vreinterpretq_u8_u32(vld1q_u32(a)),
                     vreinterpretq_s8_u32(vld1q_u32(b)));
    vst1q_u32(acc, vreinterpretq_u32_s32(sum));
}

const struct instruction instructions[] = {
    {"BFDOT", 4, true, has_bf16, run_bfdot, model_bfdot, NULL},
    {"BFMMLA", 4, true, has_bf16, run_bfmmla, NULL, model_bfmmla},
    {"BFMLALB", 4, true, has_bf16, run_bfmlalb, model_bfmlalb, NULL},
    {"BFMLALT", 4, true, has_bf16, run_bfmlalt, model_bfmlalt, NULL},
    {"SDOT", 4, false, has_dotprod, run_sdot, model_sdot, NULL},
    {"UDOT", 4, false, has_dotprod, run_udot, model_udot, NULL},
    {"USDOT", 4, false, has_i8mm, run_usdot, model_vpdpbusd, NULL},
    {"SMMLA", 4, false, has_i8mm, run_smmla, NULL, model_smmla},
    {"UMMLA", 4, false, has_i8mm, run_ummla, NULL, model_ummla},
    {"USMMLA", 4, false, has_i8mm, run_usmmla, NULL, model_usmmla},
};
const int instruction_count = sizeof instructions / sizeof instructions[0];
