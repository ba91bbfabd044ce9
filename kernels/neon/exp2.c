/* SPDX-License-Identifier: Apache-2.0
 *
 * y = 2^x over an array, bound by the polynomial, and products of two arrays, bound by memory.
 */
#include "kernels/neon/neon.h"
/* Defines attnkit_neon_exp2 and attnkit_neon_multiply. */
#include "kernels/vectors/arrays.h"
