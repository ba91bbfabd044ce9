/* SPDX-License-Identifier: Apache-2.0
 *
 * Vector instructions of AVX512_BF16, AVX512_VNNI and AVX-VNNI, and tile instructions of AMX. CPUID
 * tells whether the CPU has these instructions. A program needs Linux's permission to use tiles.
 * Under Bochs, Linux cannot give this permission, but tiles work without it.
 */
#include <cpuid.h>
#include <immintrin.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/units/instructions.h"

enum {
    ARCH_GET_XCOMP_PERM = 0x1022,
    ARCH_REQ_XCOMP_PERM = 0x1023,
    TILE_DATA = 18, /* the XCR0 bit of AMX's tiles */
    ROW_BYTES = 4 * TILE_WORDS,
};

/* Returns a bit of CPUID leaf 7. `in` names the register: 'a' for EAX, 'c' for ECX, 'd' for EDX.
 * Returns false if the CPU lacks the leaf. */
static bool has(unsigned subleaf, char in, int bit)
{
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid_count(7, subleaf, &eax, &ebx, &ecx, &edx))
        return false;
    return (in == 'a' ? eax : in == 'c' ? ecx : edx) >> bit & 1;
}

static bool has_avx512_bf16(void)
{
    return __builtin_cpu_supports("avx512f") && has(1, 'a', 5);
}

static bool has_avx512_vnni(void)
{
    return __builtin_cpu_supports("avx512f") && has(0, 'c', 11);
}

static bool has_avx_vnni(void)
{
    return __builtin_cpu_supports("avx2") && has(1, 'a', 4);
}

/* Returns whether tiles need no permission. Linux can permit tiles only on a CPU with XFD. An
 * emulator without XFD lets every program use tiles. */
static bool needs_no_leave(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid_count(0xd, 1, &eax, &ebx, &ecx, &edx) && !(eax >> 4 & 1);
}

static bool may_use_tiles(void)
{
    uint64_t allowed = 0;
    if (needs_no_leave())
        return true;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0 &&
           syscall(SYS_arch_prctl, ARCH_GET_XCOMP_PERM, &allowed) == 0 && allowed >> TILE_DATA & 1;
}

static bool has_amx_bf16(void)
{
    return has(0, 'd', 24) && has(0, 'd', 22) && may_use_tiles();
}

static bool has_amx_int8(void)
{
    return has(0, 'd', 24) && has(0, 'd', 25) && may_use_tiles();
}

__attribute__((target("avx512f,avx512bf16"))) static void
run_vdpbf16ps(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    const __m512 sum = _mm512_dpbf16_ps(_mm512_loadu_ps(acc), (__m512bh)_mm512_loadu_si512(a),
                                        (__m512bh)_mm512_loadu_si512(b));
    _mm512_storeu_ps(acc, sum);
}

__attribute__((target("avx512f,avx512vnni"))) static void
run_vpdpbusd(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    const __m512i sum =
        _mm512_dpbusd_epi32(_mm512_loadu_si512(acc), _mm512_loadu_si512(a), _mm512_loadu_si512(b));
    _mm512_storeu_si512(acc, sum);
}

__attribute__((target("avx512f,avx512vnni"))) static void
run_vpdpwssd(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    const __m512i sum =
        _mm512_dpwssd_epi32(_mm512_loadu_si512(acc), _mm512_loadu_si512(a), _mm512_loadu_si512(b));
    _mm512_storeu_si512(acc, sum);
}

__attribute__((target("avx2,avxvnni"))) static void
run_vex_vpdpbusd(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    const __m256i sum = _mm256_dpbusd_avx_epi32(_mm256_loadu_si256((const __m256i *)acc),
                                                _mm256_loadu_si256((const __m256i *)a),
                                                _mm256_loadu_si256((const __m256i *)b));
    _mm256_storeu_si256((__m256i *)acc, sum);
}

