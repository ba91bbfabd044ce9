/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of points. Points have the names of rows of the benches. The call of a point takes a
 * few tenths of a millisecond or less. /planned is a run of a plan. /warm means that K, V and
 * matrices may be in a cache. Other data, such as q, masks and results, may be in a cache in every
 * call. Other programs disturb warm calls less than calls that read memory.
 */
#include "bench/compare/measure/points.h"

#include <stdio.h>
#include <string.h>

#include "bench/compare/measure/sides.h"
#include "tools/cli/filter.h"
#include "tools/cli/tool.h"

/* Each type is a bit, so that a set of types is a sum. */
enum { F32 = 1, F16 = 2, BF16 = 4, I8 = 8, Q8_0 = 16, TYPES = 5 };

static const char *const types[TYPES] = {"f32", "f16", "bf16", "i8", "q8_0"};

/* The main instruction set is the set of --isa or, without --isa, the best set that both sides can
 * use. On the main set, --quick leaves out workloads that are NEVER_QUICK. Without --isa, workloads
 * that are QUICK are measured on AVX2, too, with or without --quick. */
enum quick { NEVER_QUICK, BEST_IS_QUICK, QUICK };

/* A workload has a point for each of its types on the main instruction set. Without --isa, small
 * workloads also have points on scalar, and workloads that are QUICK also have points on AVX2. On
 * scalar there are only small workloads. */
struct point_workload {
    const char *family, *shape;
    unsigned types;
    enum quick quick;
    bool small;
};

static const struct point_workload plain[] = {
    {"prefill", "B1_H2_1_L192_D128_causal", F32, QUICK, false},
    {"prefill", "B1_H2_1_L192_D128_causal", F16 | I8 | Q8_0, NEVER_QUICK, false},
    {"prefill", "B1_H2_1_L192_D128_causal_token", F32, NEVER_QUICK, false},
    {"prefill", "B1_H8_L96_D128_token", F32, NEVER_QUICK, false}, /* rows share sets of L1 */
    {"prefill", "B1_H2_1_L192_D128_causal_tiles", F32, NEVER_QUICK, false},
    {"prefill", "B1_H6_L128_D64_causal", F32, QUICK, false},
    {"prefill", "B1_H6_L128_D64", F32, BEST_IS_QUICK, false},
    {"prefill", "B2_H1_L64x128_D512", F32, QUICK, false},
    {"prefill", "B4_H2_L96_D64_pad", F32, BEST_IS_QUICK, false},
    {"prefill", "B1_H2_L112x375_D64", F32, NEVER_QUICK, false},
    {"prefill", "B1_H2_L160_D80", F32, NEVER_QUICK, false},
    {"prefill", "B1_H6_L37x91_D128", F32, QUICK, false},
    {"prefill", "B1_H2_L9x23_D64", F32, NEVER_QUICK, true},
    {"prefill", "B2_H8_L3x5_D64", F32, QUICK, true}, /* the overhead of a call */
    {"prefill", "B2_H8_L3x5_D64/planned", F32, QUICK, true},
    {"prefill", "B1_H2_1_L256_D128_causal_window64", F32, BEST_IS_QUICK, false},
    {"prefill", "B1_H2_L192_D64_alltrue", F32, NEVER_QUICK, false},
    {"prefill", "B1_H2_L192_D64_dense", F32, BEST_IS_QUICK, false},
    {"prefill", "B4_H2_L96_D64_padmask", F32, NEVER_QUICK, false},
    {"prefill", "B1_H2_L192_D64_bias", F32, BEST_IS_QUICK, false},
    {"prefill", "B1_H2_L192_D64_causal_alibi", F32, NEVER_QUICK, false},
    {"prefill", "B1_H2_L192_D64_causal_softcap", F32, BEST_IS_QUICK, false},
    {"prefill", "B1_H2_L192_D64_causal_sinks", F32, NEVER_QUICK, false},
    {"prefill", "B1_H2_L192_D64_causal_dropout", F32, NEVER_QUICK, false},
    {"prefill", "B1_H2_L192_D64_causal_weights", F32, NEVER_QUICK, false},
    {"decode", "B1_H8_2_L1x2048_D128", F32 | F16 | Q8_0, NEVER_QUICK, false}, /* reads memory */
    {"decode", "B1_H32_8_L1x1280_D128_token", F16, NEVER_QUICK, false}, /* the heads take turns */
};

