// SPDX-License-Identifier: Apache-2.0
//
// The public header, included first and alone, compiles in C++ without a warning. The program uses
// the header as C++ programs do. header_c99.c uses every type and function.
#include <attnkit.h>

static void run_all(void *, int64_t n, void (*task)(void *arg, int64_t i), void *arg)
{
    for (int64_t i = 0; i < n; i++)
        task(arg, i);
}

int main()
{
    attnkit_exec exec;
    attnkit_exec_init(&exec);
    exec.parallel_for = run_all;
    char message[ATTNKIT_MESSAGE_SIZE];
    size_t bytes = 1;

    attnkit_attention_args args;
    attnkit_attention_args_init(&args);
    args.flags = ATTNKIT_CAUSAL | ATTNKIT_SCALE_GIVEN;
    args.align = ATTNKIT_ALIGN_BOTTOM_RIGHT;
    args.q.type = ATTNKIT_F32;
    args.q.layout = ATTNKIT_STRIDED;
    args.head_dim = 1;
    attnkit_window window;
    attnkit_window_init(&window);
    attnkit_visibility visibility;
    attnkit_visibility_init(&visibility);
    visibility.window = &window;
    args.visibility = &visibility;
    const attnkit_status status = attnkit_attention_workspace(&args, &exec, &bytes, message);
    if (status != ATTNKIT_OK || bytes != 0)
        return 1;
    if (attnkit_attention(&args, &exec, message) != ATTNKIT_OK)
        return 2;
    attnkit_isa_info info = {};
    info.size = sizeof info;
    if (attnkit_isa_get(attnkit_isa_count() - 1, &info, message) != ATTNKIT_OK)
        return 3;
    attnkit_isa_choice choice = {};
    choice.size = sizeof choice;
    if (attnkit_isa_choose(nullptr, &choice, message) != ATTNKIT_OK)
        return 4;
    attnkit_append_args append;
    attnkit_append_args_init(&append);
    append.dst.type = ATTNKIT_BF16;
    append.dim = 2;
    if (attnkit_append_workspace(&append, &exec, &bytes, message) != ATTNKIT_OK || bytes != 0)
        return 5;
    if (attnkit_append(&append, &exec, message) != ATTNKIT_OK)
        return 6;
    return attnkit_version()[0] && attnkit_status_string(ATTNKIT_BAD_ISA)[0] ? 0 : 7;
}
