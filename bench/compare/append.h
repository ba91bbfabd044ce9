/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of appends: append/f16/avx2/B1_H8_L128_D128 rotates 128 rows of 8 heads and writes them to a
 * cache of f16.
 */
#ifndef ATTNKIT_COMPARE_APPEND_H
#define ATTNKIT_COMPARE_APPEND_H

#include "bench/rows/rows.h"

void run_append(const struct row *row, struct patience patience, struct result *result);

#endif
