/* SPDX-License-Identifier: Apache-2.0
 *
 * The tested instructions of a CPU architecture, which multiply bf16, bytes or int16. Each
 * instruction has a function that runs it, and a model: a C function that imitates the instruction
 * (models.h). x86.c and arm.c have the lists of instructions.
 */
#ifndef ATTNKIT_TEST_UNITS_INSTRUCTIONS_H
#define ATTNKIT_TEST_UNITS_INSTRUCTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/units/models.h"

enum { MOST_WORDS = TILE_ROWS * TILE_WORDS };

struct instruction {
    const char *name;
    int words;    /* number of 32-bit words in each of acc, a and b */
    bool is_bf16; /* false: the elements of a and b are integers */
    bool (*is_here)(void);
    void (*run)(uint32_t *acc, const uint32_t *a, const uint32_t *b);
    uint32_t (*lane)(uint32_t acc, uint32_t a,
                     uint32_t b); /* the model of a lane; NULL if `whole` is the model */
    void (*whole)(uint32_t *acc, const uint32_t *a,
                  const uint32_t *b); /* the model of the instruction; NULL if `lane` is not NULL */
};

extern const struct instruction instructions[];
extern const int instruction_count;

#endif
