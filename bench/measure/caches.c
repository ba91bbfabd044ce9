/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the caches of the first processor, as Linux reports them.
 */
#include "bench/measure/caches.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { WORD = 32 };

/* Reads the word, such as "Unified", in a file that describes a cache. Returns false if there is no
 * such file.
 */
static bool read_word(int cache, const char *file, char word[WORD])
{
    char name[128];
    snprintf(name, sizeof name, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", cache, file);
    FILE *const stream = fopen(name, "r");
    const bool ok = stream && fscanf(stream, "%31s", word) == 1;
    if (stream)
        fclose(stream);
    return ok;
}

/* Returns the size in bytes of the data cache or unified cache of a level. The cache may be
 * private or shared. Returns 0 if there is no such cache. */
static size_t cache_bytes(int level)
{
    char type[WORD], text[WORD];
    for (int cache = 0; read_word(cache, "type", type); cache++) {
        int its_level = 0;
        size_t kilobytes = 0;
        if (!read_word(cache, "level", text) || sscanf(text, "%d", &its_level) != 1 ||
            !read_word(cache, "size", text) || sscanf(text, "%zuK", &kilobytes) != 1)
            continue;
        if (its_level == level && strcmp(type, "Instruction"))
            return kilobytes * 1024;
    }
    return 0;
}

/* Returns the size of a buffer that stands for a cache level, or for memory if level is 0. A buffer
 * fills half of the cache of its level, so that other data has room, too. Returns 0 if such a
 * buffer would fit into the next smaller cache. The buffer for memory is four times as large as L3,
 * but at least 128 MiB and at most 512 MiB. The upper bound is needed because virtual machines
 * report caches that they share with other machines. */
size_t level_buffer(int level)
{
    const size_t least = (size_t)128 << 20, most = (size_t)512 << 20;
    if (level > 0) {
        const size_t size = cache_bytes(level) / 2;
        return level == 1 || size > cache_bytes(level - 1) ? size : 0;
    }
    const size_t size = 4 * cache_bytes(3);
    return size < least ? least : size > most ? most : size;
}
