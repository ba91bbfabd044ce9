/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes workers for revisions that have no bench/worker/. The current worker.c and memory.c are
 * installed with this program. The meson.build below compiles both files with the source of the
 * benches' rows and the public header of the revision. Therefore worker.c may use only functions
 * and fields that these revisions have. The most important revision is ffe4faa, because the speed
 * of 0.1.0 is measured against ffe4faa (tests/perf/older.py). This file can be removed once
 * worker.c no longer fits the rows of these revisions.
 */
#include "bench/compare/build/older.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/compare/build/folder.h"
#include "tools/cli/tool.h"

/* In these revisions the rows of appends were in bench/compare/. */
static const char meson_build[] =
    "worker = shared_module('attnkit-worker', 'worker.c', 'memory.c',\n"
    "  '../rows/bench_attention.c', '../rows/bench_layer.c', '../rows/bench_linear.c',\n"
    "  '../compare/append.c', '../rows/calls.c', '../rows/kv.c', '../rows/masks.c',\n"
    "  '../rows/rows.c', '../rows/shape.c', '../measure/caches.c', '../measure/pool.c',\n"
    "  '../../tools/cli/complain.c',\n"
    "  name_prefix: '',\n"
    "  c_args: ['-D_GNU_SOURCE', '-include', 'bench/compare/append.h',\n"
    "    '-Dtypes_parse(text, type, input)=type_parse(text, type)'],\n"
    "  link_args: ['-Wl,--wrap=malloc', '-Wl,--wrap=calloc', '-Wl,--wrap=aligned_alloc',\n"
    "    '-Wl,--wrap=free', '-Wl,--wrap=copies_next'],\n"
    "  include_directories: [include_directories('../..'), public_inc],\n"
    "  link_with: attnkit_libs.get_shared_lib(),\n"
    "  dependencies: [m_dep, threads_dep],\n"
    "  gnu_symbol_visibility: 'hidden',\n"
    "  override_options: ['b_lto=false'])\n"
    "alias_target('worker', worker)\n";

/* Up to ffe4faa the files of these folders were directly in bench/ and tools/, and included each
 * other by relative paths. bench/rows and bench/measure become links to bench/, and tools/cli
 * becomes a link to tools/. */
static const char *const rooms[] = {"bench/rows", "bench/measure", "tools/cli"};

static bool fails(const char *path)
{
    return complain("cannot write %s: %s", path, strerror(errno));
}

static bool append_text(const char *path, const char *text)
{
    FILE *const file = fopen(path, "a");
    const bool written = file && fputs(text, file) >= 0;
    return (file && !fclose(file) && written) || fails(path);
}

static bool add_rooms(const char *source)
{
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        char path[PATH_MAX];
        if (!path_join(source, rooms[i], path))
            return false;
        if (access(path, F_OK) && symlink(".", path))
            return fails(path);
    }
    return true;
}

/* Sets `folder` to the folder of worker.c and memory.c. This is the folder of this program in a
 * build, or the folder attnkit-worker beside the installed program. */
static bool find_sources(char folder[PATH_MAX])
{
    static const char *const places[] = {".", "attnkit-worker"};
    char own[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    if (length < 0)
        return complain("cannot read /proc/self/exe: %s", strerror(errno));
    own[length] = '\0';
    *strrchr(own, '/') = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char file[PATH_MAX];
        if (path_join(own, places[i], folder) && path_join(folder, "worker.c", file) &&
            !access(file, R_OK))
            return true;
    }
    return complain("the sources of the worker are not installed: there is no "
                    "%s/attnkit-worker/worker.c",
                    own);
}

static bool copy_sources(const char *worker)
{
    static const char *const names[] = {"worker.c", "worker.h", "memory.c", "memory.h"};
    char sources[PATH_MAX];
    if (!find_sources(sources))
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char from[PATH_MAX], to[PATH_MAX];
        if (!path_join(sources, names[i], from) || !path_join(worker, names[i], to) ||
            !file_copy(from, to))
            return false;
    }
    return true;
}

bool older_add_worker(const char *source, const char *what)
{
    char worker[PATH_MAX], its_build[PATH_MAX], whole_build[PATH_MAX], append[PATH_MAX];
    if (!path_join(source, "bench/worker", worker) ||
        !path_join(worker, "meson.build", its_build) ||
        !path_join(source, "meson.build", whole_build) ||
        !path_join(source, "bench/compare/append.c", append))
        return false;
    if (!access(its_build, F_OK))
        return true;
    if (access(append, F_OK))
        return complain("'%s' has no worker, and is too old for the current worker: it has no "
                        "bench/compare/append.c",
                        what);
    if (mkdir(worker, 0777))
        return fails(worker);
    return copy_sources(worker) && add_rooms(source) && append_text(its_build, meson_build) &&
           append_text(whole_build, "subdir('bench/worker')\n");
}
