/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of whole arrays. The polynomial limits the speed of y = 2^x. Memory limits the speed of
 * the products of two arrays.
 */
#include "kernels/neon/neon.h"
/* Defines attnkit_neon_exp2 and attnkit_neon_multiply. */
#include "kernels/vectors/arrays.h"
