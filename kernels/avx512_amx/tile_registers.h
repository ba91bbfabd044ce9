/* SPDX-License-Identifier: Apache-2.0
 *
 * The tile registers of AMX as the tiles for struct grouped_kernels use them: numbers, shapes and
 * instructions. An instruction contains the numbers of its registers, so these numbers are
 * constants. The functions are assembly, because the intrinsics of gcc 12 do not tell the compiler
 * which memory they read.
 */
#ifndef ATTNKIT_TILE_REGISTERS_H
#define ATTNKIT_TILE_REGISTERS_H

#include <stddef.h>
#include <stdint.h>

enum {
    TILE_LINES = 16, /* most rows of a register */
    TILE_FLOATS = 16 /* most 32-bit words in a row of a register */
};

/* Registers. A line is a key of K or a column of V, a lane is a query row. A rectangle has up to
 * 2 x 2 registers of sums: SUMS + 2 * i + j has the sums of the lines in LINES + i and the lanes in
 * LANES_OF + j. */
enum { SUMS = 0, LINES = 4, LANES_OF = 6, REGISTERS = 8 };

/* What LDTILECFG reads. */
struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Gives the registers their shapes. Registers of sums and of lines have `lines` rows. A row of a
 * register of lines has `words` words. Registers of lanes have a row for each of these words. Rows
 * of registers of sums and of lanes have TILE_FLOATS words. */
static inline void shape_registers(int lines, int words)
{
    const int word = sizeof(float);
    struct tile_shapes shapes = {.palette = 1};
    for (int i = 0; i < REGISTERS; i++) {
        shapes.rows[i] = (uint8_t)(i < LANES_OF ? lines : words);
        shapes.row_bytes[i] = (uint16_t)(word * (i >= LINES && i < LANES_OF ? words : TILE_FLOATS));
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(shapes));
}

/* Puts the registers into their initial state. The operating system then saves none of them at a
 * task switch, and the caller finds no shapes in them. */
static inline void release_registers(void)
{
    __asm__ volatile("tilerelease");
}

static inline __attribute__((always_inline)) void clear_register(const int to)
{
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(to));
}

/* Loads rows that lie `stride` bytes apart. */
static inline __attribute__((always_inline)) void load_register(const int to, const void *from,
                                                                ptrdiff_t stride)
{
    __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0"
                     :
                     : "i"(to), "r"(from), "r"(stride)
                     : "memory");
}

static inline __attribute__((always_inline)) void store_register(const int from, void *to,
                                                                 ptrdiff_t stride)
{
    __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)"
                     :
                     : "i"(from), "r"(to), "r"(stride)
                     : "memory");
}

/* Adds a group of up to 32 products of bf16 to each sum. */
static inline __attribute__((always_inline)) void
multiply_registers(const int sums, const int lines, const int lanes)
{
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0"
                     :
                     : "i"(sums), "i"(lines), "i"(lanes));
}

#endif
