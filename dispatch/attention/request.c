/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the structs of an attention call. The size of a struct says its version. If the size is the
 * size in this version, reading the struct costs one comparison.
 */
#include "dispatch/attention/request.h"

#include "dispatch/cache/cache.h"
#include "dispatch/common/versioned.h"

static const struct version core_version = VERSION_OF(attnkit_attention_args, weights);
static const struct version storage_version = VERSION_OF(attnkit_kv_storage, cu_seqlens_kv);
static const struct version visibility_version = VERSION_OF(attnkit_visibility, mask_bits_kind);
static const struct version window_version = VERSION_OF(attnkit_window, keep_first);
static const struct version scores_version = VERSION_OF(attnkit_score_mods, dropout_seeds);
static const struct version states_version = VERSION_OF(attnkit_states, state_out);
static const struct version weights_version = VERSION_OF(attnkit_weights_out, flags);
static const struct version data_version = VERSION_OF(attnkit_attention_data, groups);
static const struct version group_data_version = VERSION_OF(attnkit_attention_group_data, weights);

/* Reads a group of options. Sets *group to `none` if the caller has not given the group. */
static attnkit_status read_group(const struct version *v, const void *theirs, void *copy,
                                 const void *none, const void **group, char *message)
{
    *group = none;
    return theirs ? read_struct(v, theirs, copy, group, message) : ATTNKIT_OK;
}

static attnkit_status read_storage(const attnkit_kv_storage *theirs, struct request *r,
                                   char *message)
{
    static const attnkit_kv_storage none;
    const void *read;
    const attnkit_status status =
        read_group(&storage_version, theirs, &r->copy.storage, &none, &read, message);
    r->storage = read;
    if (status != ATTNKIT_OK)
        return status;
    return attnkit_read_pages(r->storage->pages, &r->copy.pages, &r->pages, message);
}

static attnkit_status read_visibility(const attnkit_visibility *theirs, struct request *r,
                                      char *message)
{
    static const attnkit_visibility none;
    const void *read;
    attnkit_status status =
        read_group(&visibility_version, theirs, &r->copy.visibility, &none, &read, message);
    r->visibility = read;
    if (status == ATTNKIT_OK)
        status = read_group(&window_version, r->visibility->window, &r->copy.window, NULL, &read,
                            message);
    r->window = read;
    return status;
}

static attnkit_status read_others(const attnkit_attention_args *core, struct request *r,
                                  char *message)
{
    static const attnkit_score_mods no_scores;
    static const attnkit_states no_states;
    static const attnkit_weights_out no_weights;
    const void *read;
    attnkit_status status =
        read_group(&scores_version, core->scores, &r->copy.scores, &no_scores, &read, message);
    r->scores = read;
    if (status == ATTNKIT_OK)
        status =
            read_group(&states_version, core->states, &r->copy.states, &no_states, &read, message);
    r->states = read;
    if (status == ATTNKIT_OK)
        status = read_group(&weights_version, core->weights, &r->copy.weights, &no_weights, &read,
                            message);
    r->weights = read;
    return status;
}

attnkit_status attnkit_read_request(const attnkit_attention_args *args, struct request *r,
                                    char *message)
{
    const void *read;
    if (!args)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "args is NULL");
    attnkit_status status = read_struct(&core_version, args, &r->copy.core, &read, message);
    if (status != ATTNKIT_OK)
        return status;
    r->core = read;
    status = read_storage(r->core->storage, r, message);
    if (status == ATTNKIT_OK)
        status = read_visibility(r->core->visibility, r, message);
    return status == ATTNKIT_OK ? read_others(r->core, r, message) : status;
}

attnkit_status attnkit_read_run_request(const attnkit_attention_data *data, struct run_request *r,
                                        char *message)
{
    static const attnkit_attention_group_data none;
    const void *read;
    if (!data)
        return refuse(message, ATTNKIT_BAD_ARGUMENT, "data is NULL");
    attnkit_status status = read_struct(&data_version, data, &r->copy.core, &read, message);
    if (status != ATTNKIT_OK)
        return status;
    r->core = read;
    status =
        read_group(&group_data_version, r->core->groups, &r->copy.groups, &none, &read, message);
    r->groups = read;
    return status;
}
