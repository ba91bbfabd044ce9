/* SPDX-License-Identifier: Apache-2.0
 *
 * A small library for tests. A compiler option, such as -DCRASH or -DWRONG, gives the library a
 * fault. tests/perf/test_compare.py builds the library, and the worker in worker.c.
 */
#include "tests/perf/compare/toy.h"

#include <stdlib.h>
#include <unistd.h>

#ifndef VERSION
#define VERSION "0.1.0"
#endif
#ifndef WORK
#define WORK 20000
#endif
#ifndef STORED
#define STORED 1.0f /* the first value in the cache, divided by SCALE */
#endif
#ifndef SCALE
#define SCALE 1.0f /* scale of the values in the cache: a power of two */
#endif

const char *attnkit_version(void)
{
    return VERSION;
}

void toy_set_up(struct toy_cache *cache)
{
    *cache = (struct toy_cache){.values = {STORED * SCALE}, .scale = SCALE};
#ifdef ADDRESS
    cache->version_function = attnkit_version;
#endif
}

/* Multiplies and adds WORK times. No compiler can remove the loop, because `sum` is volatile. */
static float work(void)
{
    volatile float sum = 0.0f;
    for (int i = 0; i < WORK; i++)
        sum = sum * 0.5f + 1.0f;
    return sum;
}

#ifdef SLEEP_ONCE
/* Returns whether this is the first timed call of the process. `attnkit compare` fills `out` with
 * bytes of 0xa5 before each call that it does not time. */
static int is_first_timed(const struct toy_args *args)
{
    const unsigned char *const out = (const unsigned char *)args->out;
    static const char *const name = "TOY_IS_TIMED"; /* visible to all copies of this library */
    if ((out[0] == 0xa5 && out[1] == 0xa5) || getenv(name))
        return 0;
    return setenv(name, "1", 1) == 0;
}
#endif

#ifndef NO_CALL
const char *toy_call(const struct toy_args *args)
{
#ifdef SLEEP_ONCE
    if (is_first_timed(args))
        usleep(SLEEP_ONCE);
#endif
    const struct toy_cache *const cache = args->cache;
    const float result = work() + cache->values[0] / SCALE;
    if (cache->scale != SCALE ||
        (cache->version_function && cache->version_function != attnkit_version))
        abort(); /* another library has set up this data */
    for (size_t i = 0; i < args->count; i++)
        args->out[i] = result + (float)i;
#ifdef CRASH
    abort();
#endif
#ifdef LEAVE
    exit(0);
#endif
#ifdef HANG
    for (;;)
        pause();
#endif
#ifdef REFUSE
    return "not today";
#endif
#ifdef WRONG
    args->out[args->count - 1] += 1.0f;
#endif
#ifdef NEARLY
    args->out[args->count - 1] *= 1.00001f;
#endif
#ifdef CHANGING
    static float calls;
    args->out[0] += calls++;
#endif
#ifdef SLEEP
    usleep(SLEEP);
#endif
    return NULL;
}
#endif
