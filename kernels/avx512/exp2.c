/* SPDX-License-Identifier: Apache-2.0
 *
 * y = 2^x over an array, bound by the polynomial, and products of two arrays, bound by memory.
 */
#include "kernels/avx512/avx512.h"
/* Defines attnkit_avx512_exp2 and attnkit_avx512_multiply. */
#include "kernels/vectors/arrays.h"
