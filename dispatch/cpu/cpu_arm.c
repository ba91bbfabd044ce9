/* SPDX-License-Identifier: Apache-2.0
 *
 * Features of a 64-bit ARM CPU, as the operating system reports them: Linux and Android by hardware
 * capabilities, macOS and iOS by sysctl, Windows by IsProcessorFeaturePresent. An operating system
 * reports only features whose registers it saves. On other systems only NEON is reported, which is
 * part of the base architecture.
 */
#include "dispatch/cpu/cpu.h"

#if defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

/* Positions of the bits in AT_HWCAP and AT_HWCAP2. Older headers do not define these bits. */
enum { ASIMDDP = 20, I8MM2 = 13 };

static uint32_t features(void)
{
    const unsigned long has = getauxval(AT_HWCAP), has2 = getauxval(AT_HWCAP2);
    return (has & HWCAP_ASIMD ? CPU_NEON : 0) | (has >> ASIMDDP & 1 ? CPU_DOTPROD : 0) |
           (has2 >> I8MM2 & 1 ? CPU_I8MM : 0);
}
#elif defined(__APPLE__)
#include <stddef.h>
#include <sys/sysctl.h>

/* Returns `feature` if the system knows the name and reports a number other than 0, else 0. Older
 * systems do not know all names. */
static uint32_t reported(const char *name, uint32_t feature)
{
    int is_there = 0;
    size_t size = sizeof is_there;
    return sysctlbyname(name, &is_there, &size, NULL, 0) == 0 && is_there ? feature : 0;
}

static uint32_t features(void)
{
    return CPU_NEON | reported("hw.optional.arm.FEAT_DotProd", CPU_DOTPROD) |
           reported("hw.optional.arm.FEAT_I8MM", CPU_I8MM);
}
#elif defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

/* The numbers by which Windows knows the features. Older headers do not define these numbers. */
enum { V82_DP = 43, V82_I8MM = 66 };

static uint32_t features(void)
{
    return CPU_NEON | (IsProcessorFeaturePresent(V82_DP) ? CPU_DOTPROD : 0) |
           (IsProcessorFeaturePresent(V82_I8MM) ? CPU_I8MM : 0);
}
#else
static uint32_t features(void)
{
    return CPU_NEON;
}
#endif

struct cpu attnkit_cpu(void)
{
    const uint32_t has = features();
    return (struct cpu){has, has};
}

const char *attnkit_ask_for_tiles(void)
{
    return "this CPU family has no tile registers";
}
