/* SPDX-License-Identifier: Apache-2.0
 *
 * The instruction sets, and which of them a call runs on.
 */
#ifndef ATTNKIT_ISA_H
#define ATTNKIT_ISA_H

#include <stdbool.h>

#include "kernels/kernels.h"
#include "attnkit.h"

struct isa {
    const char *name;
    const char *needs;             /* the same as needs_mask, for people */
    uint32_t needs_mask;           /* CPU_* bits */
    const struct kernels *kernels; /* NULL where it is not built */
};

struct isa_choice {
    const struct isa *isa;
    const char *reason;
};

/* The list, from worst to best. Dispatch, tests, benches and tools all walk it. */
int attnkit_isas(const struct isa **list);

bool attnkit_isa_can_run(const struct isa *isa);

/* The one with this name, or with NULL the one of ATTNKIT_ISA, or the best. */
attnkit_status attnkit_isa_pick(const char *name, struct isa_choice *choice, char *message);

#endif
