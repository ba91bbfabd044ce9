/* SPDX-License-Identifier: Apache-2.0
 *
 * The program of a project that uses attnkit. The program makes one call on each instruction set
 * that can run here, and prints the hash of the result. It fails if a call fails, or if the results
 * differ. The program is valid C99, C11 and C++17.
 */
#include <attnkit.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 37, HEADS = 4, DIM = 48, COUNT = ROWS * HEADS * DIM };

static float q[COUNT], k[COUNT], v[COUNT], out[COUNT];

static void fill(float *x, unsigned seed)
{
    int i;
    for (i = 0; i < COUNT; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
}

static unsigned long long hash(const void *data, size_t bytes)
{
    const unsigned char *byte = (const unsigned char *)data;
    unsigned long long sum = 14695981039346656037ull;
    while (bytes--)
        sum = (sum ^ *byte++) * 1099511628211ull;
    return sum;
}

static attnkit_status call(const char *isa, char *message)
{
    attnkit_attention_args args;
    attnkit_exec exec;
    attnkit_status status;
    memset(&args, 0, sizeof args);
    memset(&exec, 0, sizeof exec);
    args.size = sizeof args;
    args.flags = ATTNKIT_CAUSAL;
    args.align = ATTNKIT_ALIGN_UPPER_LEFT;
    args.batch = 1;
    args.q_heads = args.kv_heads = HEADS;
    args.q_len = args.kv_len = ROWS;
    args.head_dim = DIM;
    args.q.data = q;
    args.k.data = k;
    args.v.data = v;
    args.out.data = out;
    exec.size = sizeof exec;
    exec.isa = isa;
    status = attnkit_attention_workspace(&args, &exec, &exec.workspace_size, message);
    if (status != ATTNKIT_OK)
        return status;
    exec.workspace = malloc(exec.workspace_size);
    status = attnkit_attention(&args, &exec, message);
    free(exec.workspace);
    return status;
}

int main(void)
{
    unsigned long long sum = 0;
    int i;
    fill(q, 1);
    fill(k, 2);
    fill(v, 3);
    printf("attnkit %s:", attnkit_version());
    for (i = 0; i < attnkit_isa_count(); i++) {
        char message[ATTNKIT_MESSAGE_SIZE] = "";
        attnkit_isa_info info;
        memset(&info, 0, sizeof info);
        info.size = sizeof info;
        if (attnkit_isa_get(i, &info, message) == ATTNKIT_OK && !info.can_run)
            continue;
        memset(out, 0, sizeof out);
        if (call(info.name, message) != ATTNKIT_OK || (sum && sum != hash(out, sizeof out))) {
            printf(" %s: %s\n", info.name, message[0] ? message : "other bits");
            return 1;
        }
        sum = hash(out, sizeof out);
        printf(" %s", info.name);
    }
    printf(" %016llx\n", sum);
    return sum ? 0 : 1;
}
