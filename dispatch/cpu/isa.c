/* SPDX-License-Identifier: Apache-2.0
 *
 * The lists of instruction sets and units, the test whether this machine can run an instruction set
 * or a unit, and the choice for a call. All global state of the library is in this file. The state
 * has the features of the machine, and whether each unit gives the right bits. The state also has
 * the units that the program has enabled, the reason why attnkit_enable has refused a unit, and the
 * choice for calls that name no instruction set. The features, and whether a unit gives the right
 * bits, are determined once and then kept. Two threads that determine them at the same time get the
 * same result. The choice is kept until the program enables a unit.
 */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* secure_getenv */
#endif
#include "dispatch/cpu/isa.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#if !defined(__GLIBC__) && !defined(_WIN32)
#include <unistd.h>
#endif

#include "dispatch/cpu/cpu.h"
#include "dispatch/cpu/probe.h"
#include "dispatch/common/fp_modes.h"
#include "dispatch/common/message.h"
#include "dispatch/common/versioned.h"

extern const struct kernels attnkit_scalar, attnkit_avx2, attnkit_avx2_vnni, attnkit_avx512,
    attnkit_avx512_vnni, attnkit_avx512_bf16, attnkit_avx512_amx, attnkit_neon,
    attnkit_neon_dotprod, attnkit_neon_i8mm;

/* Whether this build has work for units that multiply integers. */
#if !defined(ATTNKIT_WITHOUT_INTEGERS) || !defined(ATTNKIT_WITHOUT_LINEAR)
#define MULTIPLIES_INTEGERS
#endif

/* The kernel tables. A table of another CPU family, or a table that the build leaves out, is NULL.
 */
#if defined(__x86_64__) && !defined(ATTNKIT_WITHOUT_AVX2)
#define KERNELS_AVX2 &attnkit_avx2
#else
#define KERNELS_AVX2 NULL
#endif
#if defined(__x86_64__) && defined(MULTIPLIES_INTEGERS) && !defined(ATTNKIT_WITHOUT_AVX2_VNNI)
#define KERNELS_AVX2_VNNI &attnkit_avx2_vnni
#else
#define KERNELS_AVX2_VNNI NULL
#endif
#if defined(__x86_64__) && !defined(ATTNKIT_WITHOUT_AVX512)
#define KERNELS_AVX512 &attnkit_avx512
#else
#define KERNELS_AVX512 NULL
#endif
#if defined(__x86_64__) && !defined(ATTNKIT_WITHOUT_AVX512_VNNI)
#define KERNELS_AVX512_VNNI &attnkit_avx512_vnni
#else
#define KERNELS_AVX512_VNNI NULL
#endif
#if defined(__x86_64__) && !defined(ATTNKIT_WITHOUT_AVX512_BF16)
#define KERNELS_AVX512_BF16 &attnkit_avx512_bf16
#else
#define KERNELS_AVX512_BF16 NULL
#endif
#if defined(__x86_64__) && !defined(ATTNKIT_WITHOUT_AVX512_AMX) &&                                 \
    !defined(ATTNKIT_WITHOUT_PRODUCTS) && !defined(ATTNKIT_WITHOUT_BF16)
#define KERNELS_AVX512_AMX &attnkit_avx512_amx
#else
#define KERNELS_AVX512_AMX NULL
#endif
#if defined(__aarch64__) && !defined(ATTNKIT_WITHOUT_NEON)
#define KERNELS_NEON &attnkit_neon
#else
#define KERNELS_NEON NULL
#endif
#if defined(__aarch64__) && defined(MULTIPLIES_INTEGERS) && !defined(ATTNKIT_WITHOUT_NEON_DOTPROD)
#define KERNELS_NEON_DOTPROD &attnkit_neon_dotprod
#else
#define KERNELS_NEON_DOTPROD NULL
#endif
#if defined(__aarch64__) && defined(MULTIPLIES_INTEGERS) && !defined(ATTNKIT_WITHOUT_NEON_I8MM)
#define KERNELS_NEON_I8MM &attnkit_neon_i8mm
#else
#define KERNELS_NEON_I8MM NULL
#endif

enum { SCALAR, AVX2, AVX512, NEON, ISA_COUNT };

/* The units of one instruction set go from worst to best. */
enum {
    AVX2_VNNI,
    AVX512_VNNI,
    AVX512_BF16,
    AVX512_AMX,
    NEON_DOTPROD,
    NEON_I8MM,
    UNIT_COUNT,
};

