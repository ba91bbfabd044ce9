/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that uses a library built without the parts integers and products. The program checks
 * that calls with a flag of these parts are refused, and that the message names the part.
 */
#include <attnkit.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { DIM = 32 };

/* Returns the number of mistakes, which is 0 or 1. */
static int check(uint32_t flag, attnkit_type type, const char *part)
{
    static uint16_t row[DIM];
    static float out[DIM];
    char message[ATTNKIT_MESSAGE_SIZE] = "";
    const attnkit_tensor tensor = {.data = row, .type = type};
    const attnkit_attention_args args = {
        .size = sizeof args,
        .flags = flag,
        .batch = 1,
        .q_heads = 1,
        .kv_heads = 1,
        .q_len = 1,
        .kv_len = 1,
        .head_dim = DIM,
        .q = {.data = row, .type = ATTNKIT_BF16},
        .k = tensor,
        .v = tensor,
        .out = {.data = out},
    };
    const attnkit_status status = attnkit_attention(&args, NULL, message);
    if (status == ATTNKIT_UNSUPPORTED && strstr(message, part))
        return 0;
    printf("%s: status %d: %s\n", part, (int)status, message);
    return 1;
}

int main(void)
{
    return check(ATTNKIT_BF16_PRODUCTS, ATTNKIT_BF16, "the part products") +
           check(ATTNKIT_INTEGERS, ATTNKIT_Q8_0, "the part integers");
}
