/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations of functions of an instruction set: functions that its table lists, and functions
 * that one of its files defines and another file calls. kernels.h has the contract of each function
 * of the table. The header of each instruction set except scalar defines KERNEL and KERNEL_TABLE,
 * and then includes this file. KERNEL(exp2) is, for example, attnkit_avx2_exp2, and KERNEL_TABLE is
 * the name of the table. A file that gets a function from a shared header has the full name of the
 * function in a comment above the #include, so that a search for attnkit_avx2_exp2 finds the file.
 */
#ifndef ATTNKIT_ENTRIES_H
#define ATTNKIT_ENTRIES_H

#include "kernels/kernels.h"

void KERNEL(exp2)(const float *x, float *y, size_t n);
void KERNEL(widen)(enum type type, const void *row, const float *scales, int64_t group, int64_t n,
                   float *out);
void KERNEL(widen_blocks)(enum type type, const char *row, int64_t n, float *out);
void KERNEL(unpack)(enum type type, const struct rows *rows, int count, void *to);
void KERNEL(narrow_blocks)(enum type type, const float *x, int64_t n, char *row);
void KERNEL(widen_tile)(enum type type, const void *tile, const float *scales, int64_t group,
                        int64_t n, float *out);
void KERNEL(narrow)(enum type type, const float *x, int64_t n, int64_t group, void *row,
                    float *scales);
void KERNEL(pack_q)(const float *const *rows, int lanes, int64_t head_dim, float *q_t);
void KERNEL(scores)(const float *q_t, int lanes, const struct rows *k, int keys, float *s,
                    const struct rows *ahead);
void KERNEL(softmax)(float *s, int lanes, int keys, const int32_t *visible, float scale_log2,
                     const struct state *st, float *rescale);
void KERNEL(adjust)(const struct adjust *how, const float *bias, size_t n, float *s);
void KERNEL(weighted_v)(const float *p, int lanes, const float *rescale, const struct rows *v,
                        int keys, float *o, const struct rows *ahead);
void KERNEL(begin_total)(const struct total *total, const struct state *chunk, int lanes,
                         int64_t value_dim);
void KERNEL(fold)(const struct total *total, const struct state *chunk, int lanes,
                  int64_t value_dim);
uint64_t KERNEL(finish)(const struct state *st, int lanes, int64_t value_dim, int rows,
                        float *const *out, float *const *lse);
uint64_t KERNEL(finish_total)(const struct total *total, const float *chunk_out, int lanes,
                              int64_t value_dim, int rows, float *const *out, float *const *lse);
void KERNEL(decode)(const struct decode_block *block, int rows, float scale_log2);
uint64_t KERNEL(decode_finish)(const struct state *st, int rows, int64_t value_dim,
                               float *const *out, float *const *lse);
void KERNEL(fold_row)(double *o, const float *chunk, double a, double b, int64_t n);
bool KERNEL(quotient_row)(const double *o, double divisor, int64_t n, float *out);
void KERNEL(head_scores)(const float *q_t, const float *k_t, int rows, int keys, int64_t head_dim,
                         float *s);
uint64_t KERNEL(head_out)(const struct head_weights *weights, const struct rows *v, int rows,
                          float *const *out);
void KERNEL(rotate)(float *x, const float *cos, const float *sin, int64_t pairs, bool interleaved);
void KERNEL(nonzero)(const unsigned char *bytes, uint64_t words[KEY_BLOCK / 64]);
void KERNEL(same_ids)(const int32_t *ids, int32_t own, uint64_t words[KEY_BLOCK / 64]);
bool KERNEL(unmasked)(enum type type, const void *numbers, uint64_t words[KEY_BLOCK / 64]);
void KERNEL(bias_line)(const struct bias_line *what, float *line);
void KERNEL(keep_line)(const struct keep_line *what, float *line);
void KERNEL(fill_pointers)(const void *first, ptrdiff_t bytes, int count, void *pointers);
void KERNEL(compact_line)(const uint64_t keys[KEY_BLOCK / 64], float *line);
void KERNEL(spread_line)(const uint64_t keys[KEY_BLOCK / 64], const float *numbers,
                         const uint64_t own[KEY_BLOCK / 64], float none, float *line);
void KERNEL(mean)(const struct rows *rows, int64_t count, float *mean);
void KERNEL(multiply)(const float *factors, size_t n, float *s);
void KERNEL(widen_matrix)(enum type type, const void *tile, int64_t n, float *out);
void KERNEL(product)(const struct product *p);
void KERNEL(few_product)(const struct few_product *p);

/* Makes every NaN in the results 0x7fc00000. Returns a bit for each row with a value that is not
 * finite. Called only if some value may not be finite. */
__attribute__((cold)) uint64_t KERNEL(settle)(int rows, int64_t n, float *const *out);

extern const struct kernels KERNEL_TABLE;

#endif
