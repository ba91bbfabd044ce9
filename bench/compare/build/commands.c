/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts other programs. Each program gets its own process group, so that one SIGTERM reaches the
 * program and all its child processes.
 */
#include "bench/compare/build/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/compare/interrupt.h"

enum { SHOWN = 4000 /* last bytes of a log */, POLL_NANOSECONDS = 5000000 };

static void become(const char *const *words, const char *log)
{
    interrupt_release();
    const int in = open("/dev/null", O_RDONLY);
    const int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (setpgid(0, 0) || in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 ||
        dup2(out, 2) < 0)
        _exit(127);
    execvp(words[0], (char *const *)words);
    dprintf(2, "cannot start %s: %s\n", words[0], strerror(errno));
    _exit(127);
}

bool command_run(const char *const *words, const char *log)
{
    const struct timespec moment = {.tv_nsec = POLL_NANOSECONDS};
    const pid_t child = fork();
    int status;
    bool ended = false;
    if (child < 0)
        return false;
    if (child == 0)
        become(words, log);
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (interrupted() && !ended)
            ended = !kill(-child, SIGTERM);
        nanosleep(&moment, NULL);
    }
    return !ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void command_show_log(const char *log, FILE *stream)
{
    FILE *const file = fopen(log, "r");
    char line[512];
    if (!file)
        return;
    fseek(file, 0, SEEK_END);
    const long size = ftell(file), from = size > SHOWN ? size - SHOWN : 0;
    fseek(file, from, SEEK_SET);
    /* Skips the rest of the line in which `from` lies, but at most 511 bytes. */
    if (from > 0 && !fgets(line, sizeof line, file))
        line[0] = '\0';
    while (fgets(line, sizeof line, file))
        fprintf(stream, "    %s%s", line, strchr(line, '\n') ? "" : "\n");
    fclose(file);
}
