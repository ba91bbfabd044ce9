/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of points. They are rows of the benches, in shapes that take a few tenths of a
 * millisecond or less; /warm means that K, V and matrices may be in a cache, as the rest is, which
 * few disturb.
 */
#include "bench/compare/measure/points.h"

#include <stdio.h>
#include <string.h>

#include "bench/rows/calls.h"
#include "bench/compare/append.h"

/* Quick ones are of the best instruction set, QUICK ones of AVX2, too, and small ones also in plain
 * C. */
static const struct workload plain[] = {
    {"B1_H2_1_L192_D128_causal", F32, 1, QUICK, false},
    {"B1_H2_1_L192_D128_causal", F16 | I8 | Q8_0, 1, NEVER_QUICK, false},
    {"B1_H2_1_L192_D128_causal_token", F32, 1, NEVER_QUICK, false},
    {"B1_H2_1_L192_D128_causal_tiles", F32, 1, NEVER_QUICK, false},
    {"B1_H6_L128_D64_causal", F32, 1, QUICK, false},
    {"B1_H6_L128_D64", F32, 1, BEST_IS_QUICK, false},
    {"B2_H1_L64x128_D512", F32, 1, QUICK, false},
    {"B4_H2_L96_D64_pad", F32, 1, BEST_IS_QUICK, false},
    {"B1_H2_L112x375_D64", F32, 1, NEVER_QUICK, false},
    {"B1_H2_L160_D80", F32, 1, NEVER_QUICK, false},
    {"B1_H6_L37x91_D128", F32, 1, QUICK, false},
    {"B1_H2_L9x23_D64", F32, 1, NEVER_QUICK, true},
    {"B2_H8_L3x5_D64", F32, 1, QUICK, true}, /* what a call costs beside arithmetic */
    {"B1_H2_1_L256_D128_causal_window64", F32, 1, BEST_IS_QUICK, false},
    {"B1_H2_L192_D64_alltrue", F32, 1, NEVER_QUICK, false},
    {"B1_H2_L192_D64_dense", F32, 1, BEST_IS_QUICK, false},
    {"B4_H2_L96_D64_padmask", F32, 1, NEVER_QUICK, false},
    {"B1_H2_L192_D64_bias", F32, 1, BEST_IS_QUICK, false},
    {"B1_H2_L192_D64_causal_alibi", F32, 1, NEVER_QUICK, false},
    {"B1_H2_L192_D64_causal_softcap", F32, 1, BEST_IS_QUICK, false},
    {"B1_H2_L192_D64_causal_sinks", F32, 1, NEVER_QUICK, false},
    {"B1_H2_L192_D64_causal_dropout", F32, 1, NEVER_QUICK, false},
    {"B1_H2_L192_D64_causal_weights", F32, 1, NEVER_QUICK, false},
    {"B1_H8_2_L1x2048_D128", F32 | F16 | Q8_0, 1, NEVER_QUICK, false}, /* from memory */
};

