/* SPDX-License-Identifier: Apache-2.0
 *
 * The program whose instructions tools/static/counts.py counts. The script runs the program in
 * callgrind, which counts one call of each row. `attnkit-counts ISA [ROW]` prints the version of
 * glibc, on which the counts depend. Then it prints the name of each row that it has called.
 * bench/README.md shows how to use the program. Shapes are small, because callgrind makes a program
 * fifty times as slow.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#include "bench/measure/caches.h"
#include "bench/measure/count_parts.h"

enum { ALL_TYPES = F32 | F16 | BF16 | I8 | Q8_0, PACKED_TYPES = F32 | F16 | BF16 | Q8_0 };

static const struct {
    const char *shape;
    unsigned types;
} cases[] = {
    {"B1_H1_L1_D1", F32}, /* the overhead of a call */
    {"B1_H1_L1_D1/planned", F32},
    {"B1_H1_L1x16_D64", F32},
    {"B1_H1_L1x16_D64/planned", F32},
    {"B2_H8_L3x5_D64", F32},
    {"B2_H8_L3x5_D64/planned", F32},
    {"B1_H2_1_L140_D64_causal", ALL_TYPES},
    {"B1_H2_L37x91_D128", F32 | F16 | Q8_0},
    {"B1_H2_L40x200_D80x48", F32},
    {"B1_H4_L40x150_D128_token", F32}, /* rows share sets of L1 */
    {"B1_H2_L40x1100_D64", F32},       /* several chunks of keys */
    {"B2_H2_L48_D64_pad", F32},
    {"B1_H4_2_L40x150_D64_causal_tiles", F32 | Q8_0},
    {"B1_H2_L150_D32_causal_window40", F32},
    {"B1_H2_L100_D32_alltrue", F32},
    {"B1_H2_L100_D32_dense", F32},
    {"B2_H2_L48_D32_padmask", F32},
    {"B1_H2_L100_D32_bias", F32},
    {"B1_H2_L100_D32_causal_alibi", F32},
    {"B1_H2_L100_D32_causal_softcap", F32},
    {"B1_H2_L100_D32_causal_sinks", F32},
    {"B1_H2_L100_D32_causal_dropout", F32},
    {"B1_H2_L100_D32_causal_weights", F32},
    {"B1_H8_2_L1x300_D128", ALL_TYPES},
    {"B1_H8_2_L1x1100_D128", F32 | Q8_0}, /* several chunks of keys */
    {"B1_H8_2_L1x300_D128_tiles", ALL_TYPES},
    {"B1_H8_2_L1x300_D128_token", F32},
    {"B1_H8_2_L1x300_D128_window100", F32},
    {"B1_H8_2_L1x300_D128_alltrue", F32},
    {"B1_H8_2_L1x300_D128_alibi", F32},
    {"B1_H8_2_L1x300_D128_softcap", F32},
    {"B1_H8_2_L4x300_D64_causal", F32 | F16 | Q8_0}, /* few rows */
    {"B1_H8_2_L4x300_D64_causal_tiles", F16},
    {"R1_I128_O200", PACKED_TYPES},
    {"R8_I128_O200", PACKED_TYPES},
    {"R70_I128_O72", PACKED_TYPES},
    {"R20_I1056_O72", F32 | Q8_0}, /* three cuts of the inputs */
    {"B1_H4_2_L30_D32_M64_causal", F32 | Q8_0},
    {"B1_H4_2_L1x100_D32_M128", F32 | F16 | BF16 | Q8_0},
};

/* ------------------------------------------------------------ functions that the rows call */

/* Makes a call that is counted. Callgrind counts while this function runs, and identifies the
 * function by its name. */
__attribute__((noinline)) void counted_call(void (*call)(void *arg), void *arg);

void counted_call(void (*call)(void *arg), void *arg)
{
    call(arg);
    __asm__ volatile(""); /* keeps the call from becoming a jump out of this function (tail call) */
}

/* Makes one call before the counted call, because the first call resolves symbols of libraries. */
void measure_calls(const struct row *row, struct pool *pool, struct patience patience,
                   const struct row_call *call, struct result *result)
{
    (void)row, (void)pool, (void)patience, (void)result;
    call->make(call->arg);
    counted_call(call->make, call->arg);
}

/* Replaces level_buffer of caches.c. With a buffer of 1 byte, a row has a single copy of K and V or
 * of its matrices. This is enough, because caches do not change counts. */
size_t level_buffer(int level)
{
    (void)level;
    return 1;
}

/* ------------------------------------------------------------------------------ the program */

static void add_cases(struct row_list *rows, const struct isa *isa)
{
    struct row like = {.isa = isa, .threads = 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (like.type = ATTNKIT_F32; like.type <= ATTNKIT_Q8_0; like.type++)
            if (cases[i].types & 1u << like.type && !add_call_row(rows, cases[i].shape, &like))
                abort();
    add_part_rows(rows, isa);
}

static bool run(const struct row *row)
{
    struct result result = {0};
    row->run(row, (struct patience){0}, &result);
    if (result.problem[0])
        fprintf(stderr, "attnkit-counts: %s: %s\n", row->name, result.problem);
    else
        printf("%s\n", row->name);
    return !result.problem[0];
}

static void print_libraries(void)
{
#ifdef __GLIBC__
    printf("# glibc %s\n", gnu_get_libc_version());
#endif
}

/* Runs all rows, or only the wanted row. */
static bool run_rows(const struct row_list *rows, const char *wanted)
{
    bool found = false;
    for (int i = 0; i < rows->count; i++)
        if (!wanted || !strcmp(wanted, rows->list[i].name)) {
            found = true;
            if (!run(&rows->list[i]))
                return false;
        }
    if (!found)
        fprintf(stderr, "attnkit-counts: no row %s\n", wanted);
    return found;
}

int main(int argc, char **argv)
{
    const struct isa *isas;
    struct isa_choice choice;
    struct row_list rows = {0};
    char message[ATTNKIT_MESSAGE_SIZE];
    bool done = false;
    if (argc < 2 || argc > 3) {
        fputs("usage: attnkit-counts ISA [ROW]\n", stderr);
        return 2;
    }
    if (attnkit_isa_pick(argv[1], &choice, message) != ATTNKIT_OK) {
        fprintf(stderr, "attnkit-counts: %s\n", message);
        return 1;
    }
    attnkit_isas(&isas);
    add_cases(&rows, &isas[choice.isa]);
    print_libraries();
    if (rows.out_of_memory)
        fputs("attnkit-counts: no memory\n", stderr);
    else
        done = run_rows(&rows, argc == 3 ? argv[2] : NULL);
    free(rows.list);
    return done ? 0 : 1;
}
