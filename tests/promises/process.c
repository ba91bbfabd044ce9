/* SPDX-License-Identifier: Apache-2.0
 *
 * On Linux with glibc, no call except attnkit_enable makes a system call. So a call cannot allocate
 * from the system, block on a lock, print or start a thread. A thread that waits for another thread
 * also makes no system call. ATTNKIT_ISA is not read in a set-uid program.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dispatch/attention/attention.h"
#include "dispatch/cpu/isa.h"
#include "dispatch/attention/steal.h"
#include "attnkit.h"
#include "tests/support/layer/drawn.h"

enum {
    ROWS = 70,
    DIM = 24,
    NOBODY = 65534, /* a user other than the user that runs the tests */
};

static int exit_status_of(pid_t child)
{
    int how;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &how, 0), child);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

/* Runs attention for `rows` query rows: a prefill, or a decoding step if there is one row. */
static attnkit_status attend(int64_t rows, const char *isa, void *workspace, size_t size)
{
    static float q[ROWS * DIM], k[ROWS * DIM], v[ROWS * DIM], out[ROWS * DIM], lse[ROWS];
    const attnkit_attention_args args = {
        .size = sizeof args,
        .flags = ATTNKIT_CAUSAL,
        .align = ATTNKIT_ALIGN_BOTTOM_RIGHT,
        .batch = 1,
        .q_heads = 1,
        .kv_heads = 1,
        .q_len = rows,
        .kv_len = ROWS,
        .head_dim = DIM,
        .q = {.data = q},
        .k = {.data = k},
        .v = {.data = v},
        .out = {.data = out},
        .lse = {.data = lse},
    };
    const attnkit_exec exec = {
        .size = sizeof exec, .isa = isa, .workspace = workspace, .workspace_size = size};
    return attnkit_attention(&args, &exec, NULL);
}

/* Plans a decoding step and runs the plan. */
static attnkit_status attend_planned(const char *isa, void *workspace, size_t size)
{
    static _Alignas(16) char plan[1 << 14];
    static float q[DIM], k[ROWS * DIM], v[ROWS * DIM], out[DIM];
    const attnkit_attention_args args = {
        .size = sizeof args,
        .batch = 1,
        .q_heads = 1,
        .kv_heads = 1,
        .q_len = 1,
        .kv_len = ROWS,
        .head_dim = DIM,
        .q = {.data = ATTNKIT_LATER},
        .k = {.data = ATTNKIT_LATER},
        .v = {.data = ATTNKIT_LATER},
        .out = {.data = ATTNKIT_LATER},
    };
    const attnkit_attention_data data = {.size = sizeof data,
                                         .batch = 1,
                                         .q_len = 1,
                                         .kv_len = ROWS,
                                         .q = q,
                                         .k = k,
                                         .v = v,
                                         .out = out};
    const attnkit_exec exec = {
        .size = sizeof exec, .isa = isa, .workspace = workspace, .workspace_size = size};
    const attnkit_status status = attnkit_attention_plan(&args, &exec, plan, sizeof plan, NULL);
    return status == ATTNKIT_OK ? attnkit_attention_run(plan, &data, &exec, NULL) : status;
}

/* Merges two parts into the first part. */
static attnkit_status merge(const char *isa)
{
    static float outs[2][DIM], lses[2];
    const float *const part_outs[2] = {outs[0], outs[1]}, *const part_lses[2] = {lses, lses + 1};
    const attnkit_merge_args args = {
        .size = sizeof args,
        .parts = 2,
        .batch = 1,
        .q_heads = 1,
        .q_len = 1,
        .value_dim = DIM,
        .part_outs = part_outs,
        .part_lses = part_lses,
        .out = {.data = outs[0]},
        .lse = {.data = lses},
    };
    const attnkit_exec exec = {.size = sizeof exec, .isa = isa};
    return attnkit_merge(&args, &exec, NULL);
}

