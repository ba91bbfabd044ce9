/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets the caller's floating-point modes aside while the library computes. Kernels run with
 * rounding to nearest, with subnormal numbers and without traps. Otherwise the bits would depend on
 * the modes that a host program has set. A compiler does not know that arithmetic depends on the
 * modes. Therefore fp_modes_begin and fp_modes_end are barriers for memory: arithmetic stays
 * between the two calls if it loads its operands and stores its results between them.
 */
#ifndef ATTNKIT_FP_MODES_H
#define ATTNKIT_FP_MODES_H

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>

typedef unsigned fp_modes;

static inline fp_modes fp_modes_begin(void)
{
    const fp_modes callers = _mm_getcsr();
    _mm_setcsr(0x1f80); /* the value after reset: all exceptions masked */
    __asm__ volatile("" ::: "memory");
    return callers;
}

static inline void fp_modes_end(fp_modes callers)
{
    __asm__ volatile("" ::: "memory");
    _mm_setcsr(callers);
}

#elif defined(__aarch64__)
#include <stdint.h>

typedef uint64_t fp_modes;

static inline fp_modes fp_modes_begin(void)
{
    fp_modes callers;
    __asm__ volatile("mrs %0, fpcr" : "=r"(callers));
    __asm__ volatile("msr fpcr, %0" ::"r"((fp_modes)0) : "memory");
    return callers;
}

static inline void fp_modes_end(fp_modes callers)
{
    __asm__ volatile("msr fpcr, %0" ::"r"(callers) : "memory");
}

#else
#include <fenv.h>

typedef fenv_t fp_modes;

static inline fp_modes fp_modes_begin(void)
{
    fp_modes callers;
    fegetenv(&callers);
    fesetenv(FE_DFL_ENV);
    return callers;
}

static inline void fp_modes_end(fp_modes callers)
{
    fesetenv(&callers);
}
#endif

#endif
