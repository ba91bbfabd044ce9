/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for every group of options of a call of attention, so that a test can set any field.
 */
#ifndef ATTNKIT_TEST_GROUPS_H
#define ATTNKIT_TEST_GROUPS_H

#include <stdint.h>

#include "attnkit.h"

struct groups {
    attnkit_kv_storage storage;
    attnkit_pages pages;
    attnkit_visibility visibility;
    attnkit_window window;
    attnkit_score_mods scores;
    attnkit_states states;
    attnkit_weights_out weights;
};

/* Makes all groups empty. Empty groups ask for no option, except the window: see groups_hang. */
void groups_init(struct groups *g);

/* Makes args point to the groups. The call gets the window only if g->visibility.window is not
 * NULL, because with an empty window a row sees only its own key. A test that copies args and
 * groups must call this function for the copies. */
void groups_hang(attnkit_attention_args *args, struct groups *g);

/* Sets the window, and makes args point to all groups, as groups_hang does. */
void groups_set_window(attnkit_attention_args *args, struct groups *g, int64_t left, int64_t right,
                       int64_t keep_first);

/* Returns copies of the groups of a call. A group that the call lacks is empty. A NULL window stays
 * NULL. */
struct groups groups_of(const attnkit_attention_args *args);

/* Returns element i of an array of 32-bit or 64-bit integers. */
int64_t ints_at(attnkit_ints ints, int64_t i);

/* Sets ATTNKIT_STRIDED in every tensor of the call. */
void groups_set_strided(attnkit_attention_args *args, struct groups *g);

#endif
