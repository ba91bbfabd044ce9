/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions for tests that use units. enable_units enables the units of the library that a program
 * has to enable, so that these units can run in the tests. Most CPUs have none of these units.
 * name_without_units returns the name by which a call uses an instruction set without its units.
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
            attnkit_enable(info.name, NULL); /* refuses a unit that cannot run here */
    }
}

/* Returns a name of the instruction set with this index. A call that gets this name uses no unit of
 * the instruction set. */
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
