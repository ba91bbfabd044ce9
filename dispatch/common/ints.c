/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the width of the integers of an array. The public calls check the array's address and
 * values.
 */
#include "dispatch/common/ints.h"

#include "dispatch/common/message.h"

attnkit_status attnkit_read_ints(const char *name, attnkit_ints theirs, struct ints *ours,
                                 char *message)
{
    if (theirs.type != ATTNKIT_INT64 && theirs.type != ATTNKIT_INT32)
        return refuse(message, ATTNKIT_UNSUPPORTED,
                      "%s.type is %d: must be ATTNKIT_INT64 (0) or ATTNKIT_INT32 (1)", name,
                      (int)theirs.type);
    if (theirs.reserved != 0)
        return refuse(message, ATTNKIT_UNSUPPORTED, "%s.reserved is %d: must be 0", name,
                      (int)theirs.reserved);
    *ours = (struct ints){theirs.data, theirs.type == ATTNKIT_INT32};
    return ATTNKIT_OK;
}
