/* SPDX-License-Identifier: Apache-2.0
 *
 * Enables the units of the library that a program has to enable. Tests that list the units then
 * find them. Most CPUs have no such unit.
 */
#ifndef ATTNKIT_TEST_UNITS_H
#define ATTNKIT_TEST_UNITS_H

#include "attnkit.h"

static inline void enable_units(void)
{
    for (int32_t i = 0; i < attnkit_unit_count(); i++) {
        attnkit_unit_info info = {.size = sizeof info};
        if (attnkit_unit_get(i, &info, NULL) == ATTNKIT_OK)
            attnkit_enable(info.name, NULL); /* a unit that cannot run here stays out of the list */
    }
}

#endif
