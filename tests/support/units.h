/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of units for tests. enable_units enables the units of the library that a program has to
 * enable. Tests that list the units then find them. Most CPUs have no such unit.
 * name_without_units names the tiles of an instruction set alone.
 */
#ifndef ATTNKIT_TEST_UNITS_H
#define ATTNKIT_TEST_UNITS_H

#include <stdio.h>

#include "attnkit.h"
#include "dispatch/cpu/isa.h"

static inline void enable_units(void)
{
    for (int32_t i = 0; i < attnkit_unit_count(); i++) {
        attnkit_unit_info info = {.size = sizeof info};
        if (attnkit_unit_get(i, &info, NULL) == ATTNKIT_OK)
            attnkit_enable(info.name, NULL); /* a unit that cannot run here stays out of the list */
    }
}

/* Returns the name by which a call uses no unit of the instruction set with this index. */
static inline const char *name_without_units(int isa)
{
    enum { MOST_ISAS = 8, LONGEST = 24 };
    static char names[MOST_ISAS][LONGEST];
    const struct isa *isas;
    attnkit_isas(&isas);
    if (isas[isa].unit_count == 0)
        return isas[isa].name;
    snprintf(names[isa], LONGEST, "%s+none", isas[isa].name);
    return names[isa];
}

#endif