/* Appends rows to a cache, and rotates them without tables of cos and sin. */
static attnkit_status append(int64_t rows, const char *isa, void *workspace, size_t size)
{
    static float src[ROWS * DIM], dst[ROWS * DIM];
    const attnkit_rotation rotation = {.size = sizeof rotation, .kind = ATTNKIT_ROPE_HALF};
    const attnkit_append_args args = {
        .size = sizeof args,
        .batch = 1,
        .heads = 1,
        .len = rows,
        .dim = DIM,
        .capacity = ROWS,
        .src = {.data = src},
        .dst = {.data = dst, .type = ATTNKIT_F16},
        .rotation = &rotation,
    };
    const attnkit_exec exec = {
        .size = sizeof exec, .isa = isa, .workspace = workspace, .workspace_size = size};
    return attnkit_append(&args, &exec, NULL);
}

/* Packs a matrix, maps rows by the packed matrix, and reads rows of the matrix as embeddings. */
static attnkit_status map_linearly(int64_t rows, const char *isa, void *workspace, size_t size)
{
    static float w[DIM * DIM], x[ROWS * DIM], y[ROWS * DIM];
    static int32_t ids[ROWS];
    static _Alignas(64) char packed[2 * 16 * DIM * sizeof(float)];
    const attnkit_pack_args pack = {
        .size = sizeof pack,
        .out_dim = DIM,
        .in_dim = DIM,
        .w = {.data = w},
        .packed_type = ATTNKIT_BF16,
        .packed = packed,
        .packed_size = sizeof packed,
    };
    const attnkit_linear_args linear = {
        .size = sizeof linear,
        .rows = rows,
        .in_dim = DIM,
        .out_dim = DIM,
        .x = {.data = x},
        .w = {.data = packed, .type = ATTNKIT_BF16},
        .y = {.data = y},
    };
    const attnkit_embed_args embed = {
        .size = sizeof embed,
        .count = rows,
        .vocab = DIM,
        .dim = DIM,
        .ids = {.data = ids, .type = ATTNKIT_INT32},
        .table = {.data = w},
        .out = {.data = y, .type = ATTNKIT_F16},
    };
    const attnkit_exec exec = {
        .size = sizeof exec, .isa = isa, .workspace = workspace, .workspace_size = size};
    attnkit_status status = attnkit_pack(&pack, &exec, NULL);
    if (status == ATTNKIT_OK)
        status = attnkit_linear(&linear, &exec, NULL);
    return status == ATTNKIT_OK ? attnkit_embed(&embed, &exec, NULL) : status;
}

/* Asks the kernel to kill this process by SIGSYS at any further system call except exit. Returns
 * false if the kernel, or the emulator that runs this program, cannot filter system calls. */
