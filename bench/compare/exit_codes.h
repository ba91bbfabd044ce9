/* SPDX-License-Identifier: Apache-2.0
 *
 * Exit codes of attnkit compare. Verdicts are 0 to 2. Errors begin at 64, so that no error looks
 * like a verdict, or like an exit code of another subcommand of attnkit (0 to 2).
 */
#ifndef ATTNKIT_COMPARE_EXIT_CODES_H
#define ATTNKIT_COMPARE_EXIT_CODES_H

#include "tools/cli/tool.h"

enum exit_code {
    EXIT_GREEN = 0,
    EXIT_RED = 1,
    EXIT_INCONCLUSIVE = 2,
    EXIT_BAD_COMMAND = 64,         /* the arguments are invalid */
    EXIT_NOT_BUILT = 65,           /* a side cannot be found, built or copied */
    EXIT_NOT_COMPARABLE = 66,      /* a side cannot be loaded, or BASE can make none of the calls */
    EXIT_BASE_FAILED = 67,         /* BASE crashes, hangs or ends the process */
    EXIT_SYSTEM = EXIT_NO_VERDICT, /* a file, memory, a process or a processor is missing */
};

#endif
