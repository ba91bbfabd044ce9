/* SPDX-License-Identifier: Apache-2.0
 *
 * Ctrl-C and its like: a job then ends what it has started, removes what it has made, and dies of
 * the signal.
 */
#ifndef ATTNKIT_COMPARE_INTERRUPT_H
#define ATTNKIT_COMPARE_INTERRUPT_H

#include <stdbool.h>

/* From now on signals are taken down; system calls that wait return. */
void interrupt_catch(void);

bool interrupted(void);

/* In a child process: signals do what they do by default. */
void interrupt_release(void);

/* Dies of the signal that came, if one did. */
void interrupt_die(void);

#endif
