/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of whole arrays: y = 2^x, for which the polynomial is the bound, and products of two
 * arrays, for which memory is the bound.
 */
#include "kernels/avx512/avx512.h"
/* Defines attnkit_avx512_exp2 and attnkit_avx512_multiply. */
#include "kernels/vectors/arrays.h"
