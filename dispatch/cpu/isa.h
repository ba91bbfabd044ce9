/* SPDX-License-Identifier: Apache-2.0
 *
 * The lists of instruction sets and of their units, and the choice for a call. A unit is a group of
 * instructions that only some CPUs with the instruction set have, and that do a part of the work
 * faster. "avx512+bf16" names an instruction set with a unit, and "avx512+none" names the same
 * instruction set without a unit. "avx512" alone stands for the instruction set with one of its
 * units: the last unit that can run here and is not slower on this CPU than the set alone. If there
 * is no such unit, "avx512" stands for the instruction set without a unit.
 */
#ifndef ATTNKIT_ISA_H
#define ATTNKIT_ISA_H

#include <stdbool.h>

#include "kernels/kernels.h"
#include "attnkit.h"

struct isa {
    const char *name;
    const char *needs;             /* needs_mask as text */
    uint32_t needs_mask;           /* CPU_* bits */
    const struct kernels *kernels; /* NULL if not built */
    int first_unit, unit_count;    /* its units in the list of attnkit_units */
};

struct unit {
    const char *name;    /* with the name of the instruction set: "avx512+bf16" */
    int isa;             /* index in the list of attnkit_isas */
    const char *needs;   /* needs_mask as text */
    uint32_t needs_mask; /* CPU_* bits, besides the bits of the instruction set */
    uint32_t worth_mask; /* CPU_* bits without which the unit is slower than its set alone */
    bool needs_leave;    /* whether a program has to enable the unit: attnkit_enable */
    const struct kernels *kernels; /* NULL if not built */
};

struct isa_choice {
    int isa;                       /* index in the list of attnkit_isas */
    int unit;                      /* index in the list of attnkit_units, or NO_UNIT */
    const struct kernels *kernels; /* with the tiles of the unit */
    const char *reason;
};

enum { NO_UNIT = -1 };

/* Sets *list to all instruction sets, from worst to best, and returns their number. */
int attnkit_isas(const struct isa **list);

bool attnkit_isa_can_run(const struct isa *isa);

/* attnkit_units does for units what attnkit_isas does for instruction sets. A unit can run if this
 * build has the unit, its instruction set can run, CPU and operating system support the unit, and
 * the unit is enabled. Its instructions must also give the right bits in the trials of probe.h. The
 * trials are made before the first use of the unit. A unit with needs_leave is enabled only after
 * attnkit_enable, any other unit always. */
int attnkit_units(const struct unit **list);
bool attnkit_unit_can_run(const struct unit *unit);

/* Picks the instruction set and the unit with this name. If the name names an instruction set
 * alone, picks the last of its units that can run here and is not slower than the set alone. If
 * there is no such unit, picks no unit. If the name is NULL, picks by the name in ATTNKIT_ISA. If
 * ATTNKIT_ISA is empty or not set, or the process runs with raised privileges, picks as for the
 * name of the best instruction set that can run. Refuses a name of nothing that can run here. */
attnkit_status attnkit_isa_pick(const char *name, struct isa_choice *choice, char *message);

/* Returns whether there is an instruction set with the index `isa`, and `unit` is the index of one
 * of its units or NO_UNIT. */
bool attnkit_is_choice(int isa, int unit);

/* Returns the kernels of an instruction set with a unit, or with NO_UNIT. */
const struct kernels *attnkit_kernels_of(int isa, int unit);

/* Returns whether a name is the name of the instruction set alone, or of the instruction set with
 * this unit. With NO_UNIT the second name ends with "+none". */
bool attnkit_isa_is_named(int isa, int unit, const char *name);

#endif
