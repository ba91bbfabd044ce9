/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads files that need not be trusted, and that may change while they are read.
 */
#define _XOPEN_SOURCE 700
#define _FILE_OFFSET_BITS 64
#include "tools/formats/source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cli/tool.h"

/* Opens the file without blocking, because opening a FIFO would otherwise wait for a writer. */
bool source_open(const char *name, const char *kind, struct source *source)
{
    struct stat status;
    const int descriptor = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0)
        return complain("cannot read %s: %s", name, strerror(errno));
    if (fstat(descriptor, &status) || !S_ISREG(status.st_mode)) {
        close(descriptor);
        return complain("cannot read %s: not a regular file", name);
    }
    *source = (struct source){name, kind, fdopen(descriptor, "rb"), status.st_size};
    return source->file || complain("cannot read %s: %s", name, strerror(errno));
}

bool source_take(struct source *source, void *bytes, size_t count)
{
    if ((uint64_t)source->left < count)
        return complain("%s: not a whole %s file: the file ends too early", source->name,
                        source->kind);
    if (fread(bytes, 1, count, source->file) != count)
        return complain("cannot read %s: %s", source->name,
                        ferror(source->file) ? strerror(errno) : "the file has become shorter");
    source->left -= (int64_t)count;
    return true;
}

bool source_seek(struct source *source, int64_t offset)
{
    const off_t at = ftello(source->file);
    if (at < 0 || fseeko(source->file, offset, SEEK_SET))
        return complain("cannot read %s: %s", source->name, strerror(errno));
    source->left += at - offset;
    return true;
}

void source_close(struct source *source)
{
    if (source->file)
        fclose(source->file);
    source->file = NULL;
}
