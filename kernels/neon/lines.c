/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of numbers, one for each key of a block: what is added to scores, lines of some keys only,
 * and the mean of several rows. prefill.c, decode.c and weights.c call them for each query row and
 * block that has one. Bound by the issue of instructions: a vector of a bias with a slope takes a
 * dozen.
 */
#include "kernels/neon/neon.h"

/* The bits of a vector of keys. */
static inline uint32_t bits_at(const uint64_t words[KEY_BLOCK / 64], int key)
{
    return words[key / 64] >> key % 64 & 0xf;
}

/* All ones where one of the low 4 bits is set. */
static inline uint32x4_t lanes_of(uint32_t bits)
{
    static const uint32_t own_bits[VECTOR] = {1, 2, 4, 8};
    return vtstq_u32(vdupq_n_u32(bits), vld1q_u32(own_bits));
}

/* --- What is added to scores ------------------------------------------------------------------ */

/* f32 of the distances of VECTOR keys. */
static inline float32x4_t distances(const struct bias_line *what, int key, const bool near)
{
    static const int32_t order[VECTOR] = {0, 1, 2, 3};
    if (near)
        return vcvtq_f32_s32(vaddq_s32(vdupq_n_s32((int)what->distance + key), vld1q_s32(order)));
    float x[VECTOR];
    for (int i = 0; i < VECTOR; i++)
        x[i] = key_distance(what, key + i);
    return vld1q_f32(x);
}

/* The line has the numbers if there are any. These maxima keep a NaN. */
static inline __attribute__((always_inline)) void fill(const struct bias_line *what, float *line,
                                                       const bool sloped, const bool near)
{
    const bool given = what->numbers;
    const float unit = what->unit;
    const float32x4_t least = vdupq_n_f32(what->least);
    for (int key = 0; key < KEY_BLOCK; key += VECTOR) {
        float32x4_t b = vdupq_n_f32(0.0f);
        if (given)
            b = vmaxq_f32(vmulq_n_f32(vld1q_f32(line + key), unit), least);
        if (sloped) {
            b = vaddq_f32(b, vmulq_n_f32(distances(what, key, near), what->slope));
            b = vmaxq_f32(b, vdupq_n_f32(-FLT_MAX));
        }
        const uint32x4_t seen = lanes_of(bits_at(what->seen, key));
        vst1q_f32(line + key, vbslq_f32(seen, b, vdupq_n_f32(-INFINITY)));
    }
}

void attnkit_neon_bias_line(const struct bias_line *what, float *line)
{
    if (what->numbers) {
        memset(line + what->count, 0, (size_t)(KEY_BLOCK - what->count) * sizeof *line);
        attnkit_neon_widen(what->type, what->numbers, NULL, 0, what->count, line);
    }
    if (!what->sloped)
        fill(what, line, false, true);
    else if (has_near_keys(what))
        fill(what, line, true, true);
    else
        fill(what, line, true, false);
}

/* --- Some keys only --------------------------------------------------------------------------- */

/* The floats of x from these places, a byte for each. */
static inline float32x4_t permute(float32x4_t x, uint32_t places)
{
    const uint16x8_t halves = vmovl_u8(vcreate_u8(places));
    const uint32x4_t place = vmovl_u16(vget_low_u16(halves));
    /* The bytes of a float: four times its place, and 0 to 3. */
    const uint32x4_t bytes = vaddq_u32(vmulq_n_u32(place, 0x04040404), vdupq_n_u32(0x03020100));
    return vreinterpretq_f32_u8(vqtbl1q_u8(vreinterpretq_u8_f32(x), vreinterpretq_u8_u32(bytes)));
}

void attnkit_neon_compact_line(const uint64_t keys[KEY_BLOCK / 64], float *line)
{
    /* Where the keys of a vector come from, a byte for each. */
    static const uint32_t places[1 << VECTOR] = {0x0,   0x0,     0x1,     0x100,    0x2,   0x200,
                                                 0x201, 0x20100, 0x3,     0x300,    0x301, 0x30100,
                                                 0x302, 0x30200, 0x30201, 0x3020100};
    float *to = line; /* what is written behind the keys has been read before */
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
        /* No more than `key` numbers are before these, so that a whole vector can be read. */
        float32x4_t x = vld1q_f32(numbers);
        if (bits != 0xf) {
            /* The bits as bytes, and of each how many are before it. */
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

void attnkit_neon_mean(const struct rows *rows, int64_t count, float *mean)
{
    const float32x4_t divisor = vdupq_n_f32((float)count);
    for (int64_t i = 0; i < rows->dim; i += VECTOR) {
        const int lanes = lanes_at(i, rows->dim);
        const char *row = rows->first + i * (int64_t)sizeof *mean;
        float32x4_t sum = vdupq_n_f32(0.0f);
        for (int64_t r = 0; r < count; r++, row += rows->stride)
            sum = vaddq_f32(sum, load_first((const float *)row, lanes));
        store_first(mean + i, lanes, plain_nan(vdivq_f32(sum, divisor)));
    }
}
