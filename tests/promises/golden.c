/* SPDX-License-Identifier: Apache-2.0
 *
 * Golden hashes of the results of thousands of calls of every kind. The hashes change only with the
 * format. The reference and every instruction set must give results with these hashes, on every
 * machine. golden/kind.h defines a case.
 *
 *   golden FILE [--isa NAME] [--kind NAME] [--every N]
 *   golden FILE --write
 *
 * --write writes the file anew, from the reference. Each hash that changes is a change of the
 * format (docs/format.md), and CHANGES.md says why.
 *
 * --isa names an instruction set, a unit, an instruction set without its units (avx512+none) or
 * "reference". The hashes are then checked on nothing else. An emulator of a whole machine needs
 * --isa, because the reference would take too long there. Without --isa, the reference and every
 * instruction set and unit that can run are checked. With --kind, only the cases of one kind are
 * checked. With --every N, only every Nth case of each kind is checked. N must be odd, so that this
 * sample has cases with even and with odd numbers. With ATTNKIT_TEST_WHOLE in the environment,
 * --every is ignored.
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
#include "tests/promises/golden/kind.h"
#include "tests/support/memory.h"
#include "tests/support/units.h"

enum {
    MAX_ISAS = 8,
    MAX_KINDS = 32,
    MAX_UNITS = 8,
    NAME = 32,
    REPORTED = 5, /* the most differences that are printed */
};

static struct {
    const char *file, *isa, *kind;
    int every;
    bool write;
} options = {.every = 1};

static struct {
    const struct golden_kind *kind;
    uint64_t *hashes; /* the hashes of the kind in the file */
} golden[MAX_KINDS];
static int kind_count;

static void list_kinds(void)
{
    const struct golden_kinds *const all[] = {&golden_f32,    &golden_attention, &golden_states,
                                              &golden_merge,  &golden_append,    &golden_angles,
                                              &golden_linear, &golden_layer};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (int j = 0; j < all[i]->count; j++)
            golden[kind_count++].kind = &all[i]->list[j];
}

/* --- The file --------------------------------------------------------------------------------- */

/* Writes a line for each case: the kind, the number and the hash. Returns an exit status. */
static int write_hashes(void)
{
    FILE *const out = fopen(options.file, "w");
    if (!out) {
        perror(options.file);
        return 2;
    }
    for (int k = 0; k < kind_count; k++) {
        const struct golden_kind *const kind = golden[k].kind;
        for (int i = 0; i < kind->count; i++)
            fprintf(out, "%s %04d %016" PRIx64 "\n", kind->name, i, kind->hash(kind, i, 0, NULL));
    }
    return fclose(out) == 0 ? 0 : 2;
}

static bool read_kind(FILE *in, const struct golden_kind *kind, uint64_t *hashes)
{
    char name[32];
    int number;
    for (int i = 0; i < kind->count; i++)
        if (fscanf(in, "%31s %d %" SCNx64, name, &number, &hashes[i]) != 3 ||
            strcmp(name, kind->name) != 0 || number != i)
            return false;
    return true;
}

static bool read_hashes(void)
{
    FILE *const in = fopen(options.file, "r");
    char more[2];
    if (!in) {
        printf("Bail out! There is no %s\n", options.file);
        return false;
    }
    bool whole = true;
    for (int k = 0; k < kind_count && whole; k++) {
        golden[k].hashes = malloc((size_t)golden[k].kind->count * sizeof(uint64_t));
        whole = read_kind(in, golden[k].kind, golden[k].hashes);
        if (!whole)
            printf("Bail out! %s lacks cases of %s\n", options.file, golden[k].kind->name);
    }
    if (whole && fscanf(in, "%1s", more) == 1) {
        printf("Bail out! %s has cases of an unknown kind\n", options.file);
        whole = false;
    }
    fclose(in);
    return whole;
}

/* --- The tests -------------------------------------------------------------------------------- */

static bool differs(const struct golden_kind *kind, int number, const char *isa, uint64_t expected)
{
    const int ways = isa ? kind->ways : 1;
    for (int way = 0; way < ways; way++)
        if (kind->hash(kind, number, way, isa) != expected)
            return true;
    return false;
}

/* Checks a kind on an instruction set, or on the reference if isa is NULL. Adds the number of
 * checked cases to *checked. Returns how many of these cases differ. */
static int check_kind(int k, const char *isa, int *checked)
{
    const struct golden_kind *const kind = golden[k].kind;
    int differ = 0;
    for (int i = k % options.every; i < kind->count; i += options.every) {
        ++*checked;
        if (differs(kind, i, isa, golden[k].hashes[i]) && differ++ < REPORTED) {
            printf("# %s: %s %04d differs\n", isa ? isa : "reference", kind->name, i);
            kind->print(kind, i);
        }
    }
    return differ;
}

