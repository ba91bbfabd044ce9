/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the library calls of `attnkit layer`. The weights are packed once, and the layer runs
 * --repeat times.
 */
#include "tools/cli/layer/layer.h"

#include <stdlib.h>

enum { ALIGNMENT = 64 }; /* bytes; alignment of packed weights */

static bool make_room(struct layer *layer)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    if (attnkit_layer_packed_size(&layer->weights, &layer->packed_bytes, message) != ATTNKIT_OK)
        return complain("%s", message);
    const size_t whole = (layer->packed_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    layer->packed = aligned_alloc(ALIGNMENT, whole);
    return layer->packed ||
           complain("no memory for packed weights of %zu bytes", layer->packed_bytes);
}

/* Packs the weights and frees the tensors. */
bool layer_pack(struct layer *layer)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    if (!make_room(layer))
        return false;
    const double start = run_now();
    if (attnkit_layer_pack(&layer->weights, layer->packed, layer->packed_bytes, &layer->run.exec,
                           message) != ATTNKIT_OK)
        return complain("%s", message);
    layer->pack_seconds = run_now() - start;
    for (int r = 0; r < ROLES; r++)
        weights_free(&layer->tensors[r]);
    layer->args.packed = layer->packed;
    layer->args.packed_size = layer->packed_bytes;
    return true;
}

/* Describes the attention of the layer. The sizes of this attention are 0, because they follow from
 * the weights and the inputs of the layer. */
static void describe_attention(struct layer *layer)
{
    attnkit_attention_args *const a = &layer->attention;
    *a = layer->run.args;
    a->batch = a->q_heads = a->kv_heads = a->q_len = a->kv_len = 0;
    a->head_dim = a->value_dim = 0;
    a->out.type = ATTNKIT_F32;
    layer->args.attention = a;
}

static attnkit_status workspace(const void *args, const attnkit_exec *exec, size_t *bytes,
                                char *message)
{
    return attnkit_layer_workspace(args, exec, bytes, message);
}

static attnkit_status run(const void *args, const attnkit_exec *exec, char *message)
{
    return attnkit_layer(args, exec, message);
}

bool layer_run(struct layer *layer)
{
    const struct run_call call = {&layer->args, workspace, run};
    describe_attention(layer);
    return run_execute(&layer->run, &call);
}
