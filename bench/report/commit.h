/* SPDX-License-Identifier: Apache-2.0
 *
 * The commit that the program attnkit-bench and the library in it were built from. Only this
 * program contains the commit. Otherwise the bytes of the library would change with every commit.
 */
#ifndef ATTNKIT_COMMIT_H
#define ATTNKIT_COMMIT_H

/* The commit, with "-dirty" appended if files differed from it; "unknown" outside of git. */
extern const char bench_commit[];

#endif
