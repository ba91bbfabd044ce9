/* SPDX-License-Identifier: Apache-2.0
 *
 * A CPU family without kernels of its own: it has no features, so calls run on the scalar kernels.
 */
#include "dispatch/cpu/cpu.h"

struct cpu attnkit_cpu(void)
{
    return (struct cpu){0, 0};
}
