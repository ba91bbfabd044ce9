/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of whole arrays. The polynomial limits the speed of y = 2^x. Memory limits the speed of
 * the products of two arrays.
 */
#include "kernels/avx2/avx2.h"
/* Defines attnkit_avx2_exp2 and attnkit_avx2_multiply. */
#include "kernels/vectors/arrays.h"
