/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder with a file of results for every run, whose names sort by time.
 */
#ifndef ATTNKIT_HISTORY_H
#define ATTNKIT_HISTORY_H

/* The name of a new file in the folder, FOLDER/20261122T071500Z-COMMIT-PROCESS.json; makes the
 * folder where there is none. Valid until the next call; NULL: complained. */
const char *history_name(const char *folder);

#endif
