/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of whole arrays. The polynomial limits the speed of y = 2^x. Memory limits the speed of
 * the products of two arrays.
 */
#include "kernels/avx512/avx512.h"
/* Defines attnkit_avx512_exp2 and attnkit_avx512_multiply. */
#include "kernels/vectors/arrays.h"
