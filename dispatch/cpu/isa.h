/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of instruction sets, and the choice of one for a call.
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
};

struct isa_choice {
    const struct isa *isa;
    const char *reason;
};

/* Sets *list to all instruction sets, from worst to best, and returns their number. Dispatch,
 * tests, benches and tools all use it. */
int attnkit_isas(const struct isa **list);

bool attnkit_isa_can_run(const struct isa *isa);

/* Picks the instruction set with this name. If the name is NULL, picks the instruction set in
 * ATTNKIT_ISA, or the best one if ATTNKIT_ISA is not set. */
attnkit_status attnkit_isa_pick(const char *name, struct isa_choice *choice, char *message);

#endif