/* The instruction sets, from worst to best. */
static const struct isa isas[ISA_COUNT] = {
    [SCALAR] = {"scalar", "any CPU", 0, &attnkit_scalar, 0, 0},
    [AVX2] = {"avx2", "AVX2, FMA, F16C", CPU_AVX | CPU_AVX2 | CPU_FMA | CPU_F16C, KERNELS_AVX2,
              AVX2_VNNI, 1},
    [AVX512] = {"avx512", "AVX-512 F, BW, DQ, VL; AVX2, FMA",
                CPU_AVX | CPU_AVX2 | CPU_FMA | CPU_AVX512F | CPU_AVX512BW | CPU_AVX512DQ |
                    CPU_AVX512VL,
                KERNELS_AVX512, AVX512_VNNI, 3},
    [NEON] = {"neon", "NEON (64-bit ARM)", CPU_NEON, KERNELS_NEON, NEON_DOTPROD, 2},
};

/* All units. */
static const struct unit units[UNIT_COUNT] = {
    [AVX2_VNNI] = {"avx2+vnni", AVX2, "AVX_VNNI", CPU_AVX_VNNI, 0, false, KERNELS_AVX2_VNNI},
    [AVX512_VNNI] = {"avx512+vnni", AVX512, "AVX512_VNNI", CPU_AVX512_VNNI, 0, false,
                     KERNELS_AVX512_VNNI},
    [AVX512_BF16] = {"avx512+bf16", AVX512, "AVX512_BF16, AVX512_VNNI",
                     CPU_AVX512_BF16 | CPU_AVX512_VNNI, CPU_FAST_BF16, false, KERNELS_AVX512_BF16},
    [AVX512_AMX] = {"avx512+amx", AVX512, "AMX_TILE, AMX_BF16, AVX512_BF16, AVX512_VNNI",
                    CPU_AMX_TILE | CPU_AMX_BF16 | CPU_AVX512_BF16 | CPU_AVX512_VNNI, 0, true,
                    KERNELS_AVX512_AMX},
    [NEON_DOTPROD] = {"neon+dotprod", NEON, "DotProd", CPU_DOTPROD, 0, false, KERNELS_NEON_DOTPROD},
    [NEON_I8MM] = {"neon+i8mm", NEON, "I8MM, DotProd", CPU_I8MM | CPU_DOTPROD, 0, false,
                   KERNELS_NEON_I8MM},
};

#define WITHOUT_UNIT "+none"

enum {
    NOT_KNOWN = -1,        /* the choice has not been made yet */
    FROM_ENVIRONMENT = 64, /* added to the kept choice if ATTNKIT_ISA made it */
    UNITS_FROM = 8,        /* the kept choice is isa + UNITS_FROM * (unit + 1) */
    ENABLED_FROM = 128,    /* the kept choice also has ENABLED_FROM * enabled */
};
_Static_assert((int)ISA_COUNT <= UNITS_FROM && UNITS_FROM * (UNIT_COUNT + 1) <= FROM_ENVIRONMENT,
               "a number of less than FROM_ENVIRONMENT holds each choice");

/* Bit i is set if the program has enabled units[i]. */
static _Atomic int enabled;

/* The last reason for which attnkit_enable refused a unit that the machine has, or NULL. */
static const char *_Atomic refusal;

static const char wrong_bits[] = "the CPU does not give the right bits";

int attnkit_isas(const struct isa **list)
{
    *list = isas;
    return ISA_COUNT;
}

/* Returns the features of the machine, and keeps them for later calls. */
static struct cpu machine(void)
{
    static _Atomic uint64_t kept;
    const uint64_t known = UINT64_C(1) << 63;
    uint64_t word = atomic_load_explicit(&kept, memory_order_relaxed);
    if (!(word & known)) {
        const struct cpu cpu = attnkit_cpu();
        word = known | (uint64_t)cpu.has << 32 | cpu.usable;
        atomic_store_explicit(&kept, word, memory_order_relaxed);
    }
    return (struct cpu){(uint32_t)(word >> 32) & 0x7fffffffu, (uint32_t)word};
}

bool attnkit_isa_can_run(const struct isa *isa)
{
    return isa->kernels && (machine().usable & isa->needs_mask) == isa->needs_mask;
}

static const char *why(const struct isa *isa)
{
    const struct cpu cpu = machine();
    if (!isa->kernels)
        return "not built into this library";
    if ((cpu.has & isa->needs_mask) != isa->needs_mask)
        return "the CPU lacks a feature that the instruction set needs";
    if ((cpu.usable & isa->needs_mask) != isa->needs_mask)
        return "the operating system does not save the needed registers";
    return "CPU and operating system support the instruction set";
}

