/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder with a results file for every run. The names of the files sort by time.
 */
#ifndef ATTNKIT_HISTORY_H
#define ATTNKIT_HISTORY_H

/* Returns the name of a new file in the folder, FOLDER/20261122T071500Z-COMMIT-PROCESS.json, and
 * makes the folder if it is missing. The name is valid until the next call. On an error, prints it
 * and returns NULL. */
const char *history_name(const char *folder);

#endif