static bool forbid_system_calls(void)
{
    struct sock_filter allow_exit[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    const struct sock_fprog filter = {sizeof allow_exit / sizeof allow_exit[0], allow_exit};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/* Runs a layer. Layer 1 of layer_call_draw is causal, has a mask, a bias and ALiBi, and gives
 * results of all kinds. It has no rotation. */
static attnkit_status map_layer(const struct layer_call *c, const char *isa, void *workspace,
                                size_t size)
{
    const attnkit_exec exec = {
        .size = sizeof exec, .isa = isa, .workspace = workspace, .workspace_size = size};
    return attnkit_layer(&c->args, &exec, NULL);
}

static void run_without_system_calls(const char *isa)
{
    static char workspace[1 << 20];
    struct layer_call layer;
    layer_call_draw(&layer, 1);
    /* These calls run once before system calls are forbidden, because the loader binds a function
     * of the C library at its first call. */
    attnkit_status status = attend(ROWS, isa, workspace, sizeof workspace);
    if (status == ATTNKIT_OK)
        status = append(ROWS, isa, workspace, sizeof workspace);
    if (status == ATTNKIT_OK)
        status = merge(isa);
    if (status == ATTNKIT_OK)
        status = map_linearly(ROWS, isa, workspace, sizeof workspace);
    if (status == ATTNKIT_OK)
        status = map_layer(&layer, isa, workspace, sizeof workspace);
    if (!forbid_system_calls())
        _exit(77);
    for (int64_t rows = 1; rows <= ROWS && status == ATTNKIT_OK; rows++)
        status = attend(rows, isa, workspace, sizeof workspace);
    if (status == ATTNKIT_OK)
        status = attend_planned(isa, workspace, sizeof workspace);
    if (status == ATTNKIT_OK)
        status = append(ROWS, isa, workspace, sizeof workspace);
    if (status == ATTNKIT_OK)
        status = merge(isa);
    for (int64_t rows = 1; rows <= ROWS && status == ATTNKIT_OK; rows += ROWS - 1)
        status = map_linearly(rows, isa, workspace, sizeof workspace);
    if (status == ATTNKIT_OK)
        status = map_layer(&layer, isa, workspace, sizeof workspace);
    syscall(SYS_exit, status == ATTNKIT_OK ? 0 : 1);
}

static void expect_filters_to_work(void)
{
    const pid_t child = fork();
    if (child == 0) {
        if (!forbid_system_calls())
            _exit(77);
        syscall(SYS_getpid);
        syscall(SYS_exit, 0);
    }
    const int status = exit_status_of(child);
    if (status == 77)
        skip(); /* no seccomp in this kernel or emulator */
    assert_int_equal(status, 128 + SIGSYS);
}

static void a_call_makes_no_system_call(void **state)
{
    (void)state;
    expect_filters_to_work();
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    for (int i = 0; i < count; i++) {
        if (!attnkit_isa_can_run(&isas[i]))
            continue;
        const pid_t child = fork();
        if (child == 0)
            run_without_system_calls(isas[i].name);
        assert_int_equal(exit_status_of(child), 0);
    }
}

/* --- A thread that waits ---------------------------------------------------------------------- */

enum {
    WAIT_HEADS = 4,
    WAIT_CHUNKS = 64, /* chunks of keys; there is room for the states of less than half of them */
    WAIT_KEYS = WAIT_CHUNKS * CHUNK_KEYS,
    WAIT_VALUE_DIM = 512,
    WAIT_OUT = WAIT_HEADS * WAIT_VALUE_DIM,
};

/* Two processes take the place of the two threads of a call, because only the end of a process
 * shows whether it made a system call. The first block of the first process lasts until the second
 * process has ended. */
static struct held_up {
    struct attention problem;
    const struct kernels *real;
    struct kernels kernels; /* the kernels of the instruction set, with the test's `decode` */
    struct schedule schedule;
    struct steal steal;
    char *shared; /* shared memory: for work stealing, then the scratch of each process */
    int blocks;   /* blocks that this process has worked on */
    int status;   /* exit status of the other process */
} held_up;

static void run_as(int thread)
{
    struct held_up *const h = &held_up;
    char *const scratch = h->shared + h->steal.bytes + (size_t)thread * h->schedule.scratch;
    attnkit_steal_run(&h->problem, &h->kernels, &h->schedule, &h->steal, thread, h->shared,
                      scratch);
}

static void decode_late(const struct decode_block *block, int rows, float scale_log2)
{
    if (held_up.blocks++ == 0) {
        const pid_t child = fork();
        if (child == 0) {
            if (!forbid_system_calls())
                _exit(77);
            run_as(1);
            syscall(SYS_exit, 0);
        }
        held_up.status = exit_status_of(child);
    }
    held_up.real->decode(block, rows, scale_log2);
}

static void *shared_memory(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static void run_held_up(const attnkit_attention_args *args, const struct isa *isa)
{
    struct held_up *const h = &held_up;
    *h = (struct held_up){.real = isa->kernels, .kernels = *isa->kernels};
    h->kernels.decode = decode_late;
    assert_int_equal(attnkit_attention_problem(args, &h->problem, NULL), ATTNKIT_OK);
    h->schedule = attnkit_schedule(&h->problem, &h->kernels, 2);
    h->steal = attnkit_steal(&h->problem, &h->kernels, &h->schedule, 2);
    const size_t size = h->steal.bytes + 2 * h->schedule.scratch;
    h->shared = shared_memory(size);
    attnkit_steal_begin(&h->problem, &h->kernels, &h->schedule, &h->steal, h->shared);
    run_as(0);
    munmap(h->shared, size);
}

static void wait_without_system_calls(const struct isa *isa)
{
    static float q[WAIT_HEADS], k[WAIT_KEYS], v[WAIT_KEYS * WAIT_VALUE_DIM], expected[WAIT_OUT];
    static char workspace[1 << 20];
    attnkit_attention_args args = {
        .size = sizeof args,
        .batch = 1,
        .q_heads = WAIT_HEADS,
        .kv_heads = 1,
        .q_len = 1,
        .kv_len = WAIT_KEYS,
        .head_dim = 1,
        .value_dim = WAIT_VALUE_DIM,
        .q = {.data = q},
        .k = {.data = k},
        .v = {.data = v},
        .out = {.data = expected},
    };
    const attnkit_exec exec = {.size = sizeof exec,
                               .isa = isa->name,
                               .workspace = workspace,
                               .workspace_size = sizeof workspace};
    for (int64_t i = 0; i < WAIT_KEYS * WAIT_VALUE_DIM; i++)
        v[i] = (float)(i % 1009);
    assert_int_equal(attnkit_attention(&args, &exec, NULL), ATTNKIT_OK);
    void *const out = shared_memory(sizeof expected);
    args.out.data = out;
    run_held_up(&args, isa);
    assert_memory_equal(out, expected, sizeof expected);
    munmap(out, sizeof expected);
}

static void a_thread_that_waits_makes_no_system_call(void **state)
{
    (void)state;
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    const int blocks_of_chunk = CHUNK_KEYS / KEY_BLOCK;
    for (int i = 0; i < count; i++) {
        if (!attnkit_isa_can_run(&isas[i]))
            continue;
        wait_without_system_calls(&isas[i]);
        if (held_up.status == 77)
            skip(); /* no seccomp in this kernel or emulator */
        assert_int_equal(held_up.status, 0);
        /* The second process ran out of room for states, and left at least half of the chunks to
         * the first process. */
        assert_in_range(held_up.blocks, WAIT_CHUNKS / 2 * blocks_of_chunk,
                        (WAIT_CHUNKS - 1) * blocks_of_chunk);
    }
}

/* --- Programs of another user ----------------------------------------------------------------- */

/* Makes a copy of this program that runs as the user nobody, whoever starts it. */
static void copy_as_nobody(const char *copy)
{
    static char bytes[1 << 16];
    FILE *from = fopen("/proc/self/exe", "rb"), *to = fopen(copy, "wb");
    assert_true(from && to);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, from)) > 0;)
        assert_int_equal(fwrite(bytes, 1, n, to), n);
    fclose(from);
    assert_int_equal(fclose(to), 0);
    assert_int_equal(chown(copy, NOBODY, NOBODY), 0);
    assert_int_equal(chmod(copy, S_ISUID | 0755), 0);
}

