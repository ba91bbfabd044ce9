/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the library that the rows of the benches call, handed on to the sides. They are
 * written out: each costs every side the same few nanoseconds.
 */
#include "bench/compare/measure/forward.h"

#include <stdio.h>
#include <string.h>

#include "dispatch/cpu/isa.h"

enum { MAX_ISAS = 8 };

static const struct side *sides;
static volatile int *busy;
static int first, last; /* of the sides that are called */
static int used;        /* copy of them */

static char failures[SIDES][SIDES_PROBLEM]; /* "": none */

void forward_to(const struct side loaded[SIDES], volatile int *is_busy)
{
    sides = loaded;
    busy = is_busy;
    sides_use_all();
}

void sides_use(int index, int copy)
{
    first = last = index;
    used = copy;
}

void sides_use_all(void)
{
    first = BASE;
    last = HEAD;
    used = 0;
}

const char *sides_failure(int index)
{
    return failures[index][0] ? failures[index] : NULL;
}

void sides_forgive(void)
{
    for (int i = 0; i < SIDES; i++)
        failures[i][0] = '\0';
}

/* Marks the side as called. */
static const struct functions *call(int side)
{
    *busy = side;
    return &sides[side].copies[used].functions;
}

/* Takes down what a call came to, whose caller may not want to know the message. Returns the first
 * status that is not ATTNKIT_OK. */
