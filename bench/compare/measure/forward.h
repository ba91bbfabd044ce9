/* SPDX-License-Identifier: Apache-2.0
 *
 * What sides.c tells forward.c.
 */
#ifndef ATTNKIT_COMPARE_FORWARD_H
#define ATTNKIT_COMPARE_FORWARD_H

#include "bench/compare/measure/sides.h"

/* The sides are loaded; *busy is to be the one that is called, else -1. */
void forward_to(const struct side sides[SIDES], volatile int *busy);

#endif
