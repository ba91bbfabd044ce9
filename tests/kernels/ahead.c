/* SPDX-License-Identifier: Apache-2.0
 *
 * With AVX2 and AVX-512, a product of a linear map prefetches the cache lines of the next tiles in
 * order, and spreads the prefetches evenly over its work. Only the last cache line may be left out.
 * No cache line after the tiles is prefetched. These rules hold for all sizes of the product and of
 * the tiles.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/linear/ahead.h"
#include "tests/support/random.h"

enum { ROUNDS = 2000, MAX_TILES = 4, MOST_BYTES = 1000, STEP = 1024 };

static char matrix[MAX_TILES * STEP];

/* Returns how many cache lines of the tiles have been prefetched so far. */
static int64_t lines_asked(const struct requests *r)
{
    const int64_t lines = (r->tile_bytes + CACHE_LINE - 1) / CACHE_LINE;
    return (r->tile - matrix) / STEP * lines + (r->line - r->tile) / CACHE_LINE;
}

static void all_lines_are_prefetched_evenly(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (int round = 0; round < ROUNDS; round++) {
        const int64_t bytes = 32 * (1 + random_below(&random, MOST_BYTES / 32));
        const int64_t tiles = 1 + random_below(&random, MAX_TILES);
        const int64_t times = 1 + random_below(&random, 300);
        const struct next_tiles ahead = {matrix, STEP, tiles, bytes};
        const double all = (double)(tiles * ((bytes + CACHE_LINE - 1) / CACHE_LINE));
        struct requests r = requests_of(&ahead, times);
        for (int64_t i = 1; i <= times; i++) {
            const double due = all * (double)i / (double)times;
            prefetch_matrix(&r);
            assert_true((double)lines_asked(&r) <= due && (double)lines_asked(&r) > due - 1.01);
            assert_true(r.line - r.tile < bytes + CACHE_LINE);
        }
    }
}

static void nothing_is_prefetched_without_tiles_or_work(void **state)
{
    (void)state;
    const struct next_tiles none = {0}, some = {matrix, STEP, 1, STEP};
    struct requests without_tiles = requests_of(&none, 3), without_work = requests_of(&some, 0);
    for (int i = 0; i < 3; i++) {
        prefetch_matrix(&without_tiles);
        prefetch_matrix(&without_work);
    }
    assert_null(without_tiles.line);
    assert_ptr_equal(without_work.line, matrix);
}

/* Makes the calls of prefetch_matrix that the products of AVX2 make: one call for every PACE inputs
 * of each register tile. A register tile of AVX2 has up to 4 rows and up to 24 outputs. */
static void a_product_has_prefetched_all_lines_at_its_end(void **state)
{
    (void)state;
    for (int rows = 1; rows <= 40; rows++)
        for (int64_t outs = 1; outs <= 50; outs += 7) {
            const struct product p = {
                .rows = rows, .dim = 64, .outs = outs, .ahead = {matrix, STEP, MAX_TILES, STEP}};
            struct requests r = product_requests(&p, 4, 24);
            for (int i = 0, group; i < rows; i += group) {
                group = tile_height(rows - i, ROW_GROUP);
                for (int first = 0; first < group; first += tile_height(group - first, 4))
                    for (int64_t ask = 0; ask < (outs + 23) / 24 * (64 / PACE); ask++)
                        prefetch_matrix(&r);
            }
            assert_true(lines_asked(&r) >= MAX_TILES * STEP / CACHE_LINE - 1);
            assert_true(lines_asked(&r) <= MAX_TILES * STEP / CACHE_LINE);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_lines_are_prefetched_evenly),
        cmocka_unit_test(nothing_is_prefetched_without_tiles_or_work),
        cmocka_unit_test(a_product_has_prefetched_all_lines_at_its_end),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