int attnkit_units(const struct unit **list)
{
    *list = units;
    return UNIT_COUNT;
}

static bool has_unit(const struct unit *unit)
{
    return attnkit_isa_can_run(&isas[unit->isa]) && unit->kernels &&
           (machine().usable & unit->needs_mask) == unit->needs_mask;
}

/* Tries the unit's tiles for groups of products, if the program has to enable the unit. Returns
 * false if these tiles give wrong bits. */
static bool groups_keep_bits(const struct unit *unit)
{
#ifndef ATTNKIT_WITHOUT_PRODUCTS
    if (unit->needs_leave)
        return attnkit_groups_keep_bits(unit->kernels->grouped, unit->kernels->lanes);
#endif
    (void)unit;
    return true;
}

/* Returns whether a unit gives the right bits. The machine must have the unit. The outcome of the
 * first trial is kept. */
static bool keeps_bits(const struct unit *unit)
{
    static _Atomic int kept[UNIT_COUNT];
    enum { UNTRIED, WRONG, RIGHT };
    _Atomic int *const mine = &kept[unit - units];
    int outcome = atomic_load_explicit(mine, memory_order_relaxed);
    if (outcome == UNTRIED) {
        const fp_modes callers = fp_modes_begin();
        outcome = attnkit_keeps_bits(unit->kernels) && groups_keep_bits(unit) ? RIGHT : WRONG;
        fp_modes_end(callers);
        atomic_store_explicit(mine, outcome, memory_order_relaxed);
    }
    return outcome == RIGHT;
}

/* Returns whether the unit needs no attnkit_enable, or the program has enabled it. */
static bool has_leave(const struct unit *unit)
{
    return !unit->needs_leave ||
           (atomic_load_explicit(&enabled, memory_order_acquire) >> (unit - units) & 1);
}

bool attnkit_unit_can_run(const struct unit *unit)
{
    return has_unit(unit) && has_leave(unit) && keeps_bits(unit);
}

static bool is_worth_it(const struct unit *unit)
{
    return (machine().usable & unit->worth_mask) == unit->worth_mask;
}

/* Returns the unit of calls that name the instruction set alone, or NO_UNIT. */
static int best_unit(int isa)
{
    const int first = isas[isa].first_unit;
    for (int i = first + isas[isa].unit_count - 1; i >= first; i--)
        if (is_worth_it(&units[i]) && attnkit_unit_can_run(&units[i]))
            return i;
    return NO_UNIT;
}

static const char *why_unit(const struct unit *unit)
{
    if (!unit->kernels)
        return "not built into this library";
    if (!attnkit_isa_can_run(&isas[unit->isa]))
        return "its instruction set does not run here";
    if ((machine().has & unit->needs_mask) != unit->needs_mask)
        return "the CPU lacks a feature that the unit needs";
    if (!has_unit(unit))
        return "the operating system does not save the needed registers";
    if (!has_leave(unit)) {
        const char *const refused = atomic_load_explicit(&refusal, memory_order_relaxed);
        return refused ? refused : "the program has not called attnkit_enable";
    }
    if (!keeps_bits(unit))
        return wrong_bits;
    if (!is_worth_it(unit))
        return "its instruction set is faster on this CPU: the unit is used only if named";
    if (best_unit(unit->isa) > unit - units)
        return "a better unit is used: this unit is used only if named";
    return "CPU and operating system support the unit";
}

bool attnkit_is_choice(int isa, int unit)
{
    return isa >= 0 && isa < ISA_COUNT && unit >= NO_UNIT && unit < UNIT_COUNT &&
           (unit == NO_UNIT || units[unit].isa == isa);
}

const struct kernels *attnkit_kernels_of(int isa, int unit)
{
    return unit == NO_UNIT ? isas[isa].kernels : units[unit].kernels;
}

/* Returns whether a name is the name of this instruction set followed by WITHOUT_UNIT. */
static bool is_without_unit(int isa, const char *name)
{
    const size_t length = strlen(isas[isa].name);
    return isas[isa].unit_count > 0 && strncmp(name, isas[isa].name, length) == 0 &&
           strcmp(name + length, WITHOUT_UNIT) == 0;
}

bool attnkit_isa_is_named(int isa, int unit, const char *name)
{
    if (name == isas[isa].name || strcmp(name, isas[isa].name) == 0)
        return true;
    return unit == NO_UNIT ? is_without_unit(isa, name) : strcmp(name, units[unit].name) == 0;
}