static const struct point_workload warm[] = {
    {"decode", "B1_H1_L1x16_D64", F32, QUICK, true},
    {"decode", "B1_H1_L1x16_D64/planned", F32, QUICK, true},
    {"decode", "B1_H8_2_L1x1024_D128", F32, QUICK, false},
    {"decode", "B1_H8_2_L1x1024_D128", F16, QUICK, false},
    {"decode", "B1_H8_2_L1x1024_D128", BF16 | I8, NEVER_QUICK, false},
    {"decode", "B1_H8_2_L1x1024_D128", Q8_0, BEST_IS_QUICK, false},
    {"decode", "B1_H8_2_L1x1024_D128_token", F32 | F16, NEVER_QUICK, false},
    {"decode", "B1_H8_2_L1x1024_D128_tiles", F32 | Q8_0, NEVER_QUICK, false},
    {"decode", "B1_H8_2_L1x1024_D128_tiles", F16, BEST_IS_QUICK, false},
    {"decode", "B1_H8_2_L1x1024_D128_alibi", F32, NEVER_QUICK, false},
    {"decode", "B1_H8_2_L1x1024_D128_window256", F32, NEVER_QUICK, false},
    {"few", "B1_H8_2_L8x512_D128_causal", F32, BEST_IS_QUICK, false},
    {"few", "B1_H8_2_L8x512_D128_causal", F16, NEVER_QUICK, false},
    {"prefill", "B1_H4_1_L32x512_D128_causal", F32, NEVER_QUICK, false},
    {"linear", "R64_I384_O384", F32, QUICK, false},
    {"linear", "R64_I384_O384", BF16 | Q8_0, NEVER_QUICK, false},
    {"linear", "R1_I1024_O512", F32, QUICK, false},
    {"linear", "R1_I1024_O512", F16, NEVER_QUICK, false},
    {"linear", "R1_I1024_O512", Q8_0, BEST_IS_QUICK, false},
    {"linear", "R37_I256_O203", F32, BEST_IS_QUICK, false},
    {"linear", "R5_I96_O50", F32, NEVER_QUICK, true},
    {"layer", "B1_H4_1_L32_D64_M256_causal", F32, QUICK, false},
    {"layer", "B1_H8_2_L1x512_D64_M512", F32 | Q8_0, NEVER_QUICK, false},
    {"layer", "B1_H4_2_L30_D32_M64_causal", F32, BEST_IS_QUICK, false},
    {"layer", "B1_H2_1_L9_D16_M32_causal", F32, NEVER_QUICK, true},
};

/* Appends of K, with rotation. */
static const struct point_workload appends[] = {
    {"append", "B1_H8_L128_D128", F32, NEVER_QUICK, false},
    {"append", "B1_H8_L128_D128", F16, QUICK, false},
    {"append", "B1_H8_L128_D128", Q8_0, BEST_IS_QUICK, false},
    {"append", "B1_H8_L128_D128_tiles", F16, NEVER_QUICK, false},
};

/* Returns whether the user has asked for the points of this workload on this instruction set. */
static bool is_chosen(const struct point_workload *workload, const char *isa, const char *best,
                      const struct choice *choice)
{
    const bool scalar = !strcmp(isa, "scalar"), quick = workload->quick != NEVER_QUICK;
    if (scalar && !workload->small)
        return false;
    if (choice->isa ? !strcmp(choice->isa, isa) : !strcmp(isa, best))
        return !choice->quick || quick;
    return !choice->isa && (scalar || (workload->quick == QUICK && !strcmp(isa, "avx2")));
}

/* The list of names. */
struct names {
    char (*list)[POINT_NAME];
    int count, max;
    const regex_t *filter;
};

/* Adds the names of a workload's points on an instruction set, if they match the filter. Prints an
 * error and returns false if the list is full. */
static bool add(struct names *names, const struct point_workload *workload, const char *isa,
                const char *suffix)
{
    for (int type = 0; type < TYPES; type++) {
        if (!(workload->types & 1u << type))
            continue;
        if (names->count == names->max)
            return complain("there are more than %d points", names->max);
        char *const name = names->list[names->count];
        snprintf(name, POINT_NAME, "%s/%s/%s/%s%s", workload->family, types[type], isa,
                 workload->shape, suffix);
        names->count += filter_takes(names->filter, name);
    }
    return true;
}

static bool add_all(struct names *names, const struct choice *choice)
{
    static const struct {
        const struct point_workload *list;
        size_t count;
        const char *suffix;
    } tables[] = {{plain, sizeof plain / sizeof *plain, ""},
                  {warm, sizeof warm / sizeof *warm, "/warm"},
                  {appends, sizeof appends / sizeof *appends, ""}};
    const char *isas[MAX_ISAS];
    const int isa_count = sides_isas(isas);
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (int i = isa_count - 1; i >= 0; i--)
            for (size_t w = 0; w < tables[t].count; w++)
                if (is_chosen(&tables[t].list[w], isas[i], isas[isa_count - 1], choice) &&
                    !add(names, &tables[t].list[w], isas[i], tables[t].suffix))
                    return false;
    return names->count > 0 || complain("no point is left; --list prints all names");
}

int points_choose(const struct choice *choice, char (*list)[POINT_NAME], int max)
{
    regex_t filter;
    struct names names = {list, 0, max, &filter};
    if (!filter_make(choice->filter, &filter))
        return 0;
    const bool ok = add_all(&names, choice);
    regfree(&filter);
    return ok ? names.count : 0;
}
