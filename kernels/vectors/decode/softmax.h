/* SPDX-License-Identifier: Apache-2.0
 *
 * The softmax of a decode panel for AVX2 and AVX-512. The lanes of a vector of scores are keys. The
 * sums of the four rows are in the four lanes of an xmm, to which the weights are added key by key.
 * The decode.c of each of the two instruction sets includes this file.
 */
#ifndef ATTNKIT_DECODE_SOFTMAX_H
#define ATTNKIT_DECODE_SOFTMAX_H

#include "kernels/vectors/decode/panel.h"

/* Replaces each score by t = score * scale_log2, or by -inf if row r does not see the key. max[r]
 * becomes the maximum of t, lane by lane, without NaN. */
static inline __attribute__((always_inline)) void scale_scores(const struct panel *panel,
                                                               struct scores *scores,
                                                               floats max[PANEL_ROWS],
                                                               const int rows)
{
    const float scale_log2 = scores->scale_log2;
    for (int r = 0; r < PANEL_ROWS; r++)
        max[r] = minus_infinity();
    for (int key = 0; key < panel->most; key += VECTOR)
        for (int r = 0; r < rows; r++) {
            const floats t = scale_first(scores->s[r] + key, scale_log2, panel->visible[r] - key);
            store_aligned(scores->s[r] + key, t);
            max[r] = max_without_nan(t, max[r]);
        }
}

/* Turns scores into weights, and updates row_max and row_sum of the state. */
static inline __attribute__((always_inline)) void softmax_rows(const struct panel *panel,
                                                               struct scores *scores,
                                                               struct weights *weights,
                                                               const int rows)
{
    floats max[PANEL_ROWS];
    scale_scores(panel, scores, max, rows);
    float *const row_max = panel->block->st->row_max + panel->first;
    float *const row_sum = panel->block->st->row_sum + panel->first;
    const __m128 old_max = _mm_loadu_ps(row_max);
    const __m128 new_max = _mm_max_ps(_mm_ceil_ps(max_of_each(max)), old_max);
    const floats subtrahend = finite_max(from_four(new_max));
    float subtract[VECTOR];
    store_floats(subtract, subtrahend);
    __m128 sum = _mm_setzero_ps();
    struct ahead ahead = ahead_in_softmax(scores);
    for (int key = 0; key < panel->most; key += VECTOR) {
        floats p[PANEL_ROWS];
        prefetch_in_softmax(&ahead);
        for (int r = 0; r < rows; r++)
            p[r] = load_aligned(scores->s[r] + key) - broadcast_from(subtract + r);
        exp2_vectors(p, rows);
        for (int r = rows; r < PANEL_ROWS; r++)
            p[r] = broadcast(0.0f);
        sum = store_weights(p, weights->p + key, sum);
    }
    const __m128 rescale = first_four(exp2_v(from_four(old_max) - subtrahend));
    const __m128 old_sum = _mm_loadu_ps(row_sum);
    _mm_storeu_ps(row_sum, _mm_fmadd_ps(old_sum, rescale, sum));
    _mm_storeu_ps(row_max, new_max);
    _mm_store_ps(weights->rescale, rescale);
}

#endif
