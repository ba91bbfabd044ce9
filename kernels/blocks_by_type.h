/* SPDX-License-Identifier: Apache-2.0
 *
 * The entry `unpack`, and the functions widen_blocks and narrow_blocks, which the entries `widen`
 * and `narrow` call. Each of these three functions calls an inline function (unpack, widen or
 * narrow_block) with the type of the blocks as a constant. The inline functions are defined before
 * this file is included. The blocks.c of scalar defines all three. The blocks.c of every other
 * instruction set defines narrow_block, and then includes kernels/vectors/blocks.h, which defines
 * widen and unpack and includes this file.
 */
#ifndef ATTNKIT_BLOCKS_BY_TYPE_H
#define ATTNKIT_BLOCKS_BY_TYPE_H

#include "kernels/blocks.h"

void KERNEL(widen_blocks)(enum type type, const char *row, int64_t n, float *out)
{
    require_built(TYPE_Q4_0); /* a build has all of these types or none */
    switch (type) {
    case TYPE_Q4_0:
        widen(TYPE_Q4_0, row, n, out);
        break;
    case TYPE_Q4_1:
        widen(TYPE_Q4_1, row, n, out);
        break;
    case TYPE_Q5_0:
        widen(TYPE_Q5_0, row, n, out);
        break;
    case TYPE_Q5_1:
        widen(TYPE_Q5_1, row, n, out);
        break;
    case TYPE_IQ4_NL:
        widen(TYPE_IQ4_NL, row, n, out);
        break;
    case TYPE_Q1_0:
        widen(TYPE_Q1_0, row, n, out);
        break;
    case TYPE_Q2_0:
        widen(TYPE_Q2_0, row, n, out);
        break;
    default:
        __builtin_trap();
    }
}

void KERNEL(unpack)(enum type type, const struct rows *rows, int count, void *to)
{
    require_built(TYPE_Q4_0);
    switch (type) {
    case TYPE_Q4_0:
        unpack(TYPE_Q4_0, rows, count, to);
        break;
    case TYPE_Q5_0:
        unpack(TYPE_Q5_0, rows, count, to);
        break;
    case TYPE_IQ4_NL:
        unpack(TYPE_IQ4_NL, rows, count, to);
        break;
    case TYPE_Q1_0:
        unpack(TYPE_Q1_0, rows, count, to);
        break;
    case TYPE_Q2_0:
        unpack(TYPE_Q2_0, rows, count, to);
        break;
    default:
        __builtin_trap();
    }
}

void KERNEL(narrow_blocks)(enum type type, const float *x, int64_t n, char *row)
{
    require_built(TYPE_Q4_0);
    for (int64_t i = 0; i < n; i += UNIT, row += block_bytes(type)) {
        if (type == TYPE_Q4_0)
            narrow_block(TYPE_Q4_0, x + i, row);
        else if (type == TYPE_Q5_0)
            narrow_block(TYPE_Q5_0, x + i, row);
        else
            __builtin_trap();
    }
}

#endif
