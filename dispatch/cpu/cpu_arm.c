/* SPDX-License-Identifier: Apache-2.0
 *
 * Features of a 64-bit ARM CPU: the hardware capabilities that the operating system reports. The
 * operating system reports only features whose registers it saves.
 */
#include "dispatch/cpu/cpu.h"

#if defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

struct cpu attnkit_cpu(void)
{
    const uint32_t has = getauxval(AT_HWCAP) & HWCAP_ASIMD ? CPU_NEON : 0;
    return (struct cpu){has, has};
}
#else
/* On systems other than Linux nothing is asked for, because NEON is part of their base architecture
 * for 64-bit ARM. */
struct cpu attnkit_cpu(void)
{
    return (struct cpu){CPU_NEON, CPU_NEON};
}
#endif

const char *attnkit_ask_for_tiles(void)
{
    return "this CPU family has no tiles";
}
