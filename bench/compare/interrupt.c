/* SPDX-License-Identifier: Apache-2.0
 *
 * Handles the signals that end a job.
 */
#include "bench/compare/interrupt.h"

#include <signal.h>
#include <stddef.h>

static const int ending[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE};
static volatile sig_atomic_t caught;

static void take_down(int signal_number)
{
    caught = signal_number;
}

/* Sets the handler of each signal in `ending`, unless the signal was ignored at the start, as by
 * nohup. */
static void handle_by(void (*handler)(int))
{
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++) {
        struct sigaction action;
        sigaction(ending[i], NULL, &action);
        if (action.sa_handler == SIG_IGN)
            continue;
        action = (struct sigaction){.sa_handler = handler}; /* no SA_RESTART: a signal ends system
                                                             * calls that wait */
        sigemptyset(&action.sa_mask);
        sigaction(ending[i], &action, NULL);
    }
}

void interrupt_catch(void)
{
    handle_by(take_down);
}

bool interrupted(void)
{
    return caught != 0;
}

void interrupt_release(void)
{
    handle_by(SIG_DFL);
}

void interrupt_die(void)
{
    interrupt_release();
    if (caught)
        raise(caught);
}