/* Sets the instruction set and unit of a choice by name. Returns false if nothing has this name.
 * Addresses of names are compared first, so that callers that took the name from attnkit_isa_get
 * pay for no strcmp. The time of a strcmp depends on where the linker has put the two names. */
static bool find(const char *name, struct isa_choice *choice)
{
    for (int i = 0; i < ISA_COUNT; i++)
        if (isas[i].name == name) {
            choice->isa = i;
            choice->unit = best_unit(i);
            return true;
        }
    for (int i = 0; i < ISA_COUNT; i++)
        if (strcmp(isas[i].name, name) == 0 || is_without_unit(i, name)) {
            choice->isa = i;
            choice->unit = is_without_unit(i, name) ? NO_UNIT : best_unit(i);
            return true;
        }
    for (int i = 0; i < UNIT_COUNT; i++)
        if (strcmp(units[i].name, name) == 0) {
            choice->isa = units[i].isa;
            choice->unit = i;
            return true;
        }
    return false;
}

static bool can_run(const struct isa_choice *choice)
{
    return choice->unit == NO_UNIT ? attnkit_isa_can_run(&isas[choice->isa])
                                   : attnkit_unit_can_run(&units[choice->unit]);
}

static const char *why_choice(const struct isa_choice *choice)
{
    return choice->unit == NO_UNIT ? why(&isas[choice->isa]) : why_unit(&units[choice->unit]);
}

static struct isa_choice best(void)
{
    struct isa_choice chosen = {.isa = 0};
    for (int i = 1; i < ISA_COUNT; i++)
        if (attnkit_isa_can_run(&isas[i]))
            chosen.isa = i;
    chosen.unit = best_unit(chosen.isa);
    return chosen;
}

/* Returns the value of ATTNKIT_ISA. Returns NULL if ATTNKIT_ISA is not set or empty, or if the
 * process runs with raised privileges. */
static const char *environment(void)
{
#if defined(__GLIBC__)
    const char *name = secure_getenv("ATTNKIT_ISA");
#elif defined(_WIN32) /* Windows has no programs that run with the rights of another user */
    const char *name = getenv("ATTNKIT_ISA");
#else
    const bool trusted = getuid() == geteuid() && getgid() == getegid();
    const char *name = trusted ? getenv("ATTNKIT_ISA") : NULL;
#endif
    return name && name[0] ? name : NULL;
}

/* Sets *choice to the choice for calls that name no instruction set, and *is_named to whether
 * ATTNKIT_ISA made this choice. The first call makes the choice, later calls read it. A choice that
 * was made before a unit was enabled is made again. If ATTNKIT_ISA names nothing that can run, sets
 * *bad_name to the value of ATTNKIT_ISA, keeps no choice and returns false. */
static bool automatic(struct isa_choice *choice, bool *is_named, const char **bad_name)
{
    static _Atomic int kept = NOT_KNOWN;
    const int now = atomic_load_explicit(&enabled, memory_order_acquire);
    int number = atomic_load_explicit(&kept, memory_order_relaxed);
    if (number == NOT_KNOWN || number / ENABLED_FROM != now) {
        const char *name = environment();
        if (!name)
            *choice = best();
        else if (!find(name, choice) || !can_run(choice)) {
            *bad_name = name;
            return false;
        }
        number = choice->isa + UNITS_FROM * (choice->unit + 1) + (name ? FROM_ENVIRONMENT : 0) +
                 ENABLED_FROM * now;
        atomic_store_explicit(&kept, number, memory_order_relaxed);
    }
    number %= ENABLED_FROM;
    *is_named = number >= FROM_ENVIRONMENT;
    choice->isa = number % UNITS_FROM;
    choice->unit = number % FROM_ENVIRONMENT / UNITS_FROM - 1;
    return true;
}

/* Writes the names of all instruction sets and units that can run here, such as "scalar, avx2". */
static void list_possible(char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < ISA_COUNT + UNIT_COUNT && used < size; i++) {
        const bool runs = i < ISA_COUNT ? attnkit_isa_can_run(&isas[i])
                                        : attnkit_unit_can_run(&units[i - ISA_COUNT]);
        if (runs)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
                                     i < ISA_COUNT ? isas[i].name : units[i - ISA_COUNT].name);
    }
}

static attnkit_status refuse_name(const char *source, const char *name, char *message)
{
    char possible[96];
    struct isa_choice choice;
    list_possible(possible, sizeof possible);
    return refuse(message, ATTNKIT_BAD_ISA, "%s is \"%.32s\": %s; possible here: %s", source, name,
                  find(name, &choice) ? why_choice(&choice) : "no such instruction set or unit",
                  possible);
}

