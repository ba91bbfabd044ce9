/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of keys of a block. One set has the keys of a block that a row sees, another set has the
 * keys that at least one row sees. Only the keys of the second set are read from K and V, with two
 * exceptions: a tile of K is read as a whole, and weights taken before the bias or before the
 * softcap need the scores of all keys.
 */
#ifndef ATTNKIT_KEY_SET_H
#define ATTNKIT_KEY_SET_H

#include "kernels/kernels.h"

/* Keys of a block. Bit i of the two words stands for key i. */
struct key_set {
    uint64_t word[KEY_BLOCK / 64];
};

static inline bool is_empty(struct key_set s)
{
    return !(s.word[0] | s.word[1]);
}

static inline bool is_equal(struct key_set s, struct key_set t)
{
    return s.word[0] == t.word[0] && s.word[1] == t.word[1];
}

static inline struct key_set union_of(struct key_set s, struct key_set t)
{
    return (struct key_set){{s.word[0] | t.word[0], s.word[1] | t.word[1]}};
}

static inline struct key_set intersection_of(struct key_set s, struct key_set t)
{
    return (struct key_set){{s.word[0] & t.word[0], s.word[1] & t.word[1]}};
}

/* Returns the set whose words a function has just stored one by one. gcc would load both words as a
 * vector, and such a load waits until both stores have reached the cache. */
static inline struct key_set just_stored(const uint64_t words[KEY_BLOCK / 64])
{
    uint64_t low = words[0], high = words[1];
    __asm__("" : "+r"(low), "+r"(high));
    return (struct key_set){{low, high}};
}

static inline bool has_key(struct key_set s, int key)
{
    return s.word[key / 64] >> key % 64 & 1;
}

/* first_of returns the first key of a set, end_of the key after its last key. The set must not be
 * empty. */
static inline int first_of(struct key_set s)
{
    return s.word[0] ? __builtin_ctzll(s.word[0]) : 64 + __builtin_ctzll(s.word[1]);
}

static inline int end_of(struct key_set s)
{
    return s.word[1] ? 128 - __builtin_clzll(s.word[1]) : 64 - __builtin_clzll(s.word[0]);
}

/* Returns the keys from `first` on, as a set in which key `first` is key 0. 0 <= first <
 * KEY_BLOCK. */
static inline struct key_set counted_from(struct key_set s, int first)
{
    if (first >= 64)
        return (struct key_set){{s.word[1] >> (first - 64), 0}};
    if (first == 0)
        return s;
    return (struct key_set){{s.word[0] >> first | s.word[1] << (64 - first), s.word[1] >> first}};
}

/* Returns a word in which bits first .. end - 1 are set, as far as they are within the word. */
static inline uint64_t bit_range(int first, int end)
{
    if (first >= 64 || end <= 0 || first >= end)
        return 0;
    const uint64_t from_first = first > 0 ? UINT64_MAX << first : UINT64_MAX;
    return end < 64 ? from_first & ~(UINT64_MAX << end) : from_first;
}

/* Returns the set of keys first .. end - 1, which is empty if end <= first. */
static inline struct key_set key_set_of(int first, int end)
{
    return (struct key_set){{bit_range(first, end), bit_range(first - 64, end - 64)}};
}

/* Returns whether no key is missing between the first key and the last. */
static inline bool is_in_a_row(struct key_set s)
{
    if (is_empty(s))
        return true;
    return is_equal(s, key_set_of(first_of(s), end_of(s)));
}

/* Returns the number of keys. If the keys follow one another, as in most sets, the number is
 * computed without counting bits, because not every CPU has an instruction to count bits. */
static inline int count_of(struct key_set s)
{
    if (is_empty(s))
        return 0;
    if (is_in_a_row(s))
        return end_of(s) - first_of(s);
    return __builtin_popcountll(s.word[0]) + __builtin_popcountll(s.word[1]);
}

#endif