/* Checks the cases that --kind and --every select, by default all cases of all kinds. */
static void has_the_golden_bits(const char *isa)
{
    int checked = 0, differ = 0;
    for (int k = 0; k < kind_count; k++) {
        if (options.kind && strcmp(options.kind, golden[k].kind->name) != 0)
            continue;
        const int before = checked;
        differ += check_kind(k, isa, &checked);
        assert_int_not_equal(checked, before);
    }
    printf("# %s: %d cases, %d differ\n", isa ? isa : "reference", checked, differ);
    assert_int_not_equal(checked, 0);
    assert_int_equal(differ, 0);
}

static void reference_has_the_golden_bits(void **state)
{
    (void)state;
    has_the_golden_bits(NULL);
}

static void isa_has_the_golden_bits(void **state)
{
    has_the_golden_bits(*state);
}

static int compare_hashes(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Hashes differ from case to case, except for a few small cases, such as calls without rows. */
static void nearly_all_hashes_differ(void **state)
{
    (void)state;
    for (int k = 0; k < kind_count; k++) {
        const int count = golden[k].kind->count;
        uint64_t *const sorted = malloc((size_t)count * sizeof *sorted);
        memcpy(sorted, golden[k].hashes, (size_t)count * sizeof *sorted);
        qsort(sorted, (size_t)count, sizeof *sorted, compare_hashes);
        int same = 0;
        for (int i = 1; i < count; i++)
            same += sorted[i] == sorted[i - 1];
        free(sorted);
        if (same > count / 6)
            fail_msg("%s: %d of %d hashes equal hashes of other cases", golden[k].kind->name, same,
                     count);
    }
}

static size_t add_test(const char *name, struct CMUnitTest *test)
{
    if (options.isa && strcmp(options.isa, name) != 0)
        return 0;
    *test = (struct CMUnitTest){name, isa_has_the_golden_bits, NULL, NULL, (void *)(uintptr_t)name};
    return 1;
}

/* Adds a test for each unit that can run, and a test for each instruction set of such a unit,
 * without units. A test that has the name of the instruction set alone uses the best unit of this
 * CPU. If --isa names one test, adds no other test. Returns the number of added tests. */
static size_t list_units(struct CMUnitTest *tests)
{
    static char names[MAX_UNITS][NAME];
    const struct unit *units;
    const struct isa *isas;
    size_t count = 0;
    int before = -1; /* instruction set of the previous unit; the units of a set are consecutive */
    attnkit_isas(&isas);
    const int unit_count = attnkit_units(&units);
    for (int i = 0; i < unit_count; i++) {
        if (!attnkit_unit_can_run(&units[i]))
            continue;
        count += add_test(units[i].name, &tests[count]);
        if ((int)units[i].isa != before) {
            snprintf(names[i], NAME, "%s+none", isas[units[i].isa].name);
            count += add_test(names[i], &tests[count]);
        }
        before = (int)units[i].isa;
    }
    return count;
}

static size_t list_tests(struct CMUnitTest *tests)
{
    const char *const wanted = options.isa;
    size_t count = 0;
    if (!wanted || strcmp(wanted, "reference") == 0) {
        tests[count++] = (struct CMUnitTest)cmocka_unit_test(nearly_all_hashes_differ);
        tests[count++] = (struct CMUnitTest)cmocka_unit_test(reference_has_the_golden_bits);
    }
    const struct isa *isas;
    const int isa_count = attnkit_isas(&isas);
    for (int i = 0; i < isa_count; i++)
        if (attnkit_isa_can_run(&isas[i]))
            count += add_test(isas[i].name, &tests[count]);
    return count + list_units(tests + count);
}

static bool read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *const value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--write") == 0)
            options.write = true;
        else if (strcmp(argv[i], "--isa") == 0 && ++i)
            options.isa = value;
        else if (strcmp(argv[i], "--kind") == 0 && ++i)
            options.kind = value;
        else if (strcmp(argv[i], "--every") == 0 && ++i)
            options.every = atoi(value);
        else if (!options.file)
            options.file = argv[i];
        else
            return false;
    }
    if (getenv("ATTNKIT_TEST_WHOLE"))
        options.every = 1;
    return options.file && options.every % 2 == 1 && options.every > 0;
}

int main(int argc, char **argv)
{
    if (!read_options(argc, argv)) {
        fprintf(stderr, "usage: golden FILE [--isa NAME] [--kind NAME] [--every N]\n"
                        "       golden FILE --write\n");
        return 2;
    }
    list_kinds();
    if (options.write)
        return write_hashes();
    if (!read_hashes())
        return 2;
    enable_units();
    struct CMUnitTest tests[2 + MAX_ISAS + 2 * MAX_UNITS];
    const size_t count = list_tests(tests);
    if (count == 0) {
        printf("Bail out! %s is unknown or cannot run here\n", options.isa);
        return 2;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = _cmocka_run_group_tests("golden", tests, count, NULL, NULL);
    memory_end();
    for (int k = 0; k < kind_count; k++)
        free(golden[k].hashes);
    return failed;
}
