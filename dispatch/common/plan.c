/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the header of a plan, once, and checks the header in every run. The check costs some
 * nanoseconds.
 */
#include "dispatch/common/plan.h"

#include "dispatch/common/message.h"
#include "dispatch/cpu/isa.h"

/* A variable whose address identifies the copy of the library, and in most cases the process. */
static const char this_library;

static const char *const names[] = {"attnkit_attention_plan", "attnkit_append_plan",
                                    "attnkit_linear_plan", "attnkit_layer_plan"};

attnkit_status attnkit_check_plan_memory(const void *plan, size_t plan_size, size_t needed,
                                         char *message)
{
    if (!plan)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "plan is NULL");
    if ((uintptr_t)plan % PLAN_ALIGNMENT != 0)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "plan is %p: must be aligned to %d bytes",
                      plan, PLAN_ALIGNMENT);
    if (plan_size < needed)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "plan_size is %zu: %zu needed", plan_size,
                      needed);
    return ATTNKIT_OK;
}

attnkit_status attnkit_begin_plan(struct plan_header *header, enum plan_kind kind, const char *isa,
                                  const struct kernels **kernels, char *message)
{
    struct isa_choice choice;
    const attnkit_status status = attnkit_isa_pick(isa, &choice, message);
    if (status != ATTNKIT_OK)
        return status;
    *header = (struct plan_header){.library = &this_library,
                                   .kind = (uint16_t)kind,
                                   .unit = (int16_t)choice.unit,
                                   .isa = choice.isa};
    *kernels = choice.kernels;
    return ATTNKIT_OK;
}

attnkit_status attnkit_check_plan(const void *plan, enum plan_kind kind, const char *isa,
                                  const struct kernels **kernels, char *message)
{
    const struct plan_header *const header = plan;
    if (!plan)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "plan is NULL");
    if ((uintptr_t)plan % PLAN_ALIGNMENT != 0 || header->library != &this_library ||
        header->kind != kind || !attnkit_is_choice(header->isa, header->unit))
        return refuse(message, ATTNKIT_BAD_ARGUMENT,
                      "plan (%p) is not what %s of this library wrote in this process", plan,
                      names[kind]);
    *kernels = attnkit_kernels_of(header->isa, header->unit);
    if (isa && !attnkit_isa_is_named(header->isa, header->unit, isa))
        return refuse(message, ATTNKIT_BAD_ISA, "exec.isa is \"%.32s\": the plan is for \"%s\"",
                      isa, (*kernels)->name);
    return ATTNKIT_OK;
}

attnkit_status attnkit_planned_workspace(const void *plan, enum plan_kind kind, size_t *bytes,
                                         char *message)
{
    const struct kernels *kernels;
    if (!bytes)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "bytes is NULL");
    const attnkit_status status = attnkit_check_plan(plan, kind, NULL, &kernels, message);
    if (status != ATTNKIT_OK)
        return status;
    *bytes = ((const struct plan_header *)plan)->workspace_size;
    return accept(message);
}
