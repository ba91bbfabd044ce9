/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests attnkit_enable: which names and machines it refuses, and for which reasons. Also tests
 * which unit later calls choose. A process cannot disable AMX again, so every test that enables AMX
 * runs in a child process. If AMX cannot be enabled, the program leaves out these tests, and checks
 * the reason instead. On an x86-64 CPU without AMX, tests/run.py also runs this program in an
 * emulator with AMX, if the emulator is available.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fenv.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "kernels/scalar/scalar.h"
#include "attnkit.h"
#include "tests/support/random.h"

/* The number of the system call arch_prctl. Only x86 has this system call. Other CPUs get a number
 * that no system call has. */
#ifdef __x86_64__
enum { ARCH_PRCTL = __NR_arch_prctl };
#else
enum { ARCH_PRCTL = 0x7fffffff };
#endif

static const char tiles[] = "avx512+amx";

static attnkit_unit_info unit_info(const char *name)
{
    attnkit_unit_info info = {.size = sizeof info};
    for (int32_t i = 0; i < attnkit_unit_count(); i++) {
        assert_int_equal(attnkit_unit_get(i, &info, NULL), ATTNKIT_OK);
        if (strcmp(info.name, name) == 0)
            return info;
    }
    fail_msg("there is no %s", name);
    return info;
}

/* Returns whether CPUID reports AMX with bf16. */
static bool has_tiles(void)
{
#ifdef __x86_64__
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && edx >> 22 & 1 && edx >> 24 & 1;
#else
    return false;
#endif
}

/* Returns whether a process can enable AMX here. The function tries to enable AMX in a child
 * process. */
static bool can_enable(void)
{
    const pid_t child = fork();
    int how;
    if (child == 0)
        _exit(attnkit_enable(tiles, NULL) == ATTNKIT_OK ? 0 : 1);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    return WEXITSTATUS(how) == 0;
}

/* Runs a test in a child process. The test returns the line number of its first failure, or 0. */
static void run_in_child(int (*test)(void))
{
    int how, ends[2], line = -1;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        line = test();
        _exit(write(ends[1], &line, sizeof line) == sizeof line ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    assert_int_equal(read(ends[0], &line, sizeof line), sizeof line);
    close(ends[0]);
    close(ends[1]);
    if (line != 0)
        fail_msg("line %d of enable.c", line);
}

#define EXPECT(condition)                                                                          \
    do                                                                                             \
        if (!(condition))                                                                          \
            return __LINE__;                                                                       \
    while (0)

/* --- What is refused -------------------------------------------------------------------------- */

static void names_without_a_unit_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"", "avx512", "amx", "avx512+none", "avx512+amx2", "%s%n"};
    char message[ATTNKIT_MESSAGE_SIZE];
    assert_int_equal(attnkit_enable(NULL, message), ATTNKIT_BAD_ARGUMENT);
    assert_string_equal(message, "unit is NULL");
    for (int i = 0; i < 6; i++) {
        assert_int_equal(attnkit_enable(names[i], message), ATTNKIT_BAD_ISA);
        assert_non_null(strstr(message, names[i]));
        assert_non_null(strstr(message, "no such unit"));
        assert_int_equal(attnkit_enable(names[i], NULL), ATTNKIT_BAD_ISA);
    }
}

static void other_units_need_no_call(void **state)
{
    (void)state;
    for (int32_t i = 0; i < attnkit_unit_count(); i++) {
        attnkit_unit_info info = {.size = sizeof info};
        char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
        assert_int_equal(attnkit_unit_get(i, &info, NULL), ATTNKIT_OK);
        if (strcmp(info.name, tiles) == 0)
            continue;
        assert_int_equal(attnkit_enable(info.name, message) == ATTNKIT_OK, info.can_run);
        assert_int_equal(message[0] == '\0', info.can_run);
        assert_int_equal(unit_info(info.name).can_run, info.can_run);
    }
}

static void the_message_says_what_is_missing(void **state)
{
    (void)state;
    char message[ATTNKIT_MESSAGE_SIZE];
    const bool built = unit_info(tiles).built;
    assert_int_equal(attnkit_enable(tiles, message), ATTNKIT_BAD_ISA);
    assert_non_null(strstr(message, tiles));
    assert_non_null(strstr(message, unit_info(tiles).reason));
    if (!built)
        assert_non_null(strstr(message, "not built into this library"));
    else if (unit_info("avx512+bf16").can_run && !has_tiles())
        assert_non_null(strstr(message, "the CPU lacks a feature that the unit needs"));
    assert_false(unit_info(tiles).can_run);
}

