/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the lengths of a run, and that a run gives no memory that its plan does not have. Each
 * check costs one or two comparisons.
 */
#include "dispatch/common/planned.h"

#include "dispatch/common/message.h"

attnkit_status attnkit_check_planned_length(const char *name, int64_t value, int64_t planned,
                                            char *message)
{
    if (value >= 0 && value <= planned)
        return ATTNKIT_OK;
    return refuse(message, ATTNKIT_BAD_ARGUMENT,
                  "%s is %lld: must be between 0 and the planned value (%lld)", name,
                  (long long)value, (long long)planned);
}

attnkit_status attnkit_check_absent(const char *name, const void *data, char *message)
{
    if (!data)
        return ATTNKIT_OK;
    return refuse(message, ATTNKIT_BAD_ARGUMENT, "%s is given, but the plan has none", name);
}
