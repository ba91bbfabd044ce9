/* SPDX-License-Identifier: Apache-2.0
 *
 * A parallel-for without a pool of threads. Each call of parallel_for starts its threads, and joins
 * them at its end. To start and join a thread takes about 20 us. Work that is worth several threads
 * takes much longer. In return, there is no pool to keep or to stop.
 */
#include "tools/cli/parallel.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct share {
    pthread_t thread;
    bool started;
    void (*task)(void *arg, int64_t i);
    void *arg;
    int64_t index;
};

static void *do_share(void *argument)
{
    const struct share *share = argument;
    share->task(share->arg, share->index);
    return NULL;
}

void parallel_for(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    (void)pool;
    struct share shares[PARALLEL_MAX];
    for (int64_t i = 0; i < n; i++) {
        shares[i] = (struct share){.task = task, .arg = arg, .index = i};
        shares[i].started = i > 0 && !pthread_create(&shares[i].thread, NULL, do_share, &shares[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        if (shares[i].started)
            pthread_join(shares[i].thread, NULL);
        else
            do_share(&shares[i]);
    }
}