/* --- What changes ----------------------------------------------------------------------------- */

static const char *chosen_unit(const char *isa)
{
    attnkit_isa_choice choice = {.size = sizeof choice};
    if (attnkit_isa_choose(isa, &choice, NULL) != ATTNKIT_OK)
        return "none can run";
    return choice.unit ? choice.unit : "";
}

static int a_unit_is_used_after_the_call(void)
{
    attnkit_isa_choice choice = {.size = sizeof choice};
    char message[ATTNKIT_MESSAGE_SIZE];
    EXPECT(strcmp(chosen_unit(NULL), tiles) != 0);
    EXPECT(strcmp(chosen_unit("avx512"), tiles) != 0);
    EXPECT(attnkit_isa_choose(tiles, &choice, message) == ATTNKIT_BAD_ISA);
    EXPECT(strstr(message, "the program has not called attnkit_enable"));
    EXPECT(!unit_info(tiles).can_run && !unit_info(tiles).used);
    for (int i = 0; i < 2; i++) {
        EXPECT(attnkit_enable(tiles, message) == ATTNKIT_OK);
        EXPECT(message[0] == '\0');
        EXPECT(strcmp(chosen_unit(NULL), tiles) == 0);
        EXPECT(strcmp(chosen_unit("avx512"), tiles) == 0);
        EXPECT(strcmp(chosen_unit(tiles), tiles) == 0);
        EXPECT(strcmp(chosen_unit("avx512+none"), "") == 0);
        EXPECT(unit_info(tiles).can_run && unit_info(tiles).used);
    }
    return 0;
}

/* attnkit_enable computes sums by TDPBF16PS to check the bits of this instruction. Some of these
 * sums overflow on purpose. The rounding and exception modes of the caller must not matter, and
 * must stay as they were. The call must raise no exception flag. */
static int modes_of_the_caller_do_not_matter(void)
{
    const int modes = feenableexcept(FE_OVERFLOW | FE_INVALID | FE_DIVBYZERO);
    EXPECT(modes != -1 && fesetround(FE_UPWARD) == 0);
    feclearexcept(FE_ALL_EXCEPT);
    EXPECT(attnkit_enable(tiles, NULL) == ATTNKIT_OK);
    EXPECT(fegetround() == FE_UPWARD && fetestexcept(FE_ALL_EXCEPT) == 0);
    EXPECT(fegetexcept() == (FE_OVERFLOW | FE_INVALID | FE_DIVBYZERO));
    return 0;
}

static int the_variable_names_it_after_the_call(void)
{
    EXPECT(setenv("ATTNKIT_ISA", tiles, 1) == 0);
    EXPECT(strcmp(chosen_unit(NULL), "none can run") == 0);
    EXPECT(attnkit_enable(tiles, NULL) == ATTNKIT_OK);
    EXPECT(strcmp(chosen_unit(NULL), tiles) == 0);
    EXPECT(setenv("ATTNKIT_ISA", "avx2", 1) == 0);
    EXPECT(strcmp(chosen_unit(NULL), tiles) == 0);
    return 0;
}

static int the_variable_still_names_another_one(void)
{
    EXPECT(setenv("ATTNKIT_ISA", "avx512+none", 1) == 0);
    EXPECT(strcmp(chosen_unit(NULL), "") == 0);
    EXPECT(attnkit_enable(tiles, NULL) == ATTNKIT_OK);
    EXPECT(strcmp(chosen_unit(NULL), "") == 0);
    return 0;
}

/* Makes every later arch_prctl of this process fail with `error`. Returns false if Linux does not
 * allow this. */
static bool forbid_arch_prctl(int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH_PRCTL, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof code / sizeof code[0], code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static int expect_refusal(int error, const char *reason)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    EXPECT(forbid_arch_prctl(error));
    errno = 0;
    EXPECT(attnkit_enable(tiles, message) == ATTNKIT_BAD_ISA);
    EXPECT(strstr(message, tiles) && strstr(message, reason));
    EXPECT(errno == 0);
    EXPECT(strcmp(unit_info(tiles).reason, reason) == 0);
    EXPECT(!unit_info(tiles).can_run && strcmp(chosen_unit("avx512"), tiles) != 0);
    return 0;
}

static int a_filter_of_system_calls_is_named(void)
{
    return expect_refusal(EPERM, "this process may not call arch_prctl");
}

static int an_old_kernel_is_named(void)
{
    return expect_refusal(EINVAL, "Linux is older than 5.16");
}

static int a_small_signal_stack_is_named(void)
{
    return expect_refusal(ENOSPC, "the alternate signal stack of a thread is too small for tiles");
}

