/* SPDX-License-Identifier: Apache-2.0
 *
 * The sides in one process: BASE, HEAD and BASE_AGAIN. BASE_AGAIN is the library of BASE, loaded
 * from other copies. As a control, BASE is compared with BASE_AGAIN. Each side is loaded several
 * times, and each copy of its library has its own worker. By chance, the addresses of a copy make
 * its code a few percent faster or slower. With several copies, this effect averages out.
 */
#ifndef ATTNKIT_COMPARE_SIDES_H
#define ATTNKIT_COMPARE_SIDES_H

#include <stdbool.h>

#include "bench/worker/worker.h"

enum { BASE, HEAD, BASE_AGAIN, SIDES };
enum { COPIES = 8, MAX_ISAS = 8, SIDES_PROBLEM = 512 };

/* Loads the copies that copies_make has made in `folder`, in the given order of sides. Checks that
 * the sides can be compared: each worker must have the version WORKER_VERSION and be bound to its
 * own library, and no two copies may be the same library. From this call on, *busy is the side that
 * is being loaded or called, or -1. Returns false on an error, and writes the error to problem. */
bool sides_load(const char *folder, const int order[SIDES], volatile int *busy,
                char problem[SIDES_PROBLEM]);

const char *side_name(int side);

/* Returns attnkit_version() of a side's library. */
const char *side_version(int side);

const struct worker *side_worker(int side, int copy);

/* Lists the instruction sets that BASE and HEAD can both use, from worst to best. Returns their
 * number. */
int sides_isas(const char *names[MAX_ISAS]);

/* Sets the side that is called from now on, or -1 for none. Returns the previous side. */
int sides_switch(int side);

#endif
