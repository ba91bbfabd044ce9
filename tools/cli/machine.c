/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds facts about the CPU on which a program runs, and the compiler that made the program.
 */
#include "tools/cli/tool.h"

#include <stdio.h>
#include <string.h>

void cpuinfo(const char *key, char value[CPUINFO_LINE])
{
    value[0] = '\0';
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file)
        return;
    char line[CPUINFO_LINE];
    while (!value[0] && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)))
            continue;
        colon += 1 + strspn(colon + 1, " ");
        snprintf(value, CPUINFO_LINE, "%.*s", (int)strcspn(colon, "\n"), colon);
    }
    fclose(file);
}

const char *tool_compiler(void)
{
#if defined(__clang__)
    return "clang " __clang_version__;
#else
    return "gcc " __VERSION__;
#endif
}
