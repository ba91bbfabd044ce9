/* SPDX-License-Identifier: Apache-2.0
 *
 * A function that turns the arguments of an attention call into struct attention. Only tests call
 * this function, to pass the struct to internal functions such as the scalar reference.
 */
#ifndef ATTNKIT_DISPATCH_ATTENTION_H
#define ATTNKIT_DISPATCH_ATTENTION_H

#include "attnkit.h"
#include "kernels/attention/attention.h"

/* Checks args as attnkit_attention does, without an exec, and fills `a`. Does not check the key
 * indices of cells, and does not make the table of cells: attnkit_bind_cells does both. */
attnkit_status attnkit_attention_problem(const attnkit_attention_args *args, struct attention *a,
                                         char *message);

#endif
