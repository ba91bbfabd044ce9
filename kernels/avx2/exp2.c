/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of whole arrays: y = 2^x, whose speed the polynomial limits, and products of two
 * arrays, whose speed memory limits.
 */
#include "kernels/avx2/avx2.h"
/* Defines attnkit_avx2_exp2 and attnkit_avx2_multiply. */
#include "kernels/vectors/arrays.h"
