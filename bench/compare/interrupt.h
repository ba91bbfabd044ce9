/* SPDX-License-Identifier: Apache-2.0
 *
 * Ctrl-C and similar signals. After one of these signals, a job ends the processes that it has
 * started, and removes its temporary files. Then the signal ends the job. Signals that were ignored
 * when the job began stay ignored.
 */
#ifndef ATTNKIT_COMPARE_INTERRUPT_H
#define ATTNKIT_COMPARE_INTERRUPT_H

#include <stdbool.h>

/* From now on, one of these signals only sets a flag and interrupts system calls that wait. */
void interrupt_catch(void);

/* Returns whether one of these signals has come. */
bool interrupted(void);

/* Restores the default effect of these signals. Each child process calls this function first. */
void interrupt_release(void);

/* Ends the process by the signal that has come. Returns if no signal has come. */
void interrupt_die(void);

#endif
