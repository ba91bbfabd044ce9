/* SPDX-License-Identifier: Apache-2.0
 *
 * Features of an x86 CPU. CPUID says which features the CPU has. XGETBV says which registers the
 * operating system saves at a task switch (Intel SDM volume 1, sections 14.3, 15.2 and volume 3,
 * section 2.6). A feature whose registers are not saved must not be used, whatever CPUID says. A
 * process may use the tile registers of AMX only with permission of the operating system (Linux:
 * Documentation/arch/x86/xstate.rst).
 */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* syscall */
#endif
#include <cpuid.h>
#include <stdbool.h>
#ifdef __linux__
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "dispatch/cpu/cpu.h"

enum {
    XCR0_YMM = 0x06,      /* SSE and AVX state */
    XCR0_ZMM = 0xe6,      /* XCR0_YMM, the mask registers and both parts of the ZMM state */
    XCR0_TILES = 0x60000, /* shapes and contents of tiles */
    LEAF1_OSXSAVE = 27,   /* bit of ECX: XGETBV may be used */
};

static uint32_t bit(uint32_t reg, int index, uint32_t feature)
{
    return reg >> index & 1 ? feature : 0;
}

static uint64_t xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Returns CPU_FAST_BF16 on CPUs of AMD, else 0. By the benchmark pigirons/cpufp, VDPBF16PS does
 * twice as many multiply-adds in a second as FMA on Zen 4 and Zen 5, and half as many as FMA on
 * Sapphire Rapids. CPUID has no bit for this. */
static uint32_t speed_of_bf16(void)
{
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid(0, &eax, &ebx, &ecx, &edx))
        return 0;
    const bool is_amd =
        ebx == signature_AMD_ebx && ecx == signature_AMD_ecx && edx == signature_AMD_edx;
    return is_amd ? CPU_FAST_BF16 : 0;
}

struct cpu attnkit_cpu(void)
{
    unsigned eax, ebx, ecx, edx;
    struct cpu cpu = {0, 0};
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx))
        return cpu;
    cpu.has = bit(ecx, 28, CPU_AVX) | bit(ecx, 12, CPU_FMA) | bit(ecx, 29, CPU_F16C);
    const uint64_t saved = bit(ecx, LEAF1_OSXSAVE, 1) ? xcr0() : 0;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
        cpu.has |= bit(ebx, 5, CPU_AVX2) | bit(ebx, 16, CPU_AVX512F) | bit(ebx, 17, CPU_AVX512DQ) |
                   bit(ebx, 30, CPU_AVX512BW) | bit(ebx, 31, CPU_AVX512VL) |
                   bit(ecx, 11, CPU_AVX512_VNNI) | bit(edx, 22, CPU_AMX_BF16) |
                   bit(edx, 24, CPU_AMX_TILE);
    if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx))
        cpu.has |= bit(eax, 4, CPU_AVX_VNNI) | bit(eax, 5, CPU_AVX512_BF16);
    cpu.has |= speed_of_bf16();

    const uint32_t ymm = CPU_AVX | CPU_FMA | CPU_F16C | CPU_AVX2 | CPU_AVX_VNNI;
    const uint32_t zmm = CPU_AVX512F | CPU_AVX512BW | CPU_AVX512DQ | CPU_AVX512VL |
                         CPU_AVX512_VNNI | CPU_AVX512_BF16 | CPU_FAST_BF16;
    if ((saved & XCR0_YMM) == XCR0_YMM)
        cpu.usable |= cpu.has & ymm;
    if ((saved & XCR0_ZMM) == XCR0_ZMM)
        cpu.usable |= cpu.has & zmm;
    if ((saved & XCR0_TILES) == XCR0_TILES)
        cpu.usable |= cpu.has & (CPU_AMX_TILE | CPU_AMX_BF16);
    return cpu;
}

#if defined(__linux__) && defined(SYS_arch_prctl)
static const char *reason_of(int error)
{
    switch (error) {
    case ENOSPC:
        return "the alternate signal stack of a thread is too small for tiles";
    case EINVAL:
        return "Linux is older than 5.16";
    case EPERM:
    case EACCES:
    case ENOSYS:
        return "this process may not call arch_prctl";
    default:
        return "Linux refuses tiles to this process";
    }
}

const char *attnkit_ask_for_tiles(void)
{
    enum { REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
    const int before = errno;
    const bool granted = syscall(SYS_arch_prctl, REQ_XCOMP_PERM, TILE_DATA) == 0;
    const int error = errno;
    errno = before;
    return granted ? NULL : reason_of(error);
}
#else
const char *attnkit_ask_for_tiles(void)
{
    return "the library can ask for tile registers only on Linux";
}
#endif
