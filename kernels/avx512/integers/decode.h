/* SPDX-License-Identifier: Apache-2.0
 *
 * The entry `decode` of struct integer_kernels, made from its parts: scores and weighted V. A file
 * defines the function dot (see pairs.h), then includes this header, and puts decode_integers into
 * its table.
 */
#ifndef ATTNKIT_AVX512_INTEGER_DECODE_H
#define ATTNKIT_AVX512_INTEGER_DECODE_H

#include "kernels/avx512/integers/tiled_scores.h"
#include "kernels/avx512/integers/weighted_v.h"

static __attribute__((noinline)) void tiled_scores(const struct panel *panel, struct scores *s)
{
    score_tiled_integers(panel, s);
}

static void scores(const struct panel *panel, struct scores *s)
{
    if (panel->block->k.tiled)
        tiled_scores(panel, s);
    else
        score_integers(panel, s);
}

static void weighted_v(const struct panel *panel, const struct weights *weights)
{
    weigh_integers(panel, weights);
}

static void decode_integers(const struct decode_block *block, int rows, float scale_log2)
{
    static const struct decode_parts parts = {scores, weighted_v};
    require_built_integers();
    attnkit_avx512_decode_by(&parts, block, rows, scale_log2);
}

#endif
