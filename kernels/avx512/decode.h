/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the decode tile hand to each other: a panel of query rows, its scores and its
 * weights. decode.c has the order of things.
 */
#ifndef ATTNKIT_AVX512_DECODE_H
#define ATTNKIT_AVX512_DECODE_H

#include "kernels/avx512/avx512.h"
#include "kernels/vectors/decode/panel.h"

enum {
    MAX_COLUMNS = 4, /* vectors of value columns in a tile of weighted V */
    PAGE = 4096,     /* bytes whose place in memory is found at once */
};

/* Rows to be asked for in the course of other work. By value and without a case for none, so that
 * it stays in registers: it goes on every few dozen cycles. */
struct ahead {
    const char *const *row, *const *end; /* those not begun */
    const char *at, *row_end;            /* what is next of the one that is */
    const char *stop;                    /* where it ends, or a page in it */
    bool pages;                          /* are asked for, too */
    bool apart;                          /* rows of 16-bit types, of much memory */
    int64_t bytes;                       /* of each */
    int64_t due, pace; /* 256ths of lines: not asked for yet, and what each time adds to them */
};

/* The first `count` of `row`, which are as `rows` says, in so many times, not 0. Rows that follow
 * each other count as one. */
static inline struct ahead ask_for(const struct panel *panel, const struct key_rows *rows,
                                   const char *const *row, int count, int64_t times)
{
    const int64_t line = LINE * (int64_t)sizeof(float), bytes = bytes_of(rows->type, rows->dim);
    const bool half = rows->type == TYPE_F16 || rows->type == TYPE_BF16;
    struct ahead ahead = {.row = row, .end = row + count, .bytes = bytes};
    if (count == 0)
        return ahead;
    /* Bytes have more work for the CPU, and lose by it. */
    ahead.pages = panel->block->large && (half || rows->type == TYPE_F32);
    ahead.apart = panel->block->large && half && count > 1 && row[1] != row[0] + bytes;
    if (row[count - 1] == row[0] + (count - 1) * bytes) {
        ahead.end = row + 1;
        ahead.bytes = count * bytes;
    }
    const int64_t lines = (ahead.end - row) * ((ahead.bytes + line - 1) / line);
    ahead.pace = (256 * lines + times - 1) / times;
    return ahead;
}

/* The next lines are asked for into the second cache, or the first; they need not exist: a prefetch
 * never faults. As evenly as can be, because those under way keep loads from the second cache
 * waiting. What a row or a page of much memory begins with is asked for two pages before, too:
 * where a page is takes longer to find than a line to come, the more so in a virtual machine.
 * Inlined always, because gcc drops calls of a function that does nothing but prefetch. */
static inline __attribute__((always_inline)) void prefetch_ahead(struct ahead *ahead,
                                                                 const bool to_first)
{
    for (ahead->due += ahead->pace; ahead->due > 0; ahead->due -= 256) {
        if (__builtin_expect(ahead->at >= ahead->stop, false)) {
            if (ahead->at >= ahead->row_end) {
                if (ahead->row == ahead->end) {
                    ahead->due = ahead->pace = 0;
                    return;
                }
                ahead->at = *ahead->row++;
                ahead->row_end = ahead->at + ahead->bytes;
            }
            ahead->stop = ahead->row_end;
            if (ahead->pages) {
                const char *const page_end = ahead->at + PAGE - (uintptr_t)ahead->at % PAGE;
                ahead->stop = page_end < ahead->row_end ? page_end : ahead->row_end;
                _mm_prefetch(ahead->at + 2 * PAGE, _MM_HINT_T1);
            }
        }
        /* The hint is part of the instruction, so clang wants a literal. */
        if (to_first)
            _mm_prefetch(ahead->at, _MM_HINT_T0);
        else
            _mm_prefetch(ahead->at, _MM_HINT_T1);
        ahead->at += LINE * sizeof(float);
    }
}

/* Whether a kernel for this type has a variant for what is better asked for into the first cache:
 * rows of 16-bit types that are apart take 0.9 of the time so, all others longer. */
static inline bool gains_by_first(const enum type type, const struct ahead *ahead)
{
    return (type == TYPE_F16 || type == TYPE_BF16) && ahead->apart;
}

/* The scores s[r][key], not yet scaled, for whole vectors of keys up to panel->most, and what of V
 * is still to be asked for. */
struct scores {
    _Alignas(64) float s[PANEL_ROWS][KEY_BLOCK];
    struct ahead v;
    float scale_log2;
};

/* The rows of V that the scores ask for, in so many times, while they go through K, and softmax
 * once for each vector of keys. */
static inline struct ahead v_ahead(const struct panel *panel, int64_t times)
{
    const struct key_rows *const v = &panel->block->v;
    return ask_for(panel, v, panel->block->with_k, panel->far ? panel->most : 0,
                   times + (panel->most + VECTOR - 1) / VECTOR);
}

void attnkit_avx512_decode_tiled_k(const struct panel *panel, struct scores *scores);
void attnkit_avx512_decode_k(const struct panel *panel, struct scores *scores);
void attnkit_avx512_decode_v(const struct panel *panel, const struct weights *weights);

#endif
