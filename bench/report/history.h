/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder with a results file for every run. The names of the files sort by time.
 */
#ifndef ATTNKIT_HISTORY_H
#define ATTNKIT_HISTORY_H

/* Returns the name of a new file in the folder, FOLDER/20261122T071500Z-COMMIT-PROCESS.json, and
 * makes the folder if it is missing. The name is valid until the next call. Prints an error and
 * returns NULL if there is no such folder and it cannot be made, or if the name is too long. */
const char *history_name(const char *folder);

#endif
