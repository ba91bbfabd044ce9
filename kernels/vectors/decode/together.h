/* SPDX-License-Identifier: Apache-2.0
 *
 * One block of keys of several heads whose rows lie side by side, as in token-major caches. The
 * heads take turns: each head computes the scores of 16 to 128 keys, then each head computes the
 * scores of the next keys, and so on. After the softmaxes of all heads, the heads add up V in
 * turns. So K and V are read nearly in the order of memory. On an Emerald Rapids with AVX-512,
 * decoding 16384 keys takes 0.86 (f32) or 0.93 (f16, bf16) of the time that it takes with one head
 * after the other. With AVX-512 on a Zen 4, f32 takes 0.87 of this time. With AVX2 on a Zen 3,
 * decoding from 2 KV heads takes 0.6 (f32) or 0.6 to 0.8 (f16) of this time. bench/README.md has
 * more figures.
 *
 * All sums are in the order of rows.h, so the bits are the same. The decode.c of an instruction set
 * includes rows.h, defines turn_keys, weigh_turn, ASKS_IN_SOFTMAX and ask_in_softmax, and then
 * includes this file. turn_keys returns the number of keys of a turn, which divides KEY_BLOCK.
 * ask_in_softmax has an effect only if ASKS_IN_SOFTMAX is 1.
 */
#ifndef ATTNKIT_DECODE_TOGETHER_H
#define ATTNKIT_DECODE_TOGETHER_H

#include "kernels/vectors/decode/rows.h"

/* Numbers of a panel that stay between its turns. The sums of V follow this struct. */
struct between {
    struct scores scores;
    struct weights weights;
};

/* Returns the numbers of the panel of a head that begins with row `first`. */
static struct between *between_of(const struct heads_block *b, int head, int first)
{
    float *const own = b->scratch + head * together_floats(b->rows, b->dim) +
                       first / TURN_ROWS * together_floats(TURN_ROWS, b->dim);
    _Static_assert((int)TURN_ROWS == (int)PANEL_ROWS, "the scratch has a piece for each panel");
    _Static_assert(sizeof(struct between) <= (TURN_ROWS * 2 * KEY_BLOCK + 64) * sizeof(float),
                   "together_floats is too small");
    return (struct between *)(void *)own;
}

/* Tokens to prefetch while all heads take one turn. */
struct tokens {
    struct side_rows rows;
    int count; /* at most KEY_BLOCK */
};

/* Sets up the panel of a head that begins with query row `first`. `row` has the addresses of the
 * rows of K or V, or is NULL for the softmax. The panel points to `block`, and `block` points to
 * `row`. */
static void begin_head(const struct heads_block *b, int head, int first, const char *const *row,
                       struct decode_block *block, struct panel *panel)
{
    static const int32_t all[] = {KEY_BLOCK, KEY_BLOCK, KEY_BLOCK, KEY_BLOCK, KEY_BLOCK, KEY_BLOCK,
                                  KEY_BLOCK, KEY_BLOCK, KEY_BLOCK, KEY_BLOCK, KEY_BLOCK, KEY_BLOCK};
    _Static_assert(sizeof all == TOGETHER_ROWS * sizeof *all, "`all` has a number for each row");
    *block = (struct decode_block){.q = b->q[head], .visible = all, .st = b->st[head]};
    block->k = block->v = (struct key_rows){.type = b->type, .dim = b->dim, .row = row};
    begin_panel(panel, block, first, b->rows - first < PANEL_ROWS ? b->rows - first : PANEL_ROWS);
}

/* Prefetches a cache line at least every PAGE bytes of the rows of the tokens, to have nearly all
 * of their pages of memory in the TLB. The prefetches directly follow each other (prefetch_pages in
 * kernels/attention/block.c says why). The function is always inlined, because gcc drops calls of a
 * function that does nothing but prefetch. */
static inline __attribute__((always_inline)) void touch_pages(const struct heads_block *b,
                                                              const struct tokens *tokens)
{
    enum { PAGE = 4096 }; /* bytes, on nearly all machines */
    const ptrdiff_t stride = tokens->rows.stride, apart = stride < 0 ? -stride : stride;
    const int step = apart > 0 && apart < PAGE ? (int)(PAGE / apart) : 1;
    const int64_t bytes = b->heads * bytes_of(b->type, b->dim);
    for (int i = 0; i < tokens->count; i += step)
        for (int64_t at = 0; at < bytes; at += PAGE)
            __builtin_prefetch(tokens->rows.first + i * stride + at, 0, 2);
}

/* Sets the pieces of memory that a head prefetches: its share of the tokens, each with the rows of
 * all heads. Without tokens, the turn keeps its 0 pieces. */
static void share_tokens(const struct heads_block *b, const struct tokens *tokens, int head,
                         const char **ahead, struct turn *turn)
{
    turn->ahead = ahead;
    if (tokens->count == 0)
        return;
    const int from = head * tokens->count / b->heads, to = (head + 1) * tokens->count / b->heads;
    const ptrdiff_t stride = tokens->rows.stride;
    KERNEL(fill_pointers)(tokens->rows.first + from * stride, stride, to - from, ahead);
    turn->pieces = to - from;
    turn->piece_bytes = b->heads * bytes_of(b->type, b->dim);
}

