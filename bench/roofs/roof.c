/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs bursts, and chooses their length and the bytes that they read.
 */
#include "bench/roofs/roof.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bench/measure/clock.h"
#include "roof_config.h"

extern const struct roof_loops roof_scalar, roof_avx2, roof_avx512, roof_neon;

/* ROOF_* is the address of the loops of an instruction set, or NULL if these loops are not
 * built. */
static const struct roof_loops *const all_loops[] = {ROOF_SCALAR, ROOF_AVX2, ROOF_AVX512,
                                                     ROOF_NEON};

static const double burst_seconds = 300e-6;

enum {
    TRIALS = 5,
    MAX_PIECE = 8 << 20, /* bytes: 0.3 ms at 25 GB/s, and more than an L2 of one core */
};

const volatile float roof_factor = 0.5f, roof_term = 0.5f;

/* Variables for results, so that the compiler must compute the results. */
static _Thread_local volatile float fma_sink;
static _Thread_local volatile uint32_t read_sink;

static const struct roof_loops *find_loops(const char *isa)
{
    for (size_t i = 0; i < sizeof all_loops / sizeof *all_loops; i++)
        if (all_loops[i] && !strcmp(all_loops[i]->isa, isa))
            return all_loops[i];
    return NULL;
}

/* ----------------------------------------------------------------------------------- bursts */

static void read_part(const struct roof *roof, int64_t thread)
{
    const size_t part = roof->piece / (size_t)pool_threads(roof->pool);
    for (int64_t i = 0; i < roof->rounds; i++)
        read_sink = roof->read(roof->buffer + roof->next + (size_t)thread * part, part);
}

static void burst_of_thread(void *argument, int64_t thread)
{
    struct roof *const roof = argument;
    const int64_t start = clock_nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    if (roof->buffer)
        read_part(roof, thread);
    else
        fma_sink = roof->loops->fma(roof->rounds);
    atomic_fetch_add(&roof->nanoseconds, clock_nanoseconds(CLOCK_THREAD_CPUTIME_ID) - start);
}

double roof_burst(struct roof *roof)
{
    roof->nanoseconds = 0;
    if (roof->pool)
        pool_for(roof->pool, pool_threads(roof->pool), burst_of_thread, roof);
    else
        burst_of_thread(roof, 0);
    roof->next += roof->piece;
    if (roof->next + roof->piece > roof->size)
        roof->next = 0;
    return 1e-9 * (double)roof->nanoseconds;
}

double roof_speed(const struct roof *roof, double seconds)
{
    return roof->work / (seconds / pool_threads(roof->pool));
}

/* Runs several bursts. Returns the processor time of the shortest burst divided by the number of
 * threads. The shortest burst counts, because other programs can only make a burst longer. */
static double best_seconds(struct roof *roof)
{
    double best = 1e9;
    for (int i = 0; i < TRIALS; i++) {
        const double seconds = roof_burst(roof);
        best = seconds < best ? seconds : best;
    }
    return best / pool_threads(roof->pool);
}

/* Sets the number of rounds so that a burst takes about burst_seconds on each thread. A burst takes
 * longer if a single round takes longer. */
static void set_rounds(struct roof *roof)
{
    double seconds;
    roof->rounds = 1;
    while ((seconds = best_seconds(roof)) < burst_seconds / 4)
        roof->rounds *= 2;
    const double rounds = (double)roof->rounds * burst_seconds / seconds;
    roof->rounds = rounds < 1.0 ? 1 : (int64_t)rounds;
}

/* ------------------------------------------------------------------------------------ roofs */

bool roof_fma(struct roof *roof, const char *isa, struct pool *pool)
{
    *roof = (struct roof){.loops = find_loops(isa), .pool = pool};
    if (!roof->loops)
        return false;
    set_rounds(roof);
    roof->work = roof->loops->flops * (double)roof->rounds * pool_threads(pool);
    return true;
}

/* Chooses the faster of the two read loops for this buffer. */
static void choose_read(struct roof *roof)
{
    roof->read = roof->loops->read_ahead;
    const double ahead = best_seconds(roof);
    roof->read = roof->loops->read;
    if (ahead < best_seconds(roof))
        roof->read = roof->loops->read_ahead;
}

bool roof_read(struct roof *roof, const char *isa, struct pool *pool, size_t size)
{
    const size_t step = READ_STEP * (size_t)pool_threads(pool);
    *roof = (struct roof){.loops = find_loops(isa), .pool = pool};
    roof->size = size / READ_STEP * READ_STEP;
    roof->piece = (size < MAX_PIECE ? size : MAX_PIECE) / step * step;
    /* The number of pieces is odd. If it were even, every other burst would always read the same
     * half of the pieces: bursts 0, 2, 4, ... would never read pieces 1, 3, 5, ...
     */
    if (roof->size / roof->piece % 2 == 0)
        roof->size -= roof->piece;
    roof->buffer = roof->loops ? aligned_alloc(READ_STEP, roof->size) : NULL;
    if (!roof->buffer)
        return false;
    memset(roof->buffer, 1,
           roof->size); /* otherwise, all pages would be mapped to the same page of zeros */
    roof->read = roof->loops->read;
    set_rounds(roof);
    choose_read(roof);
    roof->work = (double)roof->piece * (double)roof->rounds;
    return true;
}

void roof_free(struct roof *roof)
{
    free(roof->buffer);
    roof->buffer = NULL;
}
