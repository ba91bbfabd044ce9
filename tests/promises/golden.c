/* SPDX-License-Identifier: Apache-2.0
 *
 * Golden hashes: the bits of a sample of cases as they have always been. The reference and every
 * instruction set must still give them, here and on any other machine; an emulator, where the
 * reference would take too long, checks its instruction set against them alone.
 *
 *   golden FILE                 the reference and all instruction sets that can run
 *   golden FILE --isa NAME      one of these, or "reference"
 *   golden FILE --write COUNT   makes the file; changing it is a change of the format
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch/cpu/isa.h"
#include "tests/cases/covering.h"

static const uint64_t SEED = 7;
static const double CASE_COST = 2e5; /* multiply-adds, about: an emulator does 10^7 a second */

enum {
    MAX_ISAS = 8,
    REPORTED = 5, /* differences that are printed */
};

static struct cases cases;
static uint64_t *hashes;

static uint64_t reference_hash(const struct test_case *c)
{
    struct setting s;
    setting_make(&s, c, (enum layout_kind)c->value[AXIS_LAYOUT]);
    struct result r = result_new(&s.args);
    result_from_reference(&r, &s.args);
    const uint64_t hash = result_hash(&r);
    result_free(&r);
    return hash;
}

static int write_hashes(const char *file, int count)
{
    const struct axes axes = all_axes();
    cases = sampled_cases(&axes, SEED, count, CASE_COST);
    FILE *out = fopen(file, "w");
    if (!out) {
        perror(file);
        return 2;
    }
    for (int i = 0; i < cases.count; i++)
        fprintf(out, "%016" PRIx64 "\n", reference_hash(&cases.list[i]));
    return fclose(out) == 0 ? 0 : 2;
}

static void read_hashes(const char *file)
{
    FILE *in = fopen(file, "r");
    if (!in) {
        perror(file);
        exit(2);
    }
    int count = 0;
    uint64_t hash;
    while (fscanf(in, "%" SCNx64, &hash) == 1) {
        hashes = realloc(hashes, (size_t)(count + 1) * sizeof *hashes);
        hashes[count++] = hash;
    }
    fclose(in);
    const struct axes axes = all_axes();
    cases = sampled_cases(&axes, SEED, count, CASE_COST);
}

static void report(const char *name, int differ)
{
    printf("# %s: %d cases, %d differ\n", name, cases.count, differ);
    assert_int_not_equal(cases.count, 0);
    assert_int_equal(differ, 0);
}

static void reference_has_the_golden_bits(void **state)
{
    (void)state;
    int differ = 0;
    for (int i = 0; i < cases.count; i++)
        differ += reference_hash(&cases.list[i]) != hashes[i];
    report("reference", differ);
}

/* In the case's own layout, and with every row against an unmapped page. */
static void isa_has_the_golden_bits(void **state)
{
    const struct runner runner = {.isa = *state, .threads = 1};
    int differ = 0;
    for (int i = 0; i < cases.count; i++) {
        const struct test_case *c = &cases.list[i];
        const char *wrong =
            check_layout(c, (enum layout_kind)c->value[AXIS_LAYOUT], runner, NULL, hashes[i], NULL);
        if (!wrong)
            wrong =
                check_layout(c, i % 2 ? BEFORE_GUARD : AFTER_GUARD, runner, NULL, hashes[i], NULL);
        if (wrong && differ++ < REPORTED) {
            case_print(c);
            printf("# %s: case %d: %s\n", runner.isa, i, wrong);
        }
    }
    report(runner.isa, differ);
}

static size_t list_tests(const char *wanted, struct CMUnitTest *tests)
{
    size_t count = 0;
    if (!wanted || strcmp(wanted, "reference") == 0)
        tests[count++] = (struct CMUnitTest)cmocka_unit_test(reference_has_the_golden_bits);
    const struct isa *isas;
    const int isa_count = attnkit_isas(&isas);
    for (int i = 0; i < isa_count; i++)
        if ((!wanted || strcmp(wanted, isas[i].name) == 0) && attnkit_isa_can_run(&isas[i]))
            tests[count++] = (struct CMUnitTest){isas[i].name, isa_has_the_golden_bits, NULL, NULL,
                                                 (void *)(uintptr_t)isas[i].name};
    return count;
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 4) {
        fprintf(stderr, "usage: golden FILE [--isa NAME | --write COUNT]\n");
        return 2;
    }
    if (argc == 4 && strcmp(argv[2], "--write") == 0)
        return write_hashes(argv[1], atoi(argv[3]));
    read_hashes(argv[1]);
    struct CMUnitTest tests[MAX_ISAS + 1];
    const char *wanted = argc == 4 ? argv[3] : NULL;
    const size_t count = list_tests(wanted, tests);
    if (count == 0) {
        printf("Bail out! %s cannot run here\n", wanted);
        return 2;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = _cmocka_run_group_tests("golden", tests, count, NULL, NULL);
    setting_end();
    free(cases.list);
    free(hashes);
    return failed;
}
