/* SPDX-License-Identifier: Apache-2.0
 *
 * A program on a library that was built without the part products. It checks that a call with
 * ATTNKIT_BF16_PRODUCTS is refused, and that the message names the part.
 */
#include <attnkit.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { DIM = 32 };

int main(void)
{
    static uint16_t row[DIM];
    static float out[DIM];
    char message[ATTNKIT_MESSAGE_SIZE] = "";
    const attnkit_tensor bf16 = {.data = row, .type = ATTNKIT_BF16};
    const attnkit_attention_args args = {
        .size = sizeof args,
        .flags = ATTNKIT_BF16_PRODUCTS,
        .batch = 1,
        .q_heads = 1,
        .kv_heads = 1,
        .q_len = 1,
        .kv_len = 1,
        .head_dim = DIM,
        .q = bf16,
        .k = bf16,
        .v = bf16,
        .out = {.data = out},
    };
    const attnkit_status status = attnkit_attention(&args, NULL, message);
    if (status == ATTNKIT_UNSUPPORTED && strstr(message, "(part products)"))
        return 0;
    printf("status %d: %s\n", (int)status, message);
    return 1;
}
