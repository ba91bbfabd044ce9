/* SPDX-License-Identifier: Apache-2.0
 *
 * Features of a CPU family without kernels of its own. attnkit_cpu reports no features, so calls
 * run on the scalar kernels.
 */
#include "dispatch/cpu/cpu.h"

struct cpu attnkit_cpu(void)
{
    return (struct cpu){0, 0};
}

const char *attnkit_ask_for_tiles(void)
{
    return "this CPU family has no tile registers";
}
