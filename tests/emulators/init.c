/* SPDX-License-Identifier: Apache-2.0
 *
 * The init process of the machine that avx512_machine boots. The process runs one program on the
 * serial line and reports how the program ended. avx512_machine puts three files of NUL-terminated
 * strings into /machine: `mark` (one string), `argv` and `envp`.
 *
 * This process writes MARK "begin\n" on the serial line before the output of the program, and MARK
 * "end STATUS\n" after the output. If this process fails, it writes MARK "broken\n". The mark is
 * random, so that no output of the program can look like these reports. avx512_machine stops the
 * machine once it has read MARK "end STATUS\n".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

enum { MAX_STRINGS = 1024, MAX_BYTES = 1 << 17, CONSOLE_LEVEL = 8 };

static const char *mark = "";

/* Reports why the machine cannot run the program, and never returns. */
static void give_up(const char *what)
{
    dprintf(1, "%s: %s\n%sbroken\n", what, strerror(errno), mark);
    for (;;)
        pause();
}

/* Reads a file of NUL-terminated strings. Returns the strings as a list that ends with NULL. */
static char **read_strings(const char *path)
{
    char *bytes = malloc(MAX_BYTES);
    char **list = calloc(MAX_STRINGS + 1, sizeof *list);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (!bytes || !list || fd < 0)
        give_up(path);
    size_t size = 0;
    ssize_t got;
    while ((got = read(fd, bytes + size, MAX_BYTES - size)) > 0)
        size += (size_t)got;
    close(fd);
    size_t count = 0;
    for (size_t at = 0; at < size && count < MAX_STRINGS; at += strlen(bytes + at) + 1)
        list[count++] = bytes + at;
    return list;
}

/* Makes the serial line the standard output and error. Bytes are not changed: no "\r" is added. */
static void open_serial_line(void)
{
    mkdir("/dev", 0755);
    mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
    int line = open("/dev/ttyS0", O_RDWR | O_NOCTTY);
    int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, 0);
    dup2(line, 1);
    dup2(line, 2);
    struct termios mode;
    if (tcgetattr(1, &mode) == 0) {
        cfmakeraw(&mode);
        tcsetattr(1, TCSANOW, &mode);
    }
}

/* Checks that the processor has AVX-512 and that the kernel has enabled AVX-512 in XCR0. Without
 * this check, a program could silently run code for another instruction set. */
static void check_avx512(void)
{
    __builtin_cpu_init();
    errno = ENOTSUP;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        give_up("AVX-512 F, BW, DQ, VL");
}

/* A program asks the kernel by a system call for permission to use the tiles of AMX. From here on
 * this system call returns 0. The kernel would refuse permission, because Bochs lacks XFD. Tiles
 * work without permission (bochs_corrections.py). */
static void grant_tiles(void)
{
    enum { REQ_XCOMP_PERM = 0x1023 };
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_arch_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, REQ_XCOMP_PERM, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO), /* returns 0 */
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof code / sizeof code[0], code};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        give_up("a filter of system calls");
}

/* Runs the program. Returns the program's exit status, or 128 + N if signal N ended the program. */
static int run(char **argv, char **envp)
{
    pid_t child = fork();
    if (child == 0) {
        execve(argv[0], argv, envp);
        dprintf(2, "%s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child)
        give_up("fork");
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int main(void)
{
    open_serial_line();
    mark = read_strings("/machine/mark")[0];
    char **argv = read_strings("/machine/argv");
    char **envp = read_strings("/machine/envp");
    mkdir("/proc", 0755);
    mount("proc", "/proc", "proc", 0, NULL);
    mkdir("/tmp", 01777);
    check_avx512();
    grant_tiles();
    /* The kernel also writes on the serial line. It should write only in an emergency. */
    klogctl(CONSOLE_LEVEL, NULL, 1);

    dprintf(1, "%sbegin\n", mark);
    int status = run(argv, envp);
    dprintf(1, "%send %d\n", mark, status);
    for (;;)
        pause();
}
