/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/accuracy/errors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/scalar/reference.h"
#include "tests/accuracy/settings.h"

struct worst worst_of(struct worst a, struct worst b)
{
    return (struct worst){
        .e = fmax(a.e, b.e),
        .own_e = fmax(a.own_e, b.own_e),
        .bound = fmax(a.bound, b.bound),
        .lse_bound = fmax(a.lse_bound, b.lse_bound),
        .elements = a.elements + b.elements,
        .beyond = a.beyond + b.beyond,
    };
}

double ratio(double error, double unit)
{
    const double r = error == 0.0 ? 0.0 : fabs(error) / unit;
    return isfinite(r) ? r : INFINITY;
}

struct worst judge(const struct oracle_row *row, const struct oracle_element *truth, int64_t count,
                   const float *out, float lse)
{
    struct worst w = {.elements = count};
    for (int64_t c = 0; c < count; c++) {
        const double error = out[c] - truth[c].value;
        const double e = ratio(error, oracle_unit(row, &truth[c]));
        w.e = fmax(w.e, e);
        w.beyond += e > MOST_E;
        w.own_e = fmax(w.own_e, ratio(error, truth[c].unit));
        w.bound = fmax(w.bound, ratio(error, truth[c].bound));
    }
    if (row->keys > 0)
        w.lse_bound = ratio(lse - row->lse, row->lse_bound);
    else
        assert_true(lse == -INFINITY);
    return w;
}

struct attention problem_of(const attnkit_attention_args *args)
{
    struct attention a;
    char message[ATTNKIT_MESSAGE_SIZE];
    if (attnkit_attention_problem(args, &a, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    return a;
}

struct worst judge_reference(const attnkit_attention_args *args)
{
    const struct attention a = problem_of(args);
    const int64_t dim = a.value_dim;
    float *out = floats(dim), lse;
    struct oracle_element *truth = malloc((size_t)dim * sizeof *truth);
    struct worst w = {0};
    for (int64_t b = 0; b < args->batch; b++)
        for (int64_t h = 0; h < args->q_heads; h++)
            for (int64_t i = 0; i < args->q_len; i++) {
                const struct oracle_row row = oracle_row(args, b, h, i, truth, NULL);
                attnkit_reference_row(&a, b, h / a.group, i * a.group + h % a.group, out, &lse);
                w = worst_of(w, judge(&row, truth, dim, out, lse));
            }
    free(truth);
    free(out);
    return w;
}

void run(const attnkit_attention_args *args, const char *isa)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_exec exec = {.size = sizeof exec, .isa = isa};
    if (attnkit_attention_workspace(args, &exec, &exec.workspace_size, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    exec.workspace = malloc(exec.workspace_size + 1);
    if (attnkit_attention(args, &exec, message) != ATTNKIT_OK)
        fail_msg("%s", message);
    free(exec.workspace);
}

struct worst judge_call(const attnkit_attention_args *args)
{
    const int64_t dim = args->value_dim;
    struct oracle_element *truth = malloc((size_t)dim * sizeof *truth);
    struct worst w = {0};
    run(args, NULL);
    for (int64_t i = 0; i < args->q_len; i++) {
        const struct oracle_row row = oracle_row(args, 0, 0, i, truth, NULL);
        const float *const out = (const float *)args->out.data + i * dim;
        w = worst_of(w, judge(&row, truth, dim, out, ((const float *)args->lse.data)[i]));
    }
    free(truth);
    return w;
}
