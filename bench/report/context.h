/* SPDX-License-Identifier: Apache-2.0
 *
 * The origin of results in their file: the machine, the compiler, the commit.
 */
#ifndef ATTNKIT_CONTEXT_H
#define ATTNKIT_CONTEXT_H

/* Adds lines to Google Benchmark's "context". */
void describe_context(void);

#endif
