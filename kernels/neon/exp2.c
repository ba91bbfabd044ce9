/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of whole arrays: y = 2^x, whose speed the polynomial limits, and products of two
 * arrays, whose speed memory limits.
 */
#include "kernels/neon/neon.h"
/* Defines attnkit_neon_exp2 and attnkit_neon_multiply. */
#include "kernels/vectors/arrays.h"
