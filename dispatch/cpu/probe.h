/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials of the instructions of a unit, with crafted numbers, before the first use of the unit.
 */
#ifndef ATTNKIT_PROBE_H
#define ATTNKIT_PROBE_H

#include "kernels/kernels.h"

enum { PAIR_PROBES = 32 }; /* a multiple of MAX_VECTOR */

/* The bits of a word of x, of a word of w, and of a sum before and after the two products of these
 * words are added. */
struct pair_probe {
    uint32_t before, x, w, after;
};

extern const struct pair_probe attnkit_pair_probes[PAIR_PROBES];

/* Returns whether `add` and `add_one` of these tiles give the sums of all pair probes. */
bool attnkit_pairs_keep_bits(const struct pair_kernels *pairs);

/* Returns whether `add` of these tiles gives the right sums of products of 16-bit integers. Does
 * not accept NULL as `add`. */
bool attnkit_integers_keep_bits(const struct integer_kernels *integers);

/* Returns whether `add` of these tiles gives the right sums of products of an unsigned byte and a
 * signed byte. Does not accept NULL as `add`. */
bool attnkit_bytes_keep_bits(const struct matrix_integer_kernels *integers);

/* Returns whether `dot` and `multiply` of these tiles give the right sums of products of signed
 * bytes. A function that is NULL is not tried. */
bool attnkit_signed_bytes_keep_bits(const struct byte_kernels *bytes);

/* Returns whether these tiles give the bits of the scalar tiles for a panel of 16 lanes. `lanes` is
 * the number of lanes of a full panel of these tiles. Returns false if `lanes` is below 16. */
bool attnkit_groups_keep_bits(const struct grouped_kernels *grouped, int lanes);

/* Returns whether the instructions of a unit give the right bits. Does not try the tiles for groups
 * of products. */
bool attnkit_keeps_bits(const struct kernels *kernels);

#endif
