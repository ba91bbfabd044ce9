/* SPDX-License-Identifier: Apache-2.0
 *
 * The header of every plan. A run checks the header. The run refuses memory that is no plan, a plan
 * for another kind of call, a plan that another copy of the library wrote, and an instruction set
 * other than the planned one. In most cases the run also refuses a plan that another process wrote.
 */
#ifndef ATTNKIT_PLAN_H
#define ATTNKIT_PLAN_H

#include "attnkit.h"
#include "kernels/kernels.h"

enum { PLAN_ALIGNMENT = 16 }; /* bytes */

enum plan_kind { PLAN_OF_ATTENTION, PLAN_OF_APPEND, PLAN_OF_LINEAR, PLAN_OF_LAYER };

struct plan_header {
    const void *library; /* an address in the library that wrote the plan; no other library may
                          * run the plan */
    uint16_t kind;
    int16_t unit;          /* as in struct isa_choice */
    int32_t isa;           /* index in the list of attnkit_isas */
    size_t workspace_size; /* bytes that a run needs; 0 if no run has anything to do */
};

/* Checks that `plan` is not NULL and is aligned, and that plan_size is at least `needed` bytes. */
attnkit_status attnkit_check_plan_memory(const void *plan, size_t plan_size, size_t needed,
                                         char *message);

/* Chooses the instruction set and the unit by the name `isa` (NULL: automatic), and sets *kernels
 * to their kernels. Fills the header, with 0 as workspace_size. */
attnkit_status attnkit_begin_plan(struct plan_header *header, enum plan_kind kind, const char *isa,
                                  const struct kernels **kernels, char *message);

/* Checks a plan and sets *bytes to the workspace_size of the plan. */
attnkit_status attnkit_planned_workspace(const void *plan, enum plan_kind kind, size_t *bytes,
                                         char *message);

/* Checks the header of a plan that is to be run. `isa` is exec.isa of the run: NULL, or a name,
 * which is refused unless it names the planned instruction set. Sets *kernels to the kernels of the
 * plan. */
attnkit_status attnkit_check_plan(const void *plan, enum plan_kind kind, const char *isa,
                                  const struct kernels **kernels, char *message);

#endif