static int choice_made_by(const char *program, const char *option)
{
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        setenv("ATTNKIT_ISA", "nonsense", 1);
        execl(program, program, option, (char *)NULL);
        _exit(127);
    }
    return exit_status_of(child);
}

static void set_uid_programs_do_not_read_the_variable(void **state)
{
    (void)state;
    char folder[] = P_tmpdir "/attnkit-XXXXXX", copy[64];
    if (getuid() != 0)
        skip(); /* only root can make a set-uid program for another user */
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chmod(folder, 0755), 0);
    snprintf(copy, sizeof copy, "%s/set-uid", folder);
    copy_as_nobody(copy);
    const int with_set_uid = choice_made_by(copy, "--choose-as-nobody");
    const int without = choice_made_by("/proc/self/exe", "--choose");
    unlink(copy);
    rmdir(folder);
    if (with_set_uid == 127 || without == 127)
        skip(); /* the program cannot be started, or not as nobody: the folder is mounted noexec or
                   nosuid, or this is an emulator */
    assert_int_equal(without, ATTNKIT_BAD_ISA);
    assert_int_equal(with_set_uid, ATTNKIT_OK);
}

static int choose(void)
{
    attnkit_isa_choice choice = {.size = sizeof choice};
    return attnkit_isa_choose(NULL, &choice, NULL);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--choose") == 0)
        return choose();
    if (argc == 2 && strcmp(argv[1], "--choose-as-nobody") == 0)
        return geteuid() == NOBODY ? choose() : 127;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_makes_no_system_call),
        cmocka_unit_test(a_thread_that_waits_makes_no_system_call),
        cmocka_unit_test(set_uid_programs_do_not_read_the_variable),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
