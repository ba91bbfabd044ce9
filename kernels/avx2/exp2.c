/* SPDX-License-Identifier: Apache-2.0
 *
 * y = 2^x over an array, bound by the polynomial, and products of two arrays, bound by memory.
 */
#include "kernels/avx2/avx2.h"
/* Defines attnkit_avx2_exp2 and attnkit_avx2_multiply. */
#include "kernels/vectors/arrays.h"
