/* SPDX-License-Identifier: Apache-2.0
 *
 * The roofs of this machine. A roof is the speed of an instruction set with only fused
 * multiply-adds, or with only loads from a level of the memory hierarchy. A roof is measured in
 * short bursts, which alternate with the calls of a row.
 */
#ifndef ATTNKIT_ROOF_H
#define ATTNKIT_ROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/measure/pool.h"

/* The loops of an instruction set, in roof_<isa>.c, compiled for this instruction set. --------- */

enum { READ_STEP = 4096 }; /* bytes; the address and the size of a buffer are multiples of it */

struct roof_loops {
    const char *isa;
    double flops; /* FLOPs of a round of fma */
    /* Runs rounds of multiply-adds in registers. The multiply-adds of a round are independent. The
     * returned value depends on every multiply-add instruction, so that the compiler leaves out
     * none of them. */
    float (*fma)(int64_t rounds);
    /* read and read_ahead load all `count` bytes. read_ahead also prefetches. Which of these two
     * functions is faster depends on the CPU. */
    uint32_t (*read)(const char *bytes, size_t count);
    uint32_t (*read_ahead)(const char *bytes, size_t count);
};

/* The operands of fma, volatile so that the compiler cannot know their values. */
extern const volatile float roof_factor, roof_term;

/* A roof and its burst. ------------------------------------------------------------------------ */

struct roof {
    const struct roof_loops *loops;
    struct pool *pool; /* threads that run the burst at the same time; NULL: only the caller's */
    double work;       /* FLOPs or bytes of a burst */
    int64_t rounds;    /* rounds of fma by each thread; or how often each thread reads its part of
                        * the `piece` bytes */
    _Atomic int64_t nanoseconds; /* processor time of the last burst, summed over all threads */
    char *buffer;                /* bytes to read; NULL: a roof of multiply-adds */
    size_t size, piece, next; /* bytes of the buffer; bytes that a burst reads in each round; offset
                               * of the bytes that the next burst reads */
    uint32_t (*read)(const char *bytes, size_t count);
};

/* Makes the roof of the multiply-adds of an instruction set. Returns false if the benches have no
 * loops for the instruction set. */
bool roof_fma(struct roof *roof, const char *isa, struct pool *pool);

/* Makes the roof of reading a buffer again and again. The buffer has at most `size` bytes. Returns
 * false if the benches have no loops for the instruction set, or if there is no memory. */
bool roof_read(struct roof *roof, const char *isa, struct pool *pool, size_t size);

/* Runs one burst, which takes about 0.3 ms on each thread. Returns the processor time of the burst
 * in seconds, summed over all threads, without the time in which threads wait for each other. */
double roof_burst(struct roof *roof);

/* Returns the FLOP/s or byte/s of all threads together, in a burst that took `seconds` of processor
 * time, summed over all threads. */
double roof_speed(const struct roof *roof, double seconds);

void roof_free(struct roof *roof);

#endif
