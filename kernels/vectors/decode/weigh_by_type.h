/* SPDX-License-Identifier: Apache-2.0
 *
 * Weighted V of decode, for any number of rows and for V of each type that decode reads without a
 * conversion beforehand. The type and the number of rows are constants in weigh_rows, which the
 * decode_v.c of an instruction set defines before it includes this file. The entry decode_v calls
 * weigh_by_type.
 */
#ifndef ATTNKIT_DECODE_WEIGH_BY_TYPE_H
#define ATTNKIT_DECODE_WEIGH_BY_TYPE_H

#include "kernels/vectors/decode/panel.h"

static inline __attribute__((always_inline)) void
weigh_type(const enum type type, const struct panel *panel, const struct weights *weights)
{
    switch (computed_rows(panel)) {
    case 1:
        weigh_rows(type, panel, weights, 1);
        break;
    case 2:
        weigh_rows(type, panel, weights, 2);
        break;
    default:
        weigh_rows(type, panel, weights, PANEL_ROWS);
        break;
    }
}

static __attribute__((noinline)) void weigh_f32(const struct panel *panel,
                                                const struct weights *weights)
{
    weigh_type(TYPE_F32, panel, weights);
}

static __attribute__((noinline)) void weigh_f16(const struct panel *panel,
                                                const struct weights *weights)
{
    weigh_type(TYPE_F16, panel, weights);
}

static __attribute__((noinline)) void weigh_bf16(const struct panel *panel,
                                                 const struct weights *weights)
{
    weigh_type(TYPE_BF16, panel, weights);
}

static __attribute__((noinline)) void weigh_i8(const struct panel *panel,
                                               const struct weights *weights)
{
    weigh_type(TYPE_I8, panel, weights);
}

static __attribute__((noinline)) void weigh_q8_0(const struct panel *panel,
                                                 const struct weights *weights)
{
    weigh_type(TYPE_Q8_0, panel, weights);
}

static inline void weigh_by_type(const struct panel *panel, const struct weights *weights)
{
    switch (panel->block->v.type) {
    case TYPE_F32:
        weigh_f32(panel, weights);
        break;
    case TYPE_F16:
        require_built(TYPE_F16);
        weigh_f16(panel, weights);
        break;
    case TYPE_BF16:
        require_built(TYPE_BF16);
        weigh_bf16(panel, weights);
        break;
    case TYPE_I8:
        require_built(TYPE_I8);
        weigh_i8(panel, weights);
        break;
    case TYPE_Q8_0:
        require_built(TYPE_Q8_0);
        weigh_q8_0(panel, weights);
        break;
    default:
        __builtin_trap(); /* attention/block.c has converted all other types */
    }
}

#endif
