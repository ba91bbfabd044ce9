/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads the libraries and workers of the sides.
 */
#include "bench/compare/measure/sides.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "bench/compare/build/copies.h"

struct side {
    const char *name;
    const struct worker *workers[COPIES];
};

static struct side sides[SIDES] = {{.name = "BASE"}, {.name = "HEAD"}, {.name = "BASE again"}};
static volatile int *busy;

const char *side_name(int side)
{
    return sides[side].name;
}

const struct worker *side_worker(int side, int copy)
{
    return sides[side].workers[copy];
}

int sides_switch(int side)
{
    const int before = *busy;
    *busy = side;
    return before;
}

const char *side_version(int side)
{
    const int before = sides_switch(side);
    const char *const version = sides[side].workers[0]->library_version();
    sides_switch(before);
    return version;
}

/* ------------------------------------------------------------------------------------ loading */

/* Loads a shared library or a module, and returns its handle. `name` is the name of the file in an
 * error message. Returns NULL on an error, and writes the error to problem. */
static void *open_file(const char *file, const char *name, char problem[SIDES_PROBLEM])
{
    void *const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        snprintf(problem, SIDES_PROBLEM, "%s cannot be loaded: %s", name, dlerror());
    return handle;
}

/* Returns the worker in a module. Refuses a worker whose version is not WORKER_VERSION, because the
 * fields after the version are then unknown. Returns NULL on an error, and writes the error to
 * problem. */
static const struct worker *find_worker(void *module, const char *side, char problem[SIDES_PROBLEM])
{
    const struct worker *const worker = dlsym(module, "attnkit_worker");
    if (!worker)
        snprintf(problem, SIDES_PROBLEM, "the worker of %s has no symbol attnkit_worker", side);
    else if (worker->version != WORKER_VERSION)
        snprintf(problem, SIDES_PROBLEM,
                 "the worker of %s is of version %d, this attnkit-compare knows version %d", side,
                 (int)worker->version, WORKER_VERSION);
    else
        return worker;
    return NULL;
}

static bool is_bound_to(const struct worker *worker, void *library)
{
    void *const version = dlsym(library, "attnkit_version");
    return version && !memcmp(&version, &worker->library_version, sizeof version);
}

/* Loads a copy of a side: first the library, then the worker. The worker asks the loader for the
 * soname of this library (build/copies.h). */
static bool load(const char *folder, int index, int copy, char problem[SIDES_PROBLEM])
{
    struct side *const side = &sides[index];
    char files[FILES][PATH_MAX], its_worker[64];
    snprintf(its_worker, sizeof its_worker, "the worker of %s", side->name);
    if (!copies_name(folder, index, copy, files))
        return false;
    void *const library = open_file(files[LIBRARY], side->name, problem);
    void *const module = library ? open_file(files[WORKER], its_worker, problem) : NULL;
    side->workers[copy] = module ? find_worker(module, side->name, problem) : NULL;
    if (!side->workers[copy])
        return false;
    if (!is_bound_to(side->workers[copy], library))
        snprintf(problem, SIDES_PROBLEM, "%s is bound to another library", its_worker);
    return !problem[0];
}

/* Returns whether all copies of all sides have different libraries and different workers. The check
 * is needed because the loader may reuse a file that it has already loaded. */
static bool are_apart(char problem[SIDES_PROBLEM])
{
    const int count = SIDES * COPIES;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++) {
            const struct side *const a = &sides[i / COPIES], *const b = &sides[j / COPIES];
            if (a->workers[i % COPIES] != b->workers[j % COPIES] &&
                a->workers[i % COPIES]->library_version != b->workers[j % COPIES]->library_version)
                continue;
            snprintf(problem, SIDES_PROBLEM, "%s and %s were loaded as one library", b->name,
                     a->name);
            return false;
        }
    return true;
}

bool sides_load(const char *folder, const int order[SIDES], volatile int *is_busy,
                char problem[SIDES_PROBLEM])
{
    busy = is_busy;
    for (int copy = 0; copy < COPIES; copy++)
        for (int i = 0; i < SIDES; i++) {
            sides_switch(order[i]);
            const bool ok = load(folder, order[i], copy, problem);
            sides_switch(-1);
            if (!ok)
                return false;
        }
    return are_apart(problem);
}

/* ------------------------------------------------------------------------ the instruction sets */

static bool can_use(int side, const char *isa)
{
    const struct worker *const worker = side_worker(side, 0);
    const int before = sides_switch(side);
    bool found = false;
    const char *name;
    for (int32_t i = 0; !found && (name = worker->isa(i)); i++)
        found = !strcmp(name, isa);
    sides_switch(before);
    return found;
}

int sides_isas(const char *names[MAX_ISAS])
{
    const struct worker *const base = side_worker(BASE, 0);
    const int before = sides_switch(BASE);
    const char *name;
    int count = 0;
    for (int32_t i = 0; count < MAX_ISAS && (name = base->isa(i)); i++)
        if (can_use(HEAD, name))
            names[count++] = name;
    sides_switch(before);
    return count;
}
