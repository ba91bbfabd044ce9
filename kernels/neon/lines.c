/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines have one number for each key of a block. bias_line makes a line that is added to scores.
 * mask.c of kernels/attention calls bias_line for a query row and a block. compact_line reduces a
 * line to some of the keys, and spread_line undoes this. `mean` computes the mean of several rows,
 * and fill_pointers makes pointers to rows. The number of instructions limits the speed: a vector
 * of a bias with a slope takes a dozen instructions.
 */
#include "kernels/neon/neon.h"

/* Returns the bits of VECTOR keys from `key` on. */
static inline uint32_t bits_at(const uint64_t words[KEY_BLOCK / 64], int key)
{
    return words[key / 64] >> key % 64 & 0xf;
}

/* Returns a vector: all bits of lane i are set if bit i of `bits` is set, else lane i is 0. */
static inline uint32x4_t lanes_of(uint32_t bits)
{
    static const uint32_t own_bits[VECTOR] = {1, 2, 4, 8};
    return vtstq_u32(vdupq_n_u32(bits), vld1q_u32(own_bits));
}

/* Returns a mask that is set where the bit of a key is set, for VECTOR keys from `key` on. */
static inline lane_mask mask_of_keys(const uint64_t words[KEY_BLOCK / 64], int key)
{
    return lanes_of(bits_at(words, key));
}

/* Returns VECTOR consecutive integers from `first` on as binary32. */
static inline floats numbers_from(int first)
{
    static const int32_t order[VECTOR] = {0, 1, 2, 3};
    return vcvtq_f32_s32(vaddq_s32(vdupq_n_s32(first), vld1q_s32(order)));
}

/* --- Some keys only --------------------------------------------------------------------------- */

/* Returns a vector: lane i is the lane of x whose number is in byte i of `places`. */
static inline float32x4_t permute(float32x4_t x, uint32_t places)
{
    const uint16x8_t halves = vmovl_u8(vcreate_u8(places));
    const uint32x4_t place = vmovl_u16(vget_low_u16(halves));
    /* The bytes of a float are at four times its place, plus 0 to 3. */
    const uint32x4_t bytes = vaddq_u32(vmulq_n_u32(place, 0x04040404), vdupq_n_u32(0x03020100));
    return vreinterpretq_f32_u8(vqtbl1q_u8(vreinterpretq_u8_f32(x), vreinterpretq_u8_u32(bytes)));
}

void attnkit_neon_compact_line(const uint64_t keys[KEY_BLOCK / 64], float *line)
{
    /* For each subset of the 4 keys of a vector: the lanes of the keys in the subset, a byte for
     * each lane. */
    static const uint32_t places[1 << VECTOR] = {0x0,   0x0,     0x1,     0x100,    0x2,   0x200,
                                                 0x201, 0x20100, 0x3,     0x300,    0x301, 0x30100,
                                                 0x302, 0x30200, 0x30201, 0x3020100};
    float *to = line; /* a store overwrites only numbers that have been read */
    for (int key = 0; key < KEY_BLOCK; key += VECTOR) {
        const uint32_t bits = bits_at(keys, key);
        vst1q_f32(to, permute(vld1q_f32(line + key), places[bits]));
        to += __builtin_popcount(bits);
    }
}

void attnkit_neon_spread_line(const uint64_t keys[KEY_BLOCK / 64], const float *numbers,
                              const uint64_t own[KEY_BLOCK / 64], float none, float *line)
{
    for (int key = 0; key < KEY_BLOCK; key += VECTOR) {
        const uint32_t bits = bits_at(keys, key);
        /* At most `key` numbers have been used before, so a whole vector lies within the KEY_BLOCK
         * floats of `numbers`. */
        float32x4_t x = vld1q_f32(numbers);
        if (bits != 0xf) {
            /* The bits become bytes, and each byte then becomes the count of set bits before it. */
            const uint32_t each = bits * 0x204081 & 0x1010101;
            x = permute(x, each * 0x1010100);
        }
        vst1q_f32(line + key, vbslq_f32(lanes_of(bits_at(own, key)), x, vdupq_n_f32(none)));
        numbers += __builtin_popcount(bits);
    }
}

/* --- Rows ------------------------------------------------------------------------------------- */

void attnkit_neon_fill_pointers(const void *first, ptrdiff_t bytes, int count, void *pointers)
{
    const uint64_t at = (uintptr_t)first;
    const uint64_t two[] = {at, at + (uint64_t)bytes};
    const uint64x2_t step = vdupq_n_u64(2 * (uint64_t)bytes);
    uint64x2_t x = vld1q_u64(two);
    uint8_t *to = pointers;
    for (; count >= 2; count -= 2, to += 2 * sizeof(void *)) {
        vst1q_u8(to, vreinterpretq_u8_u64(x));
        x = vaddq_u64(x, step);
    }
    if (count)
        vst1_u8(to, vreinterpret_u8_u64(vget_low_u64(x)));
}

/* Defines attnkit_neon_bias_line and attnkit_neon_mean. */
#include "kernels/vectors/lines.h"
