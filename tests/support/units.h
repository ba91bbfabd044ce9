/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions for tests that run on several instruction sets, with or without units. expect_isa ends
 * a test program whose user names an instruction set that cannot run here. Some units run only
 * after a call of attnkit_enable. enable_units calls attnkit_enable for every unit, so that the
 * tests can use each unit that this CPU has. name_without_units returns the name by which a call
 * uses an instruction set without its units.
 */
#ifndef ATTNKIT_TEST_UNITS_H
#define ATTNKIT_TEST_UNITS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attnkit.h"
#include "dispatch/cpu/isa.h"

/* Ends the program as a failure if its first argument is not the name of an instruction set that
 * can run here. Without this check, a program with a misspelt name would leave out tests and say
 * nothing. A program without arguments goes on. */
static inline void expect_isa(int argc, char **argv)
{
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    if (argc < 2)
        return;
    for (int i = 0; i < count; i++)
        if (strcmp(argv[1], isas[i].name) == 0 && attnkit_isa_can_run(&isas[i]))
            return;
    printf("Bail out! %s cannot run here\n", argv[1]);
    exit(2);
}

/* Enables all units. Ends the program as a failure if the CPU has a unit that gives wrong bits. */
static inline void enable_units(void)
{
    for (int32_t i = 0; i < attnkit_unit_count(); i++) {
        attnkit_unit_info info = {.size = sizeof info};
        char message[ATTNKIT_MESSAGE_SIZE];
        if (attnkit_unit_get(i, &info, NULL) != ATTNKIT_OK ||
            attnkit_enable(info.name, message) == ATTNKIT_OK)
            continue;
        if (strstr(message, "does not give the right bits")) {
            fprintf(stderr, "%s\n", message);
            exit(1);
        }
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
