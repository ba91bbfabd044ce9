/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of whole arrays: y = 2^x, for which the polynomial is the bound, and products of two
 * arrays, for which memory is the bound.
 */
#include "kernels/neon/neon.h"
/* Defines attnkit_neon_exp2 and attnkit_neon_multiply. */
#include "kernels/vectors/arrays.h"
