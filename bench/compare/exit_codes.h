/* SPDX-License-Identifier: Apache-2.0
 *
 * How the program ends. The verdicts are 0 to 2, as scripts know them; errors are beyond all codes
 * of the command, so that none is taken for a verdict.
 */
#ifndef ATTNKIT_COMPARE_EXIT_CODES_H
#define ATTNKIT_COMPARE_EXIT_CODES_H

#include "tools/cli/tool.h"

enum exit_code {
    EXIT_GREEN = 0,
    EXIT_RED = 1,
    EXIT_INCONCLUSIVE = 2,
    EXIT_BAD_COMMAND = 64,         /* not understood */
    EXIT_NOT_BUILT = 65,           /* a revision or build cannot be found or built */
    EXIT_NOT_COMPARABLE = 66,      /* cannot be loaded, other ABIs, no point in common */
    EXIT_BASE_FAILED = 67,         /* crashes or hangs: there is nothing to compare with */
    EXIT_SYSTEM = EXIT_NO_VERDICT, /* a file, memory or process cannot be had */
};

#endif
