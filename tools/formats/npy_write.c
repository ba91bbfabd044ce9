/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the result files of a command. .npy files have format 1.0. Each file is completed under
 * another name in the folder of its target. The files are renamed when all of them are complete, so
 * an error of writing changes no target.
 */
#define _XOPEN_SOURCE 700
#include "tools/formats/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cli/tool.h"
#include "tools/formats/path.h"

enum {
    PREFIX = 10,   /* magic, version, two bytes of length */
    ALIGNMENT = 64 /* bytes; alignment of the elements in the file, as in NumPy's files */
};

static const char magic_and_version[] = "\x93NUMPY\x01\x00";

static bool cannot_write(const char *name)
{
    return complain("cannot write %s: %s", name, strerror(errno));
}

bool npy_output_at(const char *name, struct npy_output *output)
{
    struct stat status;
    output->name = name;
    if (!path_resolve(name, output->path))
        return cannot_write(name);
    /* A rename would replace a device or a pipe by a file, which no user wants. */
    if (!stat(output->path, &status) && !S_ISREG(status.st_mode))
        return complain("cannot write %s: not a regular file", name);
    char *const slash = strrchr(output->path, '/');
    *slash = '\0';
    const bool writable = !access(slash == output->path ? "/" : output->path, W_OK | X_OK);
    *slash = '/';
    return writable || cannot_write(name);
}

/* Writes everything before the elements: PREFIX bytes, then the dictionary as text. Returns the
 * number of bytes, a multiple of ALIGNMENT. */
static size_t make_header(const struct npy *array, char header[4 * ALIGNMENT])
{
    char *const dict = header + PREFIX;
    const size_t room = 4 * ALIGNMENT - PREFIX;
    int used = snprintf(dict, room, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                        npy_descr(array->type));
    for (int i = 0; i < array->rank; i++)
        used += snprintf(dict + used, room - (size_t)used, "%s%lld", i ? ", " : "",
                         (long long)array->shape[i]);
    used += snprintf(dict + used, room - (size_t)used, array->rank == 1 ? ",), }" : "), }");
    const size_t least = PREFIX + (size_t)used + 1;
    const size_t total = (least + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    memset(dict + used, ' ', total - least);
    header[total - 1] = '\n';
    memcpy(header, magic_and_version, sizeof magic_and_version - 1);
    header[8] = (char)((total - PREFIX) & 0xff);
    header[9] = (char)((total - PREFIX) >> 8);
    return total;
}

/* Writes the file and syncs it. Without the sync, a crash after the rename could leave an empty
 * file under the new name. */
static bool write_all(FILE *file, const void *header, size_t length, const void *data, size_t bytes)
{
    return fwrite(header, 1, length, file) == length && fwrite(data, 1, bytes, file) == bytes &&
           !fflush(file) && !fsync(fileno(file));
}

static bool write_content(FILE *file, const struct npy_output *output)
{
    const struct npy *const array = output->array;
    char header[4 * ALIGNMENT];
    return array ? write_all(file, header, make_header(array, header), array->data, array->bytes)
                 : write_all(file, header, 0, output->content, output->content_bytes);
}

/* Writes the output to a new file in the folder of its target. Sets output->temporary to the path
 * of the new file. */
static bool write_temporary(struct npy_output *output, int index)
{
    const int folder = (int)(strrchr(output->path, '/') - output->path);
    char temporary[PATH_ROOM + 64];
    const int length = snprintf(temporary, sizeof temporary, "%.*s/.attnkit-%ld-%d", folder,
                                output->path, (long)getpid(), index);
    if (length >= PATH_ROOM) {
        errno = ENAMETOOLONG;
        return cannot_write(output->name);
    }
    const int descriptor = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0)
        return cannot_write(output->name);
    memcpy(output->temporary, temporary, (size_t)length + 1);
    FILE *file = fdopen(descriptor, "wb");
    bool ok = file && write_content(file, output);
    const int reason = errno;
    if (file ? fclose(file) : close(descriptor))
        return cannot_write(output->name);
    errno = reason;
    return ok || cannot_write(output->name);
}

static bool write_and_rename(struct npy_output *outputs, int count)
{
    bool ok = true;
    for (int i = 0; i < count; i++)
        outputs[i].temporary[0] = '\0';
    for (int i = 0; ok && i < count; i++)
        ok = write_temporary(&outputs[i], i);
    for (int i = 0; ok && i < count; i++) {
        ok = !rename(outputs[i].temporary, outputs[i].path) || cannot_write(outputs[i].name);
        if (ok)
            outputs[i].temporary[0] = '\0';
    }
    for (int i = 0; i < count; i++)
        if (outputs[i].temporary[0])
            unlink(outputs[i].temporary);
    return ok;
}

/* Writes all files. If a file cannot be renamed, the targets before this file have been replaced.
 * The signals in `ending` wait until the temporary files are gone. SIGXFSZ is ignored, so that
 * fwrite fails if a file exceeds the size limit of the process.
 */
bool npy_write(struct npy_output *outputs, int count)
{
    static const int ending[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGALRM};
    sigset_t wait, before;
    sigemptyset(&wait);
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
        sigaddset(&wait, ending[i]);
    signal(SIGXFSZ, SIG_IGN);
    sigprocmask(SIG_BLOCK, &wait, &before);
    const bool ok = write_and_rename(outputs, count);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return ok;
}
