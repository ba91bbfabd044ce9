/* SPDX-License-Identifier: Apache-2.0
 *
 * Ctrl-C and similar signals. After one of these signals a job ends the processes it has started,
 * removes the files it has made, and is ended by the signal.
 */
#ifndef ATTNKIT_COMPARE_INTERRUPT_H
#define ATTNKIT_COMPARE_INTERRUPT_H

#include <stdbool.h>

/* From now on, a signal only sets a flag and interrupts system calls that wait. */
void interrupt_catch(void);

bool interrupted(void);

/* Restores the default effect of signals. Child processes call it. */
void interrupt_release(void);

/* Ends the process by the signal that has come. Returns if none has come. */
void interrupt_die(void);

#endif
