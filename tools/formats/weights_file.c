/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads weights by name from a safetensors file or a folder of .npy files.
 */
#define _XOPEN_SOURCE 700
#include "tools/formats/weights_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/cli/tool.h"

static const char suffix[] = ".npy";

/* ------------------------------------------------------------------------------------- names */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool add_name(const char *name, size_t length, struct weights_file *file)
{
    char **const names = realloc(file->names, (file->count + 1) * sizeof *names);
    if (names)
        file->names = names;
    char *const copy = names ? strndup(name, length) : NULL;
    if (!copy)
        return complain("%s: no memory for its names", file->path);
    names[file->count++] = copy;
    return true;
}

/* Lists the files in the folder whose names end with .npy. The listed names lack the .npy. */
static bool list_folder(struct weights_file *file)
{
    DIR *const folder = opendir(file->path);
    if (!folder)
        return complain("cannot read %s: %s", file->path, strerror(errno));
    bool ok = true;
    for (const struct dirent *entry; ok && (entry = readdir(folder));) {
        const size_t length = strlen(entry->d_name), end = sizeof suffix - 1;
        if (length > end && !strcmp(entry->d_name + length - end, suffix))
            ok = add_name(entry->d_name, length - end, file);
    }
    closedir(folder);
    if (file->count > 0)
        qsort(file->names, file->count, sizeof *file->names, by_text);
    return ok;
}

static bool list_tensors(struct weights_file *file)
{
    bool ok = safetensors_open(file->path, &file->file);
    for (size_t i = 0; ok && i < file->file.count; i++)
        ok = add_name(file->file.tensors[i].name, strlen(file->file.tensors[i].name), file);
    return ok;
}

bool weights_open(const char *path, struct weights_file *file)
{
    struct stat status;
    *file = (struct weights_file){.path = path};
    file->is_folder = !stat(path, &status) && S_ISDIR(status.st_mode);
    if (file->is_folder ? list_folder(file) : list_tensors(file))
        return true;
    weights_close(file);
    return false;
}

bool weights_has(const struct weights_file *file, const char *name)
{
    return file->count &&
           bsearch(&name, file->names, file->count, sizeof *file->names, by_text) != NULL;
}

void weights_close(struct weights_file *file)
{
    for (size_t i = 0; i < file->count; i++)
        free(file->names[i]);
    free(file->names);
    safetensors_close(&file->file);
    file->names = NULL;
    file->count = 0;
}

/* ----------------------------------------------------------------------------------- tensors */

static bool read_npy(const struct weights_file *file, const char *name, struct file_tensor *tensor)
{
    const struct npy_form form = {1u << NPY_F32 | 1u << NPY_F16, 1, 2};
    const size_t room = strlen(file->path) + strlen(name) + sizeof suffix + 1;
    struct npy array;
    tensor->own_file = true;
    tensor->name = malloc(room);
    if (!tensor->name)
        return complain("%s: no memory for a name", name);
    snprintf(tensor->name, room, "%s/%s%s", file->path, name, suffix);
    if (!npy_read(tensor->name, form, &array))
        return false;
    tensor->type = array.type == NPY_F16 ? ATTNKIT_F16 : ATTNKIT_F32;
    tensor->rank = array.rank;
    memcpy(tensor->shape, array.shape, sizeof tensor->shape);
    tensor->data = array.data;
    return true;
}

static bool type_of(const struct safetensor *from, attnkit_type *type)
{
    static const char *const dtypes[] = {"F32", "F16", "BF16"}; /* as in attnkit_type */
    for (int i = 0; i < 3; i++)
        if (!strcmp(from->dtype, dtypes[i])) {
            *type = (attnkit_type)i;
            return true;
        }
    return complain("%s: its dtype is %s: must be F32, F16 or BF16", from->name, from->dtype);
}

static bool read_tensor(struct weights_file *file, const char *name, struct file_tensor *tensor)
{
    const struct safetensor *const from = safetensors_find(&file->file, name);
    if (!type_of(from, &tensor->type))
        return false;
    if (from->rank < 1 || from->rank > 2)
        return complain("%s: its rank is %d: must be 1 .. 2", name, from->rank);
    tensor->name = strdup(name);
    tensor->rank = from->rank;
    memcpy(tensor->shape, from->shape, sizeof tensor->shape);
    tensor->data = malloc(from->end > from->begin ? from->end - from->begin : 1);
    if (!tensor->name || !tensor->data)
        return complain("%s: no memory for %llu bytes", name,
                        (unsigned long long)(from->end - from->begin));
    return safetensors_read(&file->file, from, tensor->data);
}

bool weights_read(struct weights_file *file, const char *name, struct file_tensor *tensor)
{
    *tensor = (struct file_tensor){0};
    if (file->is_folder ? read_npy(file, name, tensor) : read_tensor(file, name, tensor))
        return true;
    weights_free(tensor);
    return false;
}

void weights_free(struct file_tensor *tensor)
{
    free(tensor->name);
    free(tensor->data);
    *tensor = (struct file_tensor){0};
}
