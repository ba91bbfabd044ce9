/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies a library and its worker, because the loader does not load a file twice, and because a
 * build may replace the originals during the job.
 */
#include "bench/compare/build/copies.h"

#include <stdio.h>

#include "bench/compare/build/folder.h"
#include "bench/compare/build/soname.h"

bool copies_name(const char *folder, int side, int copy, char files[FILES][PATH_MAX])
{
    static const char *const kinds[FILES] = {"library", "worker"};
    for (int i = 0; i < FILES; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.%d.%d.so", kinds[i], side, copy);
        if (!path_join(folder, name, files[i]))
            return false;
    }
    return true;
}

enum exit_code copies_make(const char *folder, int side, int copies, const char *side_name,
                           char built[FILES][PATH_MAX])
{
    for (int copy = 0; copy < copies; copy++) {
        char files[FILES][PATH_MAX];
        if (!copies_name(folder, side, copy, files) || !file_copy(built[LIBRARY], files[LIBRARY]) ||
            !file_copy(built[WORKER], files[WORKER]))
            return EXIT_NOT_BUILT;
        if (!soname_number(files[LIBRARY], files[WORKER], side * copies + copy, side_name))
            return EXIT_NOT_COMPARABLE;
    }
    return EXIT_GREEN;
}