static const struct workload warm[] = {
    {"B1_H8_2_L1x1024_D128", F32, 1, QUICK, false},
    {"B1_H8_2_L1x1024_D128", F16, 1, QUICK, false},
    {"B1_H8_2_L1x1024_D128", BF16 | I8, 1, NEVER_QUICK, false},
    {"B1_H8_2_L1x1024_D128", Q8_0, 1, BEST_IS_QUICK, false},
    {"B1_H8_2_L1x1024_D128_token", F32 | F16, 1, NEVER_QUICK, false},
    {"B1_H8_2_L1x1024_D128_tiles", F32 | Q8_0, 1, NEVER_QUICK, false},
    {"B1_H8_2_L1x1024_D128_tiles", F16, 1, BEST_IS_QUICK, false},
    {"B1_H8_2_L1x1024_D128_alibi", F32, 1, NEVER_QUICK, false},
    {"B1_H8_2_L1x1024_D128_window256", F32, 1, NEVER_QUICK, false},
    {"B1_H8_2_L8x512_D128_causal", F32, 1, BEST_IS_QUICK, false},
    {"B1_H8_2_L8x512_D128_causal", F16, 1, NEVER_QUICK, false},
    {"B1_H4_1_L32x512_D128_causal", F32, 1, NEVER_QUICK, false},
    {"R64_I384_O384", F32, 1, QUICK, false},
    {"R64_I384_O384", BF16 | Q8_0, 1, NEVER_QUICK, false},
    {"R1_I1024_O512", F32, 1, QUICK, false},
    {"R1_I1024_O512", F16, 1, NEVER_QUICK, false},
    {"R1_I1024_O512", Q8_0, 1, BEST_IS_QUICK, false},
    {"R37_I256_O203", F32, 1, BEST_IS_QUICK, false},
    {"R5_I96_O50", F32, 1, NEVER_QUICK, true},
    {"B1_H4_1_L32_D64_M256_causal", F32, 1, QUICK, false},
    {"B1_H8_2_L1x512_D64_M512", F32 | Q8_0, 1, NEVER_QUICK, false},
    {"B1_H4_2_L30_D32_M64_causal", F32, 1, BEST_IS_QUICK, false},
    {"B1_H2_1_L9_D16_M32_causal", F32, 1, NEVER_QUICK, true},
};

/* Rows that are written, with rotation. */
static const struct workload appends[] = {
    {"B1_H8_L128_D128", F32, 1, NEVER_QUICK, false},
    {"B1_H8_L128_D128", F16, 1, QUICK, false},
    {"B1_H8_L128_D128", Q8_0, 1, BEST_IS_QUICK, false},
    {"B1_H8_L128_D128_tiles", F16, 1, NEVER_QUICK, false},
};

static void warm_up(struct row_list *rows, int from)
{
    for (int i = from; i < rows->count; i++) {
        struct row *const row = &rows->list[i];
        const size_t used = strlen(row->name);
        row->warm = true;
        snprintf(row->name + used, sizeof row->name - used, "/warm");
    }
}

/* From a row of attention. */
static void make_append(struct row_list *rows, int from)
{
    for (int i = from; i < rows->count; i++) {
        struct row *const row = &rows->list[i];
        char rest[ROW_NAME];
        snprintf(rest, sizeof rest, "%s", strchr(row->name, '/'));
        snprintf(row->name, sizeof row->name, "append%.*s", ROW_NAME - 8, rest);
        row->run = run_append;
    }
}

static bool is_chosen(const struct row *row, const struct isa *best, const struct choice *choice)
{
    if (choice->isa)
        return !strcmp(choice->isa, row->isa->name) &&
               (!choice->quick || row->quick != NEVER_QUICK);
    if (row->isa == best)
        return !choice->quick || row->quick != NEVER_QUICK;
    const bool small = !strcmp(row->isa->name, "scalar");
    return small || (row->quick == QUICK && !strcmp(row->isa->name, "avx2"));
}

void points_add(struct row_list *rows, const struct choice *choice)
{
    const struct isa *isas;
    const int isa_count = attnkit_isas(&isas);
    const struct isa *const best = isa_count > 0 ? &isas[isa_count - 1] : NULL;
    add_workloads(rows, plain, sizeof plain / sizeof *plain);
    const int first_warm = rows->count;
    add_workloads(rows, warm, sizeof warm / sizeof *warm);
    warm_up(rows, first_warm);
    const int first_append = rows->count;
    add_workloads(rows, appends, sizeof appends / sizeof *appends);
    make_append(rows, first_append);
    int kept = 0;
    for (int i = 0; i < rows->count; i++)
        if (is_chosen(&rows->list[i], best, choice))
            rows->list[kept++] = rows->list[i];
    rows->count = kept;
}

const char *points_missing(const struct row *row, const struct functions *functions)
{
    if (row->run == run_linear && !(functions->packed_size && functions->pack &&
                                    functions->linear_workspace && functions->linear))
        return "attnkit_linear";
    if (row->run == run_layer && !(functions->layer_packed_size && functions->layer_pack &&
                                   functions->layer_workspace && functions->layer))
        return "attnkit_layer";
    return NULL;
}
