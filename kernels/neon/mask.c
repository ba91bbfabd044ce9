/* SPDX-License-Identifier: Apache-2.0
 *
 * Masks as bits, one bit for each key of a block. `nonzero` sets the bit if the byte of the key is
 * not 0. same_ids sets the bit if the id of the key is the id of the row. `unmasked` sets the bit
 * if the bias does not mask the key. mask.c of kernels/attention calls these functions for a query
 * row and a block of keys, if the call has a mask of bytes, segment ids or a bias. cells.c calls
 * same_ids, too, to find keys without a cell. Loads limit the speed.
 */
#include "kernels/neon/neon.h"

/* Returns a bit for each of 64 bytes. Each byte is 0 or all ones. Each byte keeps only the bit of
 * its place among eight, and sums of neighbours turn eight bytes into one. */
static inline uint64_t bits_of(const uint8x16_t bytes[4])
{
    static const unsigned char own_bits[16] = {1, 2, 4, 8, 16, 32, 64, 128,
                                               1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t own = vld1q_u8(own_bits);
    uint8x16_t bits[4];
    for (int i = 0; i < 4; i++)
        bits[i] = vandq_u8(bytes[i], own);
    const uint8x16_t pairs_01 = vpaddq_u8(bits[0], bits[1]), pairs_23 = vpaddq_u8(bits[2], bits[3]);
    const uint8x16_t fours = vpaddq_u8(pairs_01, pairs_23), eights = vpaddq_u8(fours, fours);
    return vgetq_lane_u64(vreinterpretq_u64_u8(eights), 0);
}

void attnkit_neon_nonzero(const unsigned char *bytes, uint64_t words[KEY_BLOCK / 64])
{
    for (int i = 0; i < KEY_BLOCK / 64; i++, bytes += 64) {
        uint8x16_t set[4];
        for (int j = 0; j < 4; j++) {
            const uint8x16_t x = vld1q_u8(bytes + 16 * j);
            set[j] = vtstq_u8(x, x);
        }
        words[i] = bits_of(set);
    }
}

/* Narrows 16 elements, each of which is 0 or all ones, to bytes. */
static inline uint8x16_t bytes_of_halves(uint16x8_t a, uint16x8_t b)
{
    return vuzp1q_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b));
}

static inline uint8x16_t bytes_of_words(const uint32x4_t x[4])
{
    uint16x8_t halves[2];
    for (int i = 0; i < 2; i++)
        halves[i] =
            vuzp1q_u16(vreinterpretq_u16_u32(x[2 * i]), vreinterpretq_u16_u32(x[2 * i + 1]));
    return bytes_of_halves(halves[0], halves[1]);
}

void attnkit_neon_same_ids(const int32_t *ids, int32_t own, uint64_t words[KEY_BLOCK / 64])
{
    const int32x4_t wanted = vdupq_n_s32(own);
    for (int i = 0; i < KEY_BLOCK / 64; i++) {
        uint8x16_t same[4];
        for (int j = 0; j < 4; j++) {
            uint32x4_t x[4];
            for (int k = 0; k < 4; k++, ids += 4)
                x[k] = vceqq_s32(vld1q_s32(ids), wanted);
            same[j] = bytes_of_words(x);
        }
        words[i] = bits_of(same);
    }
}

/* Does the work of `unmasked` for binary32: sets the bits, and returns whether any number other
 * than -inf is nonzero. -0 counts as 0. */
static bool unmasked_f32(const uint32_t *numbers, uint64_t words[KEY_BLOCK / 64])
{
    const uint32x4_t minus_infinity = vdupq_n_u32(0xff800000);
    uint32x4_t any = vdupq_n_u32(0);
    for (int i = 0; i < KEY_BLOCK / 64; i++) {
        uint8x16_t seen[4];
        for (int j = 0; j < 4; j++) {
            uint32x4_t is_seen[4];
            for (int k = 0; k < 4; k++, numbers += 4) {
                const uint32x4_t x = vld1q_u32(numbers);
                is_seen[k] = vmvnq_u32(vceqq_u32(x, minus_infinity));
                any = vorrq_u32(any, vandq_u32(is_seen[k], vshlq_n_u32(x, 1)));
            }
            seen[j] = bytes_of_words(is_seen);
        }
        words[i] = bits_of(seen);
    }
    return vmaxvq_u32(any) != 0;
}

/* Does the work of `unmasked` for numbers of 16 bits. */
static bool unmasked_half(const uint16_t *numbers, uint16_t minus_infinity,
                          uint64_t words[KEY_BLOCK / 64])
{
    const uint16x8_t infinity = vdupq_n_u16(minus_infinity);
    uint16x8_t any = vdupq_n_u16(0);
    for (int i = 0; i < KEY_BLOCK / 64; i++) {
        uint8x16_t seen[4];
        for (int j = 0; j < 4; j++) {
            uint16x8_t is_seen[2];
            for (int k = 0; k < 2; k++, numbers += 8) {
                const uint16x8_t x = vld1q_u16(numbers);
                is_seen[k] = vmvnq_u16(vceqq_u16(x, infinity));
                any = vorrq_u16(any, vandq_u16(is_seen[k], vshlq_n_u16(x, 1)));
            }
            seen[j] = bytes_of_halves(is_seen[0], is_seen[1]);
        }
        words[i] = bits_of(seen);
    }
    return vmaxvq_u16(any) != 0;
}

bool attnkit_neon_unmasked(enum type type, const void *numbers, uint64_t words[KEY_BLOCK / 64])
{
    if (type == TYPE_F32)
        return unmasked_f32(numbers, words);
    return unmasked_half(numbers, type == TYPE_F16 ? 0xfc00 : 0xff80, words);
}
