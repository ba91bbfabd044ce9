/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds existing builds, and builds revisions. The build of a revision does not touch the
 * repository: `git archive` exports the revision. The library and its worker go to a folder whose
 * name follows from the commit and the arguments for meson (name_finished). A second side with the
 * same commit and arguments uses the same folder.
 */
#include "bench/compare/build/builds.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cli/tool.h"
#include "bench/compare/build/commands.h"
#include "bench/compare/build/folder.h"
#include "bench/compare/build/older.h"
#include "bench/compare/interrupt.h"
#include "bench/worker/worker.h"

#define LIBRARY_FILE "libattnkit.so"
#define WORKER_FILE "attnkit-worker.so"

enum { MAX_WORDS = 64, COMMIT = 64 + 1, SETUP = 2048, WHAT = 12 /* digits of a commit in texts */ };

/* A revision, while it is being built. */
struct revision {
    const struct builder *builder;
    const char *side, *what; /* "BASE" or "HEAD"; the user's name of the revision */
    char top[PATH_MAX];      /* top folder of the repository */
    char commit[COMMIT];
    char setup[SETUP]; /* all of the user's arguments for `meson setup`, separated by spaces */
    /* The temporary folder of this build, and three paths in it. */
    char folder[PATH_MAX], source[PATH_MAX], build[PATH_MAX], log[PATH_MAX];
};

/* ------------------------------------------------------------------------------- the revision */

/* Prints why the revision has failed, and the end of its log. Prints nothing after a signal that
 * ends the job. Returns false. */
static bool fails(const struct revision *revision, const char *why)
{
    if (interrupted())
        return false;
    complain("%s, '%s', %s", revision->side, revision->what, why);
    command_show_log(revision->log, stderr);
    return false;
}

/* Runs a command with the temporary file `file` for its output, and removes the file. Sets
 * `answer`, which has `size` bytes, to the first line of the output. Returns false if the command
 * fails or this line is empty. */
static bool ask(const char *const *words, const char *file, char *answer, size_t size)
{
    answer[0] = '\0';
    const bool ok = command_run(words, file);
    FILE *const stream = ok ? fopen(file, "r") : NULL;
    if (stream) {
        if (fgets(answer, (int)size, stream))
            answer[strcspn(answer, "\n")] = '\0';
        fclose(stream);
    }
    unlink(file);
    return answer[0] != '\0';
}

static bool find_commit(struct revision *revision)
{
    const char *const where = revision->builder->repository ? revision->builder->repository : ".";
    char file[PATH_MAX], name[PATH_MAX];
    const char *const top[] = {"git", "-C", where, "rev-parse", "--show-toplevel", NULL};
    const char *const commit[] = {
        "git", "-C", where, "rev-parse", "--verify", "--quiet", "--end-of-options", name, NULL};
    if (!path_join(revision->folder, "answer", file))
        return false;
    snprintf(name, sizeof name, "%s^{commit}", revision->what);
    if (!ask(top, file, revision->top, sizeof revision->top))
        return fails(revision, "is no file or folder, and there is no git repository that could "
                               "have it as a revision: see --repository");
    return ask(commit, file, revision->commit, sizeof revision->commit) ||
           fails(revision, "is no file, folder or revision of the repository");
}

/* ---------------------------------------------------------------------------------- the files */

static bool name_files(const char *folder, const char *library, const char *worker,
                       char files[FILES][PATH_MAX])
{
    return path_join(folder, library, files[LIBRARY]) && path_join(folder, worker, files[WORKER]);
}

/* Sets the names of the library and the worker in the folder of a build. */
static bool name_built(const char *folder, char files[FILES][PATH_MAX])
{
    return name_files(folder, "dispatch/" LIBRARY_FILE, "bench/worker/" WORKER_FILE, files);
}

/* Sets the names of a library and a worker that lie side by side in `folder`. */
static bool name_beside(const char *folder, char files[FILES][PATH_MAX])
{
    return name_files(folder, LIBRARY_FILE, WORKER_FILE, files);
}

/* -------------------------------------------------------------------------------- the build */

