/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of instruction sets, the test whether this machine can run one, and the choice of one.
 * The only global state is the machine's features and the choice. Both are determined once and then
 * kept. Two threads that determine them at the same time get the same result.
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
#include "dispatch/common/message.h"
#include "dispatch/common/versioned.h"

extern const struct kernels attnkit_scalar, attnkit_avx2, attnkit_avx512, attnkit_neon;

/* The kernel tables of the CPU family, or NULL for a table that the build leaves out. */
#if defined(__x86_64__) && !defined(ATTNKIT_WITHOUT_AVX2)
#define KERNELS_AVX2 &attnkit_avx2
#else
#define KERNELS_AVX2 NULL
#endif
#if defined(__x86_64__) && !defined(ATTNKIT_WITHOUT_AVX512)
#define KERNELS_AVX512 &attnkit_avx512
#else
#define KERNELS_AVX512 NULL
#endif
#if defined(__aarch64__) && !defined(ATTNKIT_WITHOUT_NEON)
#define KERNELS_NEON &attnkit_neon
#else
#define KERNELS_NEON NULL
#endif

/* The instruction sets, from worst to best. */
static const struct isa isas[] = {
    {"scalar", "any CPU", 0, &attnkit_scalar},
    {"avx2", "AVX2, FMA, F16C", CPU_AVX | CPU_AVX2 | CPU_FMA | CPU_F16C, KERNELS_AVX2},
    {"avx512", "AVX-512 F, BW, DQ, VL; AVX2, FMA",
     CPU_AVX | CPU_AVX2 | CPU_FMA | CPU_AVX512F | CPU_AVX512BW | CPU_AVX512DQ | CPU_AVX512VL,
     KERNELS_AVX512},
    {"neon", "NEON (64-bit ARM)", CPU_NEON, KERNELS_NEON},
};

enum {
    ISA_COUNT = sizeof isas / sizeof isas[0],
    NOT_KNOWN = -1,        /* the choice has not been made yet */
    FROM_ENVIRONMENT = 64, /* added to the index if ATTNKIT_ISA made the choice */
};

int attnkit_isas(const struct isa **list)
{
    *list = isas;
    return ISA_COUNT;
}

/* Returns the features of the machine. attnkit_cpu is asked only once. */
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
        return "the CPU does not have what it needs";
    if ((cpu.usable & isa->needs_mask) != isa->needs_mask)
        return "the operating system does not save its registers";
    return "CPU and operating system have what it needs";
}

/* Returns the instruction set with this name, or NULL. Addresses are compared first, so that
 * callers that took the name from attnkit_isa_get pay for no strcmp. The time of a strcmp depends
 * on where the linker has put the two names. */
static const struct isa *find(const char *name)
{
    for (int i = 0; i < ISA_COUNT; i++)
        if (isas[i].name == name)
            return &isas[i];
    for (int i = 0; i < ISA_COUNT; i++)
        if (strcmp(isas[i].name, name) == 0)
            return &isas[i];
    return NULL;
}

static const struct isa *best(void)
{
    const struct isa *chosen = &isas[0];
    for (int i = 1; i < ISA_COUNT; i++)
        if (attnkit_isa_can_run(&isas[i]))
            chosen = &isas[i];
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

/* Returns the choice for calls that name no instruction set. The choice is made once. It is an
 * index, plus FROM_ENVIRONMENT if ATTNKIT_ISA names the instruction set. If ATTNKIT_ISA names an
 * instruction set that cannot run, sets *bad_name to the value of ATTNKIT_ISA and makes no
 * choice. */
static int automatic(const char **bad_name)
{
    static _Atomic int kept = NOT_KNOWN;
    int choice = atomic_load_explicit(&kept, memory_order_relaxed);
    if (choice == NOT_KNOWN) {
        const char *name = environment();
        const struct isa *isa = name ? find(name) : best();
        if (!isa || !attnkit_isa_can_run(isa)) {
            *bad_name = name;
            return NOT_KNOWN;
        }
        choice = (int)(isa - isas) + (name ? FROM_ENVIRONMENT : 0);
        atomic_store_explicit(&kept, choice, memory_order_relaxed);
    }
    return choice;
}

/* Writes the names of all instruction sets that can run here, such as "scalar, avx2". */
static void list_possible(char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < ISA_COUNT; i++)
        if (attnkit_isa_can_run(&isas[i]) && used < size)
            used +=
                (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", isas[i].name);
}

static attnkit_status refuse_name(const char *source, const char *name, char *message)
{
    char possible[64];
    list_possible(possible, sizeof possible);
    const struct isa *isa = find(name);
    return refuse(message, ATTNKIT_BAD_ISA, "%s is \"%.32s\": %s; possible here: %s", source, name,
                  isa ? why(isa) : "no such instruction set", possible);
}

attnkit_status attnkit_isa_pick(const char *name, struct isa_choice *choice, char *message)
{
    if (name) {
        const struct isa *isa = find(name);
        if (!isa || !attnkit_isa_can_run(isa))
            return refuse_name("exec.isa", name, message);
        *choice = (struct isa_choice){isa, "named by attnkit_exec.isa"};
        return ATTNKIT_OK;
    }
    const char *bad_name = "";
    const int chosen = automatic(&bad_name);
    if (chosen == NOT_KNOWN)
        return refuse_name("ATTNKIT_ISA", bad_name, message);
    if (chosen >= FROM_ENVIRONMENT)
        *choice = (struct isa_choice){&isas[chosen - FROM_ENVIRONMENT], "named by ATTNKIT_ISA"};
    else
        *choice = (struct isa_choice){&isas[chosen], "the best this machine can run"};
    return ATTNKIT_OK;
}

static const struct version info_version = VERSION_OF(attnkit_isa_info, reason);
static const struct version choice_version = VERSION_OF(attnkit_isa_choice, reason);

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

attnkit_status attnkit_isa_choose(const char *isa, attnkit_isa_choice *choice, char *message)
{
    if (!choice)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "choice is NULL");
    struct isa_choice picked;
    const attnkit_status status = attnkit_isa_pick(isa, &picked, message);
    if (status != ATTNKIT_OK)
        return status;
    const attnkit_isa_choice ours = {
        .prefill = picked.isa->name,
        .decode = picked.isa->name,
        .reason = picked.reason,
    };
    return write_struct(&choice_version, choice, &ours, message);
}
