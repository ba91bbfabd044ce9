/* SPDX-License-Identifier: Apache-2.0
 *
 * Which state of the source this program and the library in it were built from. Only the bench
 * program knows: a library that did would have other bytes after every commit.
 */
#ifndef ATTNKIT_COMMIT_H
#define ATTNKIT_COMMIT_H

/* The commit, with "-dirty" behind it if files differed from it; "unknown" outside of git. */
extern const char bench_commit[];

#endif
