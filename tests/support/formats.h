/* SPDX-License-Identifier: Apache-2.0
 *
 * What stored elements mean, worked out in binary64 from the definitions of the formats and from no
 * code of the library: for tests of conversions, and of calls on tensors of every type.
 */
#ifndef ATTNKIT_TEST_FORMATS_H
#define ATTNKIT_TEST_FORMATS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* A format of 16 bits: sign, exponent, fraction. */
struct format {
    const char *name;
    enum type type;
    int fraction_bits;
    int smallest; /* the exponent of its smallest number */
    uint16_t infinity;
};

enum { FORMATS = 2 };

extern const struct format formats[FORMATS]; /* binary16, bfloat16 */

/* That of TYPE_F16 or TYPE_BF16. */
const struct format *format_of(enum type type);

/* The number without a sign, where infinity counts as the power of two that would come next. */
double magnitude_of(const struct format *f, uint16_t half);

bool is_nan(const struct format *f, uint16_t half);

/* What a pattern widens to. A binary16 NaN becomes quiet, a bfloat16 one is left as it is. */
uint32_t widened_bits(const struct format *f, uint16_t half);

/* Whether `half` is what x narrows to: of its pattern's neighbours none is nearer, and none that is
 * as near is even; a NaN keeps its sign and the upper bits of its payload, and is quiet. */
bool is_narrowed(const struct format *f, float x, uint16_t half);

/* Whether a row of results of TYPE_F32, TYPE_F16 or TYPE_BF16 is what the n expected values are
 * narrowed to, the bits of a NaN included. */
bool is_narrowed_row(enum type type, const float *expected, const char *row, int64_t n);

/* A row of n elements of any type as binary32. Where has_scales, there is a scale for each `group`
 * of them. */
void widen_row(enum type type, const void *row, const float *scales, int64_t group, int64_t n,
               float *out);

/* Where byte n of a row lies in a tile of which the row is key `key`. */
int64_t byte_in_tile(enum type type, int64_t n, int64_t key);

#endif