/* A head takes a turn at the keys from `first` on. If is_k, `rows` are its rows of K in this turn,
 * and the head computes scores. Otherwise `rows` are rows of V, and the head adds up weighted V.
 * Meanwhile the first panel of the head prefetches the head's share of the tokens `next`. The other
 * panels prefetch nothing. */
static __attribute__((noinline)) void take_turn(const struct heads_block *b, int head,
                                                const struct side_rows *rows, int first,
                                                const struct tokens *next, bool is_k)
{
    const char *row[KEY_BLOCK], *ahead[KEY_BLOCK];
    struct turn turn = {first, first + turn_keys(b), NULL, NULL, 0, 0};
    struct decode_block block;
    struct panel panel;
    KERNEL(fill_pointers)(rows->first, rows->stride, turn.end - first, row + first);
    share_tokens(b, next, head, ahead, &turn);
    for (int i = 0; i < b->rows; i += PANEL_ROWS, turn.pieces = 0) {
        struct between *const between = between_of(b, head, i);
        begin_head(b, head, i, row, &block, &panel);
        turn.sums = (float *)(void *)(between + 1);
        panel.fewest = panel.most = turn.end;
        panel.turn = &turn;
        if (is_k)
            KERNEL(decode_k)(&panel, &between->scores);
        else
            weigh_turn(&panel, &between->weights);
    }
}

/* Each head takes a turn at the keys from `first` on. `rows` are the rows of K or of V of the
 * block. */
static __attribute__((noinline)) void take_turns(const struct heads_block *b,
                                                 const struct side_rows *rows, int first,
                                                 const struct tokens *next, bool is_k)
{
    touch_pages(b, next);
    for (int head = 0; head < b->heads; head++) {
        const int64_t at = head * bytes_of(b->type, b->dim);
        const struct side_rows own = {rows->first + first * rows->stride + at, rows->stride};
        take_turn(b, head, &own, first, next, is_k);
    }
}

/* Returns the tokens to prefetch during the turn at key `first`: the tokens of the next turn, or
 * `then` if this turn is the last turn over `rows`. */
static struct tokens tokens_after(const struct side_rows *rows, int first, int keys,
                                  struct tokens then)
{
    if (first + keys == KEY_BLOCK)
        return then;
    return (struct tokens){{rows->first + (first + keys) * rows->stride, rows->stride}, keys};
}

/* Returns the tokens to prefetch during the softmaxes of all heads: the first tokens of the second
 * turn of V, one for each head. The first turn of V prefetches these tokens once more. Leaving them
 * out there would take more time. */
static struct tokens tokens_in_softmax(const struct heads_block *b)
{
    const int keys = turn_keys(b), left = KEY_BLOCK - keys;
    if (left == 0)
        return (struct tokens){0};
    return (struct tokens){{b->v.first + keys * b->v.stride, b->v.stride},
                           b->heads < left ? b->heads : left};
}

/* Computes the softmax of the panel of a head that begins with row `first`. The first panel of the
 * head prefetches the head's share of the tokens. */
static void softmax_of_panel(const struct heads_block *b, int head, int first, float scale_log2)
{
    struct between *const between = between_of(b, head, first);
    const char *ahead[KEY_BLOCK];
    struct turn turn = {.ahead = ahead};
    struct decode_block block;
    struct panel panel;
    begin_head(b, head, first, NULL, &block, &panel);
    between->scores.scale_log2 = scale_log2;
    if (ASKS_IN_SOFTMAX && first == 0) {
        const struct tokens tokens = tokens_in_softmax(b);
        share_tokens(b, &tokens, head, ahead, &turn);
    }
    ask_in_softmax(&between->scores, &turn);
    softmax(&panel, &between->scores, &between->weights);
}

static void softmax_of_heads(const struct heads_block *b, float scale_log2)
{
    for (int head = 0; head < b->heads; head++)
        for (int first = 0; first < b->rows; first += PANEL_ROWS)
            softmax_of_panel(b, head, first, scale_log2);
}

/* The heads go through K, compute their softmaxes, and go through V. There is only one call of
 * take_turns, because gcc would make a copy of the function for each call. */
void KERNEL(decode_together)(const struct heads_block *b, float scale_log2)
{
    const int keys = turn_keys(b), next_keys = b->next_keys < keys ? b->next_keys : keys;
    for (int first = 0; first < 2 * KEY_BLOCK; first += keys) {
        const bool is_k = first < KEY_BLOCK;
        const struct side_rows *const rows = is_k ? &b->k : &b->v;
        const struct tokens then =
            is_k ? (struct tokens){b->v, keys} : (struct tokens){b->next_k, next_keys};
        const int own = first % KEY_BLOCK;
        const struct tokens next = tokens_after(rows, own, keys, then);
        if (first == KEY_BLOCK)
            softmax_of_heads(b, scale_log2);
        take_turns(b, rows, own, &next, is_k);
    }
}

#endif