enum { ROWS = 40, DIM = 64 };

/* A planned call with products of bf16. */
struct call {
    uint16_t q[ROWS * DIM], k[ROWS * DIM], v[ROWS * DIM];
    float out[ROWS * DIM];
    _Alignas(64) char plan[1 << 14], workspace[1 << 20];
};

static attnkit_status make_plan(struct call *c, const char *isa)
{
    const attnkit_attention_args args = {
        .size = sizeof args,
        .flags = ATTNKIT_BF16_PRODUCTS,
        .batch = 1,
        .q_heads = 1,
        .kv_heads = 1,
        .q_len = ROWS,
        .kv_len = ROWS,
        .head_dim = DIM,
        .q = {.data = ATTNKIT_LATER, .type = ATTNKIT_BF16},
        .k = {.data = ATTNKIT_LATER, .type = ATTNKIT_BF16},
        .v = {.data = ATTNKIT_LATER, .type = ATTNKIT_BF16},
        .out = {.data = ATTNKIT_LATER},
    };
    const attnkit_exec exec = {.size = sizeof exec, .isa = isa};
    return attnkit_attention_plan(&args, &exec, c->plan, sizeof c->plan, NULL);
}

static attnkit_status run_plan(struct call *c, const char *isa)
{
    const attnkit_attention_data data = {.size = sizeof data,
                                         .batch = 1,
                                         .q_len = ROWS,
                                         .kv_len = ROWS,
                                         .q = c->q,
                                         .k = c->k,
                                         .v = c->v,
                                         .out = c->out};
    const attnkit_exec exec = {.size = sizeof exec,
                               .isa = isa,
                               .workspace = c->workspace,
                               .workspace_size = sizeof c->workspace};
    return attnkit_attention_run(c->plan, &data, &exec, NULL);
}

static void draw_bf16(uint16_t *numbers, uint64_t *random)
{
    for (int i = 0; i < ROWS * DIM; i++)
        numbers[i] = bf16_from_float(random_normal(random));
}

static int plans_keep_their_unit_and_all_bits_are_the_same(void)
{
    static struct call before, after;
    uint64_t random = 1;
    draw_bf16(before.q, &random);
    draw_bf16(before.k, &random);
    draw_bf16(before.v, &random);
    after = before;
    EXPECT(make_plan(&before, NULL) == ATTNKIT_OK);
    EXPECT(attnkit_enable(tiles, NULL) == ATTNKIT_OK);
    EXPECT(make_plan(&after, NULL) == ATTNKIT_OK);
    EXPECT(run_plan(&before, tiles) == ATTNKIT_BAD_ISA);
    EXPECT(run_plan(&before, NULL) == ATTNKIT_OK);
    EXPECT(run_plan(&after, tiles) == ATTNKIT_OK);
    EXPECT(memcmp(before.out, after.out, sizeof after.out) == 0);
    return 0;
}

static void runs_in_a_child(void **state)
{
    int (*const *const test)(void) = *state;
    run_in_child(*test);
}

enum { REFUSALS = 2, IN_CHILDREN = 8 };

static const struct {
    const char *name;
    int (*test)(void);
} in_children[IN_CHILDREN] = {
    {"a_unit_is_used_after_the_call", a_unit_is_used_after_the_call},
    {"modes_of_the_caller_do_not_matter", modes_of_the_caller_do_not_matter},
    {"the_variable_names_it_after_the_call", the_variable_names_it_after_the_call},
    {"the_variable_still_names_another_one", the_variable_still_names_another_one},
    {"a_filter_of_system_calls_is_named", a_filter_of_system_calls_is_named},
    {"an_old_kernel_is_named", an_old_kernel_is_named},
    {"a_small_signal_stack_is_named", a_small_signal_stack_is_named},
    {"plans_keep_their_unit_and_all_bits_are_the_same",
     plans_keep_their_unit_and_all_bits_are_the_same},
};

int main(void)
{
    struct CMUnitTest tests[REFUSALS + IN_CHILDREN] = {
        cmocka_unit_test(names_without_a_unit_are_refused),
        cmocka_unit_test(other_units_need_no_call),
    };
    size_t count = REFUSALS;
    unsetenv("ATTNKIT_ISA");
    if (can_enable())
        for (int i = 0; i < IN_CHILDREN; i++)
            tests[count++] = (struct CMUnitTest){in_children[i].name, runs_in_a_child, NULL, NULL,
                                                 (void *)(uintptr_t)&in_children[i].test};
    else
        tests[count++] = (struct CMUnitTest)cmocka_unit_test(the_message_says_what_is_missing);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("enable", tests, count, NULL, NULL);
}