attnkit_status attnkit_isa_pick(const char *name, struct isa_choice *choice, char *message)
{
    if (name) {
        if (!find(name, choice) || !can_run(choice))
            return refuse_name("exec.isa", name, message);
        choice->reason = "named by attnkit_exec.isa";
    } else {
        const char *bad_name = "";
        bool is_named = false;
        if (!automatic(choice, &is_named, &bad_name))
            return refuse_name("ATTNKIT_ISA", bad_name, message);
        choice->reason = is_named ? "named by ATTNKIT_ISA" : "the best this machine can run";
    }
    choice->kernels = attnkit_kernels_of(choice->isa, choice->unit);
    return ATTNKIT_OK;
}

static const struct version info_version = VERSION_OF(attnkit_isa_info, reason);
static const struct version choice_version = VERSION_OF(attnkit_isa_choice, reason);
static const struct version unit_version = VERSION_OF(attnkit_unit_info, reason);

int32_t attnkit_isa_count(void)
{
    return ISA_COUNT;
}

attnkit_status attnkit_isa_get(int32_t index, attnkit_isa_info *info, char *message)
{
    if (!info)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "info is NULL");
    if (index < 0 || index >= ISA_COUNT)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "index is %d: must be between 0 and %d",
                      (int)index, ISA_COUNT - 1);
    const struct isa *isa = &isas[index];
    const attnkit_isa_info ours = {
        .name = isa->name,
        .needs = isa->needs,
        .built = isa->kernels != NULL,
        .can_run = attnkit_isa_can_run(isa),
        .reason = why(isa),
    };
    return write_struct(&info_version, info, &ours, message);
}

int32_t attnkit_unit_count(void)
{
    return UNIT_COUNT;
}

attnkit_status attnkit_unit_get(int32_t index, attnkit_unit_info *info, char *message)
{
    if (!info)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "info is NULL");
    if (index < 0 || index >= UNIT_COUNT)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "index is %d: must be between 0 and %d",
                      (int)index, UNIT_COUNT - 1);
    const struct unit *unit = &units[index];
    const attnkit_unit_info ours = {
        .name = unit->name,
        .needs = unit->needs,
        .built = unit->kernels != NULL,
        .can_run = attnkit_unit_can_run(unit),
        .used = best_unit(unit->isa) == index,
        .reason = why_unit(unit),
    };
    return write_struct(&unit_version, info, &ours, message);
}

attnkit_status attnkit_isa_choose(const char *isa, attnkit_isa_choice *choice, char *message)
{
    if (!choice)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "choice is NULL");
    struct isa_choice picked;
    const attnkit_status status = attnkit_isa_pick(isa, &picked, message);
    if (status != ATTNKIT_OK)
        return status;
    const attnkit_isa_choice ours = {
        .prefill = isas[picked.isa].name,
        .decode = isas[picked.isa].name,
        .reason = picked.reason,
        .unit = picked.unit == NO_UNIT ? NULL : units[picked.unit].name,
    };
    return write_struct(&choice_version, choice, &ours, message);
}

/* Returns the unit with this name, or NULL. */
static const struct unit *unit_named(const char *name)
{
    for (int i = 0; i < UNIT_COUNT; i++)
        if (strcmp(units[i].name, name) == 0)
            return &units[i];
    return NULL;
}

/* Asks the operating system for permission to use the unit. With this permission, tries the unit.
 * Enables the unit if its results have the right bits. Only attnkit_enable makes this trial,
 * because other calls use the unit only after attnkit_enable has enabled the unit. Returns NULL, or
 * the reason why the unit cannot run. */
static const char *enable(const struct unit *unit)
{
    const char *reason = attnkit_ask_for_tiles();
    if (!reason && !keeps_bits(unit))
        reason = wrong_bits;
    atomic_store_explicit(&refusal, reason, memory_order_relaxed);
    if (!reason)
        atomic_fetch_or_explicit(&enabled, 1 << (unit - units), memory_order_release);
    return reason;
}

attnkit_status attnkit_enable(const char *unit, char *message)
{
    if (!unit)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "unit is NULL");
    const struct unit *const named = unit_named(unit);
    const char *reason = NULL;
    if (!named)
        reason = "no such unit";
    else if (has_unit(named) && !has_leave(named))
        reason = enable(named);
    else if (!attnkit_unit_can_run(named))
        reason = why_unit(named);
    if (reason)
        return refuse(message, ATTNKIT_BAD_ISA, "unit is \"%.32s\": %s", unit, reason);
    return accept(message);
}
