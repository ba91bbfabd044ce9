/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run brings against its plan: no length beyond the planned one, no memory beside the
 * planned one.
 */
#ifndef ATTNKIT_PLANNED_H
#define ATTNKIT_PLANNED_H

#include "attnkit.h"

/* That 0 <= value <= planned. */
attnkit_status attnkit_check_planned_length(const char *name, int64_t value, int64_t planned,
                                            char *message);

/* That there is nothing where nothing was planned. */
attnkit_status attnkit_check_absent(const char *name, const void *data, char *message);

#endif
