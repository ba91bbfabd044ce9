/* SPDX-License-Identifier: Apache-2.0
 *
 * A library that has just enough of attnkit's functions to be compared, and one fault that the
 * compiler is told: -DCRASH, -DWRONG and so on. tests/perf/test_compare.py builds it.
 */
#include <attnkit.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef VERSION
#define VERSION "0.1.0"
#endif
#ifndef WORK
#define WORK 20000
#endif
#ifndef STORED
#define STORED 1.0f /* the first element of whatever is appended */
#endif

const char *attnkit_version(void)
{
    return VERSION;
}

const char *attnkit_status_string(attnkit_status status)
{
    return status == ATTNKIT_OK ? "ATTNKIT_OK" : "ATTNKIT_UNSUPPORTED";
}

int32_t attnkit_isa_count(void)
{
    return 1;
}

attnkit_status attnkit_isa_get(int32_t index, attnkit_isa_info *info, char *message)
{
    (void)index, (void)message;
    info->name = info->needs = info->reason = "scalar";
    info->built = info->can_run = 1;
    return ATTNKIT_OK;
}

attnkit_status attnkit_attention_workspace(const attnkit_attention_args *args,
                                           const attnkit_exec *exec, size_t *bytes, char *message)
{
    (void)args, (void)exec, (void)message;
    *bytes = 64;
    return ATTNKIT_OK;
}

attnkit_status attnkit_append(const attnkit_append_args *args, const attnkit_exec *exec,
                              char *message)
{
    (void)exec, (void)message;
    *(float *)args->dst = STORED;
    return ATTNKIT_OK;
}

/* Takes WORK steps that no compiler leaves out. */
static float work(void)
{
    volatile float sum = 0.0f;
    for (int i = 0; i < WORK; i++)
        sum = sum * 0.5f + 1.0f;
    return sum;
}

#ifndef NO_ATTENTION
attnkit_status attnkit_attention(const attnkit_attention_args *args, const attnkit_exec *exec,
                                 char *message)
{
    const int64_t dim = args->value_dim ? args->value_dim : args->head_dim;
    const size_t count = (size_t)(args->batch * args->q_heads * args->q_len * dim);
    float *const out = args->out;
    const float result = work() + *(const float *)args->k;
    (void)exec, (void)message;
    for (size_t i = 0; i < count; i++)
        out[i] = result + (float)i;
#ifdef CRASH
    abort();
#endif
#ifdef LEAVE
    exit(0);
#endif
#ifdef HANG
    for (;;)
        pause();
#endif
#ifdef REFUSE
    if (message)
        strcpy(message, "not today");
    return ATTNKIT_UNSUPPORTED;
#endif
#ifdef WRONG
    out[count - 1] += 1.0f;
#endif
#ifdef NEARLY
    out[count - 1] *= 1.00001f;
#endif
#ifdef SLEEP
    usleep(SLEEP);
#endif
    return ATTNKIT_OK;
}
#endif