__attribute__((target("avx2,avxvnni"))) static void
run_vex_vpdpwssd(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    const __m256i sum = _mm256_dpwssd_avx_epi32(_mm256_loadu_si256((const __m256i *)acc),
                                                _mm256_loadu_si256((const __m256i *)a),
                                                _mm256_loadu_si256((const __m256i *)b));
    _mm256_storeu_si256((__m256i *)acc, sum);
}

/* Loads the accumulator and both factors into tiles 0 to 2, which have full size. */
__attribute__((target("amx-tile"))) static void load_tiles(uint32_t *acc, const uint32_t *a,
                                                           const uint32_t *b)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape;
    memset(&shape, 0, sizeof shape);
    shape.palette = 1;
    for (int i = 0; i < 3; i++) {
        shape.row_bytes[i] = ROW_BYTES;
        shape.rows[i] = TILE_ROWS;
    }
    _tile_loadconfig(&shape);
    _tile_loadd(0, acc, ROW_BYTES);
    _tile_loadd(1, a, ROW_BYTES);
    _tile_loadd(2, b, ROW_BYTES);
}

__attribute__((target("amx-tile"))) static void store_tile(uint32_t *acc)
{
    _tile_stored(0, acc, ROW_BYTES);
    _tile_release();
}

__attribute__((target("amx-tile,amx-bf16"))) static void
run_tdpbf16ps(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    load_tiles(acc, a, b);
    _tile_dpbf16ps(0, 1, 2);
    store_tile(acc);
}

__attribute__((target("amx-tile,amx-int8"))) static void
run_tdpbssd(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    load_tiles(acc, a, b);
    _tile_dpbssd(0, 1, 2);
    store_tile(acc);
}

__attribute__((target("amx-tile,amx-int8"))) static void
run_tdpbsud(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    load_tiles(acc, a, b);
    _tile_dpbsud(0, 1, 2);
    store_tile(acc);
}

__attribute__((target("amx-tile,amx-int8"))) static void
run_tdpbusd(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    load_tiles(acc, a, b);
    _tile_dpbusd(0, 1, 2);
    store_tile(acc);
}

__attribute__((target("amx-tile,amx-int8"))) static void
run_tdpbuud(uint32_t *acc, const uint32_t *a, const uint32_t *b)
{
    load_tiles(acc, a, b);
    _tile_dpbuud(0, 1, 2);
    store_tile(acc);
}

const struct instruction instructions[] = {
    {"VDPBF16PS", 16, true, has_avx512_bf16, run_vdpbf16ps, model_vdpbf16ps, NULL},
    {"VPDPBUSD (EVEX)", 16, false, has_avx512_vnni, run_vpdpbusd, model_vpdpbusd, NULL},
    {"VPDPWSSD (EVEX)", 16, false, has_avx512_vnni, run_vpdpwssd, model_vpdpwssd, NULL},
    {"VPDPBUSD (VEX)", 8, false, has_avx_vnni, run_vex_vpdpbusd, model_vpdpbusd, NULL},
    {"VPDPWSSD (VEX)", 8, false, has_avx_vnni, run_vex_vpdpwssd, model_vpdpwssd, NULL},
    {"TDPBF16PS", MOST_WORDS, true, has_amx_bf16, run_tdpbf16ps, NULL, model_tdpbf16ps},
    {"TDPBSSD", MOST_WORDS, false, has_amx_int8, run_tdpbssd, NULL, model_tdpbssd},
    {"TDPBSUD", MOST_WORDS, false, has_amx_int8, run_tdpbsud, NULL, model_tdpbsud},
    {"TDPBUSD", MOST_WORDS, false, has_amx_int8, run_tdpbusd, NULL, model_tdpbusd},
    {"TDPBUUD", MOST_WORDS, false, has_amx_int8, run_tdpbuud, NULL, model_tdpbuud},
};
const int instruction_count = sizeof instructions / sizeof instructions[0];
