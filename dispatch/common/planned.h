/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks a run against its plan: no length may be larger than planned, and no memory may be given
 * that was not planned.
 */
#ifndef ATTNKIT_PLANNED_H
#define ATTNKIT_PLANNED_H

#include "attnkit.h"

/* Checks that 0 <= value <= planned. */
attnkit_status attnkit_check_planned_length(const char *name, int64_t value, int64_t planned,
                                            char *message);

/* Checks that data is NULL, because the plan has no tensor or array for it. */
attnkit_status attnkit_check_absent(const char *name, const void *data, char *message);

#endif
