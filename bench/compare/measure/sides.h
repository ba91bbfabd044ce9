/* SPDX-License-Identifier: Apache-2.0
 *
 * The sides in one process: BASE, HEAD, and BASE once more. Each is loaded several times, a library
 * with a worker of its own: where a copy happens to lie in memory makes its code up to some percent
 * faster or slower, which the copies average.
 */
#ifndef ATTNKIT_COMPARE_SIDES_H
#define ATTNKIT_COMPARE_SIDES_H

#include <stdbool.h>

#include "bench/worker/worker.h"

enum { BASE, HEAD, BASE_AGAIN, SIDES };
enum { COPIES = 8, MAX_ISAS = 8, SIDES_PROBLEM = 512 };

/* Loads what copies_make has made in `folder`, in the order in which `order` has the sides, and
 * checks that it can be compared: workers of our version, each bound to a library of its own. From
 * now on *busy is the side that is being loaded or called, or -1. False: problem says why. */
bool sides_load(const char *folder, const int order[SIDES], volatile int *busy,
                char problem[SIDES_PROBLEM]);

const char *side_name(int side);

/* attnkit_version() of its library. */
const char *side_version(int side);

const struct worker *side_worker(int side, int copy);

/* The instruction sets that both sides can use, from worst to best. Returns how many. */
int sides_isas(const char *names[MAX_ISAS]);

/* Says which side is called from now on, or -1 that none is. Returns which one was. */
int sides_switch(int side);

#endif
