/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores of decode for K of any type of struct key_rows, and any number of rows of a panel. The
 * type and the number of rows are constants in score_keys, which a file defines before it includes
 * this file. Each type has its own function, so that no function saves registers that only another
 * type uses.
 */
#ifndef ATTNKIT_DECODE_SCORE_BY_TYPE_H
#define ATTNKIT_DECODE_SCORE_BY_TYPE_H

#include "kernels/vectors/decode/panel.h"

static inline __attribute__((always_inline)) void
score_type(const enum type type, const struct panel *panel, struct scores *scores)
{
    switch (computed_rows(panel)) {
    case 1:
        score_keys(type, panel, scores, 1);
        break;
    case 2:
        score_keys(type, panel, scores, 2);
        break;
    default:
        score_keys(type, panel, scores, PANEL_ROWS);
    }
}

static __attribute__((noinline)) void score_f32(const struct panel *panel, struct scores *scores)
{
    score_type(TYPE_F32, panel, scores);
}

static __attribute__((noinline)) void score_f16(const struct panel *panel, struct scores *scores)
{
    score_type(TYPE_F16, panel, scores);
}

static __attribute__((noinline)) void score_bf16(const struct panel *panel, struct scores *scores)
{
    score_type(TYPE_BF16, panel, scores);
}

static __attribute__((noinline)) void score_i8(const struct panel *panel, struct scores *scores)
{
    score_type(TYPE_I8, panel, scores);
}

static __attribute__((noinline)) void score_q8_0(const struct panel *panel, struct scores *scores)
{
    score_type(TYPE_Q8_0, panel, scores);
}

static void score_keys_of_any_type(const struct panel *panel, struct scores *scores)
{
    switch (panel->block->k.type) {
    case TYPE_F32:
        score_f32(panel, scores);
        break;
    case TYPE_F16:
        require_built(TYPE_F16);
        score_f16(panel, scores);
        break;
    case TYPE_BF16:
        require_built(TYPE_BF16);
        score_bf16(panel, scores);
        break;
    case TYPE_I8:
        require_built(TYPE_I8);
        score_i8(panel, scores);
        break;
    case TYPE_Q8_0:
        require_built(TYPE_Q8_0);
        score_q8_0(panel, scores);
        break;
    default:
        __builtin_trap(); /* attention/block.c has converted all other types */
    }
}

#endif
