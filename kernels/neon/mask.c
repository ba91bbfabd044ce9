/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes of a mask to bits: which of those of a block of keys are not 0. mask.c of the parent folder
 * calls it for each query row and block. Bound by loads.
 */
#include "kernels/neon/neon.h"

/* Each byte its own bit of eight where it is not 0, and neighbours added up until eight of them are
 * a byte. */
static uint64_t bits_of(const unsigned char *bytes)
{
    static const unsigned char own_bits[16] = {1, 2, 4, 8, 16, 32, 64, 128,
                                               1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t own = vld1q_u8(own_bits);
    uint8x16_t bits[4];
    for (int i = 0; i < 4; i++) {
        const uint8x16_t x = vld1q_u8(bytes + 16 * i);
        bits[i] = vandq_u8(vtstq_u8(x, x), own);
    }
    const uint8x16_t pairs_01 = vpaddq_u8(bits[0], bits[1]), pairs_23 = vpaddq_u8(bits[2], bits[3]);
    const uint8x16_t fours = vpaddq_u8(pairs_01, pairs_23), eights = vpaddq_u8(fours, fours);
    return vgetq_lane_u64(vreinterpretq_u64_u8(eights), 0);
}

void attnkit_neon_nonzero(const unsigned char *bytes, uint64_t words[KEY_BLOCK / 64])
{
    for (int i = 0; i < KEY_BLOCK / 64; i++)
        words[i] = bits_of(bytes + 64 * i);
}