static bool step(const struct revision *revision, const char *const *words)
{
    char why[128];
    if (command_run(words, revision->log))
        return true;
    snprintf(why, sizeof why, "cannot be built: %s %s failed", words[0], words[1]);
    return fails(revision, why);
}

static bool export_source(const struct revision *revision)
{
    char archive[PATH_MAX];
    if (!path_join(revision->folder, "source.tar", archive))
        return false;
    const char *const git[] = {"git", "-C",    revision->top,    "archive", "--format=tar",
                               "-o",  archive, revision->commit, NULL};
    const char *const tar[] = {"tar", "-xf", archive, "-C", revision->source, NULL};
    if (mkdir(revision->source, 0777))
        return complain("cannot make %s: %s", revision->source, strerror(errno));
    return step(revision, git) && step(revision, tar);
}

/* Returns whether the revision has a meson option. meson refuses unknown options. */
static bool has_option(const struct revision *revision, const char *option)
{
    char name[PATH_MAX], line[512], wanted[64];
    bool found = false;
    snprintf(wanted, sizeof wanted, "option('%s'", option);
    FILE *const file =
        path_join(revision->source, "meson_options.txt", name) ? fopen(name, "r") : NULL;
    while (file && !found && fgets(line, sizeof line, file))
        found = strstr(line, wanted) != NULL;
    if (file)
        fclose(file);
    return found;
}

static bool set_up(const struct revision *revision)
{
    static const char *const without[][2] = {
        {"tests", "-Dtests=false"}, {"tools", "-Dtools=false"}, {"bench", "-Dbench=disabled"}};
    const char *words[MAX_WORDS] = {"meson", "setup", revision->build, revision->source,
                                    "--buildtype=release"};
    char setup[SETUP];
    int own = 5;
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if (has_option(revision, without[i][0]))
            words[own++] = without[i][1];
    int count = own;
    memcpy(setup, revision->setup, sizeof setup);
    for (char *word = strtok(setup, " "); word; word = strtok(NULL, " ")) {
        if (count == MAX_WORDS - 1)
            return complain("%s has more than %d arguments for meson", revision->side,
                            MAX_WORDS - 1 - own);
        words[count++] = word;
    }
    return step(revision, words);
}

/* Compiles the library and the worker. The second command names the worker, because a build without
 * the benches does not build the worker by default. */
static bool compile(const struct revision *revision)
{
    const char *const words[] = {"meson", "compile", "-C", revision->build, NULL};
    const char *const worker[] = {"meson", "compile", "-C", revision->build, "worker", NULL};
    return step(revision, words) && step(revision, worker);
}

/* Copies the library and its worker to the new folder `folder`: both files or none. */
static bool store(const struct revision *revision, const char *folder)
{
    char built[FILES][PATH_MAX], stored[FILES][PATH_MAX], part[PATH_MAX];
    if (snprintf(part, sizeof part, "%s.%ld", folder, (long)getpid()) >= PATH_MAX ||
        !name_built(revision->build, built) || !name_beside(part, stored))
        return false;
    if (mkdir(part, 0777))
        return complain("cannot make the folder %s: %s", part, strerror(errno));
    const bool ok =
        file_copy(built[LIBRARY], stored[LIBRARY]) && file_copy(built[WORKER], stored[WORKER]);
    if (ok && !rename(part, folder))
        return true;
    const int error = errno;
    folder_remove(part);
    return ok && complain("cannot write %s: %s", folder, strerror(error));
}

static bool build(const struct revision *revision, const char *folder)
{
    fprintf(stderr, "building %s: %s, %.*s%s%s\n", revision->side, revision->what, WHAT,
            revision->commit, revision->setup[0] ? ", " : "", revision->setup);
    const bool ok = export_source(revision) && older_add_worker(revision->source, revision->what) &&
                    set_up(revision) && compile(revision) && store(revision, folder);
    folder_remove(revision->folder);
    return ok;
}

/* ----------------------------------------------------------------------------------- the names */

/* Returns the FNV-1a hash of a text. */
static uint32_t hash(const char *text)
{
    uint32_t value = UINT32_C(2166136261);
    for (; *text; text++)
        value = (value ^ (unsigned char)*text) * UINT32_C(16777619);
    return value;
}

