/* SPDX-License-Identifier: Apache-2.0
 *
 * Adds the origin of results to their file: the machine, the compiler and the commit.
 */
#ifndef ATTNKIT_CONTEXT_H
#define ATTNKIT_CONTEXT_H

/* Adds lines to Google Benchmark's "context". */
void describe_context(void);

#endif
