/* SPDX-License-Identifier: Apache-2.0
 *
 * The roofs of this machine: what an instruction set can compute with nothing but fused
 * multiply-adds, and what it can read from a level of the memory with nothing but loads. A roof is
 * measured in bursts short enough to alternate with what is held against it.
 */
#ifndef ATTNKIT_ROOF_H
#define ATTNKIT_ROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/measure/pool.h"

/* What each instruction set brings: its loops, in roof_<isa>.c, built with its flags. ---------- */

enum { READ_STEP = 4096 }; /* bytes: a buffer starts at, and has the size of, a multiple of it */

struct roof_loops {
    const char *isa;
    double flops; /* of a round of fma */
    /* Rounds of independent multiply-adds in registers; the result only keeps them alive. */
    float (*fma)(int64_t rounds);
    /* Loads of all bytes, without and with a prefetch ahead: which is faster, the CPU decides. */
    uint32_t (*read)(const char *bytes, size_t count);
    uint32_t (*read_ahead)(const char *bytes, size_t count);
};

/* What is multiplied and added, volatile so that no compiler knows it. */
extern const volatile float roof_factor, roof_term;

/* A roof and its burst. ------------------------------------------------------------------------ */

struct roof {
    const struct roof_loops *loops;
    struct pool *pool;           /* whose threads burst at once; NULL: the caller's alone */
    double work;                 /* FLOPs or bytes of a burst */
    int64_t rounds;              /* for each thread: of fma, or over its part of the piece */
    _Atomic int64_t nanoseconds; /* of processor time in the last burst */
    char *buffer;                /* what is read; NULL: the roof is one of multiply-adds */
    size_t size, piece, next;    /* of the buffer, of what a burst reads of it; where that starts */
    uint32_t (*read)(const char *bytes, size_t count);
};

/* The multiply-adds of an instruction set. False: the benches have no loops for it. */
bool roof_fma(struct roof *roof, const char *isa, struct pool *pool);

/* Reading a buffer of `size` bytes round and round. False: as above, or no memory. */
bool roof_read(struct roof *roof, const char *isa, struct pool *pool, size_t size);

/* One burst, of about 0.3 ms on each thread. Returns the seconds of processor time that it took on
 * all threads together, without their waiting for each other. */
double roof_burst(struct roof *roof);

/* FLOP/s or byte/s of a burst that took so many seconds of processor time. */
double roof_speed(const struct roof *roof, double seconds);

void roof_free(struct roof *roof);

#endif
