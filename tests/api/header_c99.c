/* SPDX-License-Identifier: Apache-2.0
 *
 * The public header, first and alone, in C99 without a warning: every type and function of it.
 */
#include <attnkit.h>

static void run_all(void *pool, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    int64_t i;
    (void)pool;
    for (i = 0; i < n; i++)
        task(arg, i);
}

int main(void)
{
    attnkit_attention_args args = {0};
    attnkit_merge_args merge_args = {0};
    attnkit_append_args append = {0};
    attnkit_exec exec = {0};
    attnkit_isa_info info = {0};
    attnkit_isa_choice choice = {0};
    attnkit_status status;
    char message[ATTNKIT_MESSAGE_SIZE];
    size_t bytes = 1;
    float table = 1.0f;

    args.size = sizeof args;
    args.flags = ATTNKIT_CAUSAL | ATTNKIT_SCALE_GIVEN | ATTNKIT_STRIDED | ATTNKIT_WINDOW |
                 ATTNKIT_MASK_STRIDED;
    args.align = ATTNKIT_ALIGN_BOTTOM_RIGHT;
    args.q_type = ATTNKIT_F32;
    args.head_dim = 1;
    args.mask_kind = ATTNKIT_MASK_NONE;
    args.weights_kind = ATTNKIT_WEIGHTS_NONE;
    merge_args.size = sizeof merge_args;
    merge_args.value_dim = 1;
    append.size = sizeof append;
    append.rope = ATTNKIT_ROPE_INTERLEAVED;
    append.dst_type = ATTNKIT_BF16;
    append.dim = 2;
    append.rope_cos = append.rope_sin = &table;
    exec.size = sizeof exec;
    exec.parallel_for = run_all;
    info.size = sizeof info;
    choice.size = sizeof choice;

    status = attnkit_attention_workspace(&args, &exec, &bytes, message);
    if (status != ATTNKIT_OK || bytes != 0)
        return 1;
    if (attnkit_attention(&args, &exec, message) != ATTNKIT_OK)
        return 2;
    if (attnkit_isa_get(attnkit_isa_count() - 1, &info, message) != ATTNKIT_OK)
        return 3;
    if (attnkit_isa_choose(NULL, &choice, message) != ATTNKIT_OK)
        return 4;
    bytes = 1;
    if (attnkit_append_workspace(&append, &exec, &bytes, message) != ATTNKIT_OK || bytes != 0)
        return 5;
    if (attnkit_append(&append, &exec, message) != ATTNKIT_OK)
        return 6;
    if (attnkit_merge(&merge_args, &exec, message) != ATTNKIT_OK)
        return 7;
    return attnkit_version()[0] && attnkit_status_string(ATTNKIT_BAD_ISA)[0] ? 0 : 8;
}