static attnkit_status done(int side, attnkit_status before, attnkit_status status,
                           const char *message, char *wanted)
{
    *busy = -1;
    if (wanted && before == ATTNKIT_OK)
        strcpy(wanted, message);
    if (status != ATTNKIT_OK && !failures[side][0])
        snprintf(failures[side], sizeof failures[side], "%s: %s", sides[side].name, message);
    return before != ATTNKIT_OK ? before : status;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

const char *attnkit_status_string(attnkit_status status)
{
    const char *const text = call(first)->status_string(status);
    *busy = -1;
    return text;
}

attnkit_status attnkit_attention_workspace(const attnkit_attention_args *args,
                                           const attnkit_exec *exec, size_t *bytes, char *message)
{
    char text[ATTNKIT_MESSAGE_SIZE] = "";
    attnkit_status status = ATTNKIT_OK;
    *bytes = 0;
    for (int i = first; i <= last; i++) {
        size_t size = 0;
        const attnkit_status its = call(i)->attention_workspace(args, exec, &size, text);
        *bytes = larger(*bytes, size);
        status = done(i, status, its, text, message);
    }
    return status;
}

attnkit_status attnkit_attention(const attnkit_attention_args *args, const attnkit_exec *exec,
                                 char *message)
{
    char text[ATTNKIT_MESSAGE_SIZE] = "";
    attnkit_status status = ATTNKIT_OK;
    for (int i = first; i <= last; i++)
        status = done(i, status, call(i)->attention(args, exec, text), text, message);
    return status;
}

attnkit_status attnkit_append(const attnkit_append_args *args, const attnkit_exec *exec,
                              char *message)
{
    char text[ATTNKIT_MESSAGE_SIZE] = "";
    attnkit_status status = ATTNKIT_OK;
    for (int i = first; i <= last; i++)
        status = done(i, status, call(i)->append(args, exec, text), text, message);
    return status;
}

attnkit_status attnkit_packed_size(const attnkit_pack_args *args, size_t *bytes, char *message)
{
    char text[ATTNKIT_MESSAGE_SIZE] = "";
    attnkit_status status = ATTNKIT_OK;
    *bytes = 0;
    for (int i = first; i <= last; i++) {
        size_t size = 0;
        const attnkit_status its = call(i)->packed_size(args, &size, text);
        *bytes = larger(*bytes, size);
        status = done(i, status, its, text, message);
    }
    return status;
}

attnkit_status attnkit_pack(const attnkit_pack_args *args, const attnkit_exec *exec, char *message)
{
    char text[ATTNKIT_MESSAGE_SIZE] = "";
    attnkit_status status = ATTNKIT_OK;
    for (int i = first; i <= last; i++)
        status = done(i, status, call(i)->pack(args, exec, text), text, message);
    return status;
}

attnkit_status attnkit_linear_workspace(const attnkit_linear_args *args, const attnkit_exec *exec,
                                        size_t *bytes, char *message)
{
    char text[ATTNKIT_MESSAGE_SIZE] = "";
    attnkit_status status = ATTNKIT_OK;
    *bytes = 0;
    for (int i = first; i <= last; i++) {
        size_t size = 0;
        const attnkit_status its = call(i)->linear_workspace(args, exec, &size, text);
        *bytes = larger(*bytes, size);
        status = done(i, status, its, text, message);
    }
    return status;
}

attnkit_status attnkit_linear(const attnkit_linear_args *args, const attnkit_exec *exec,
                              char *message)
{
    char text[ATTNKIT_MESSAGE_SIZE] = "";
    attnkit_status status = ATTNKIT_OK;
    for (int i = first; i <= last; i++)
        status = done(i, status, call(i)->linear(args, exec, text), text, message);
    return status;
}

attnkit_status attnkit_layer_packed_size(const attnkit_layer_weights *weights, size_t *bytes,
                                         char *message)
{
    char text[ATTNKIT_MESSAGE_SIZE] = "";
    attnkit_status status = ATTNKIT_OK;
    *bytes = 0;
    for (int i = first; i <= last; i++) {
        size_t size = 0;
        const attnkit_status its = call(i)->layer_packed_size(weights, &size, text);
        *bytes = larger(*bytes, size);
        status = done(i, status, its, text, message);
    }
    return status;
}

attnkit_status attnkit_layer_pack(const attnkit_layer_weights *weights, void *packed, size_t bytes,
                                  const attnkit_exec *exec, char *message)
{
    char text[ATTNKIT_MESSAGE_SIZE] = "";
    attnkit_status status = ATTNKIT_OK;
    for (int i = first; i <= last; i++)
        status =
            done(i, status, call(i)->layer_pack(weights, packed, bytes, exec, text), text, message);
    return status;
}

attnkit_status attnkit_layer_workspace(const attnkit_layer_args *args, const attnkit_exec *exec,
                                       size_t *bytes, char *message)
{
    char text[ATTNKIT_MESSAGE_SIZE] = "";
    attnkit_status status = ATTNKIT_OK;
    *bytes = 0;
    for (int i = first; i <= last; i++) {
        size_t size = 0;
        const attnkit_status its = call(i)->layer_workspace(args, exec, &size, text);
        *bytes = larger(*bytes, size);
        status = done(i, status, its, text, message);
    }
    return status;
}

attnkit_status attnkit_layer(const attnkit_layer_args *args, const attnkit_exec *exec,
                             char *message)
{
    char text[ATTNKIT_MESSAGE_SIZE] = "";
    attnkit_status status = ATTNKIT_OK;
    for (int i = first; i <= last; i++)
        status = done(i, status, call(i)->layer(args, exec, text), text, message);
    return status;
}

/* ------------------------------------------------------------------------- the instruction sets */

static bool runs_on(int side, const char *name)
{
    const struct functions *const functions = call(side);
    attnkit_isa_info info = {.size = sizeof info};
    for (int32_t i = 0; i < functions->isa_count(); i++)
        if (functions->isa_get(i, &info, NULL) == ATTNKIT_OK && !strcmp(info.name, name))
            return info.can_run;
    return false;
}

/* Those that both sides can run, by BASE's order; rows need no more of them than the name. */
int attnkit_isas(const struct isa **list)
{
    static struct isa isas[MAX_ISAS];
    attnkit_isa_info info = {.size = sizeof info};
    int count = 0;
    for (int32_t i = 0; i < call(BASE)->isa_count() && count < MAX_ISAS; i++)
        if (call(BASE)->isa_get(i, &info, NULL) == ATTNKIT_OK && info.can_run &&
            runs_on(HEAD, info.name))
            isas[count++] = (struct isa){.name = info.name};
    *busy = -1;
    *list = isas;
    return count;
}

bool attnkit_isa_can_run(const struct isa *isa)
{
    return isa->name != NULL;
}