/* Sets `folder` to the path of the folder of the finished files. The name of this folder has the
 * commit, a hash of the user's arguments for `meson setup`, and WORKER_VERSION. */
static bool name_finished(const struct revision *revision, char folder[PATH_MAX])
{
    const char *const where =
        revision->builder->keep ? revision->builder->keep : revision->builder->folder;
    char name[NAME_MAX];
    snprintf(name, sizeof name, "attnkit-%s-%08x-%d", revision->commit, hash(revision->setup),
             WORKER_VERSION);
    return path_join(where, name, folder);
}

/* Fills in the user's arguments for meson and the paths of the build, and makes the temporary
 * folder of the build. On an error, prints it and returns false. */
static bool plan(const struct builder *builder, struct revision *revision, const char *setup)
{
    revision->builder = builder;
    if (snprintf(revision->setup, SETUP, "%s", setup ? setup : "") >= SETUP)
        return complain("the arguments for meson are longer than %d characters", SETUP - 1);
    if (!path_join(builder->folder, revision->side, revision->folder) ||
        !path_join(revision->folder, "source", revision->source) ||
        !path_join(revision->folder, "build", revision->build) ||
        !path_join(revision->folder, "log", revision->log))
        return false;
    return !mkdir(revision->folder, 0777) ||
           complain("cannot make %s: %s", revision->folder, strerror(errno));
}

/* Sets `files` to the finished files of the revision. Builds the files if they do not exist. */
static bool find_revision(struct revision *revision, char files[FILES][PATH_MAX], char label[LABEL])
{
    char folder[PATH_MAX];
    if (!find_commit(revision) || !name_finished(revision, folder) || !name_beside(folder, files))
        return false;
    snprintf(label, LABEL, "%.40s (%.*s)%s%.48s", revision->what, WHAT, revision->commit,
             revision->setup[0] ? " " : "", revision->setup);
    if (!access(files[LIBRARY], R_OK) && !access(files[WORKER], R_OK))
        folder_remove(revision->folder);
    else if (!build(revision, folder))
        return false;
    return true;
}

/* --------------------------------------------------------------------------- existing builds */

static bool find_build(const char *side, const char *folder, char files[FILES][PATH_MAX])
{
    if (!name_built(folder, files))
        return false;
    if (access(files[LIBRARY], R_OK))
        return complain("%s: the folder %s has no library: %s: %s", side, folder, files[LIBRARY],
                        strerror(errno));
    return !access(files[WORKER], R_OK) ||
           complain("%s: the folder %s has no worker: %s: %s; `meson compile -C %s worker` builds "
                    "the worker. If the source of this build has no worker yet, give the name of "
                    "the revision instead of the folder",
                    side, folder, files[WORKER], strerror(errno), folder);
}

/* Finds the worker of a library, and sets `files` to both files. The worker is next to the library
 * or, if the library is in dispatch/ of a build, in bench/worker/ of this build. */
static bool find_beside(const char *side, const char *library, char files[FILES][PATH_MAX])
{
    char folder[PATH_MAX], build[PATH_MAX];
    const char *const slash = strrchr(library, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - library) : 1,
             slash ? library : ".");
    if (!name_beside(folder, files))
        return false;
    if (access(files[WORKER], R_OK) && (!path_join(folder, "..", build) ||
                                        !name_built(build, files) || access(files[WORKER], R_OK)))
        return complain("%s: %s has no worker: neither %s/" WORKER_FILE " nor %s can be read", side,
                        library, folder, files[WORKER]);
    snprintf(files[LIBRARY], PATH_MAX, "%s", library);
    return true;
}

bool builds_find(const struct builder *builder, const char *side, const char *what,
                 const char *setup, char files[FILES][PATH_MAX], char label[LABEL])
{
    struct stat status;
    struct revision revision = {.side = side, .what = what};
    if (stat(what, &status))
        return plan(builder, &revision, setup) && find_revision(&revision, files, label);
    snprintf(label, LABEL, "%.*s", LABEL - 1, what);
    return S_ISDIR(status.st_mode) ? find_build(side, what, files) : find_beside(side, what, files);
}
