/* SPDX-License-Identifier: Apache-2.0
 *
 * Packs a matrix whose memory has been checked. attnkit_pack and attnkit_layer_pack share this
 * step.
 */
#ifndef ATTNKIT_PACK_H
#define ATTNKIT_PACK_H

#include "attnkit.h"
#include "kernels/linear/linear.h"

/* Packs this thread's share of the tiles or, with a parallel-for, all tiles. */
void attnkit_pack_execute(const struct packing *p, const struct kernels *kernels,
                          const attnkit_exec *exec);

#endif
