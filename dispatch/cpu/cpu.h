/* SPDX-License-Identifier: Apache-2.0
 *
 * The features of the CPU, and which of them the operating system supports. Each CPU family has a
 * file that implements attnkit_cpu.
 */
#ifndef ATTNKIT_CPU_H
#define ATTNKIT_CPU_H

#include <stdint.h>

enum {
    CPU_AVX = 1 << 0,
    CPU_FMA = 1 << 1,
    CPU_AVX2 = 1 << 2,
    CPU_AVX512F = 1 << 3,
    CPU_AVX512BW = 1 << 4,
    CPU_AVX512DQ = 1 << 5,
    CPU_AVX512VL = 1 << 6,
    CPU_NEON = 1 << 7,
    CPU_F16C = 1 << 8,
    CPU_AVX512_BF16 = 1 << 9,
    CPU_AVX512_VNNI = 1 << 11,
    CPU_AMX_TILE = 1 << 12,
    CPU_AMX_BF16 = 1 << 13,
    CPU_DOTPROD = 1 << 14,
    CPU_I8MM = 1 << 15,
    CPU_AVX_VNNI = 1 << 16,
    CPU_FAST_BF16 = 1 << 10, /* a core starts as many VDPBF16PS in a cycle as FMAs of 512 bits */
};

struct cpu {
    uint32_t has;    /* features of the CPU */
    uint32_t usable; /* features whose registers the operating system saves */
};

/* Asks the machine for its features. On x86 the call executes CPUID several times, so the caller
 * should keep the answer. */
struct cpu attnkit_cpu(void);

/* Asks the operating system for permission to use the tile registers of AMX in this process.
 * CPU_AMX_TILE must be usable. Returns NULL if the operating system gives permission, else the
 * reason of the refusal as text. Makes a system call only on Linux for x86. */
const char *attnkit_ask_for_tiles(void);

#endif
