/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the example of README.md and attnkit.h. tests/repository/texts.py checks that this file has
 * the example as README.md and attnkit.h have it. The result is easy to predict: all scores are 0,
 * so row i of the result must be the mean of rows 0 .. i of V. The program checks the last element
 * of the result.
 */
#include <attnkit.h>

#include <stdio.h>
#include <stdlib.h>

void attend(int64_t n, const float *q, const float *k, const float *v, float *out);

/* clang-format off */
/* Causal attention over n tokens, 8 query heads that share 2 KV heads. All arrays are dense. */
void attend(int64_t n, const float *q, const float *k, const float *v, float *out)
{
    attnkit_attention_args args = {
        .size = sizeof args, .flags = ATTNKIT_CAUSAL, .align = ATTNKIT_ALIGN_UPPER_LEFT,
        .batch = 1, .q_heads = 8, .kv_heads = 2, .q_len = n, .kv_len = n, .head_dim = 64,
        .q = {.data = q}, .k = {.data = k}, .v = {.data = v}, .out = {.data = out}};
    attnkit_exec exec = {.size = sizeof exec};
    char message[ATTNKIT_MESSAGE_SIZE];
    if (attnkit_attention_workspace(&args, &exec, &exec.workspace_size, message) == ATTNKIT_OK)
        exec.workspace = malloc(exec.workspace_size);
    if (attnkit_attention(&args, &exec, message) != ATTNKIT_OK)
        fprintf(stderr, "%s\n", message);
    free(exec.workspace);
}
/* clang-format on */

enum { Q_HEADS = 8, KV_HEADS = 2, TOKENS = 100, DIM = 64 };

int main(void)
{
    float *q = calloc(Q_HEADS * TOKENS * DIM, sizeof *q); /* [head][token][dim] */
    float *k = calloc(KV_HEADS * TOKENS * DIM, sizeof *k);
    float *v = calloc(KV_HEADS * TOKENS * DIM, sizeof *v);
    float *out = calloc(Q_HEADS * TOKENS * DIM, sizeof *out);
    if (!q || !k || !v || !out)
        return 1;
    for (int i = 0; i < KV_HEADS * TOKENS * DIM; i++)
        v[i] = (float)(i / DIM % TOKENS); /* the token's number */

    attend(TOKENS, q, k, v, out);
    const float last = out[Q_HEADS * TOKENS * DIM - 1];
    printf("the last row is the mean of 0 .. %d: %g\n", TOKENS - 1, (double)last);
    free(q);
    free(k);
    free(v);
    free(out);
    return last > 49.499f && last < 49.501f ? 0 : 1;
}
