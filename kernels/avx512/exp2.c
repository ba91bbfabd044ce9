/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of whole arrays: y = 2^x, whose speed the polynomial limits, and products of two
 * arrays, whose speed memory limits.
 */
#include "kernels/avx512/avx512.h"
/* Defines attnkit_avx512_exp2 and attnkit_avx512_multiply. */
#include "kernels/vectors/arrays.h"
