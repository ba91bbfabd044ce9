/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the choice of the instruction set and its unit: the best that can run, or the instruction
 * set or unit that is named. Also tests the lists of instruction sets and units, and the kernel
 * tables. A process that has made the automatic choice keeps this choice. The process reads
 * ATTNKIT_ISA again only after attnkit_enable has enabled a unit. Therefore the tests make each
 * automatic choice in a child process, a fork of the first process. The first process must make no
 * automatic choice, because its children would inherit the choice. The tests cannot start processes
 * by exec: exec limits a variable to 128 KiB, and emulators of other CPUs do not follow exec into
 * the new program.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dispatch/cpu/isa.h"
#include "attnkit.h"

static const struct isa *isas;
static int isa_count;

static int list_isas(void **state)
{
    (void)state;
    isa_count = attnkit_isas(&isas);
    return 0;
}

static const char *best_name(void)
{
    const char *name = NULL;
    for (int i = 0; i < isa_count; i++)
        if (attnkit_isa_can_run(&isas[i]))
            name = isas[i].name;
    return name;
}

/* --- The list of instruction sets -------------------------------------------------------- */

static void every_instruction_set_is_described(void **state)
{
    (void)state;
    assert_int_equal(attnkit_isa_count(), isa_count);
    for (int32_t i = 0; i < isa_count; i++) {
        attnkit_isa_info info = {.size = sizeof info};
        char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
        assert_int_equal(attnkit_isa_get(i, &info, message), ATTNKIT_OK);
        assert_string_equal(message, "");
        assert_int_equal(info.size, sizeof info);
        assert_string_equal(info.name, isas[i].name);
        assert_true(info.needs[0] != '\0');
        assert_true(info.reason[0] != '\0');
        assert_int_equal(info.built, isas[i].kernels != NULL);
        assert_int_equal(info.can_run, attnkit_isa_can_run(&isas[i]));
        assert_true(info.built || !info.can_run);
    }
}

static void the_reason_says_whether_it_is_built_and_can_run(void **state)
{
    (void)state;
    for (int32_t i = 0; i < isa_count; i++) {
        attnkit_isa_info info = {.size = sizeof info};
        assert_int_equal(attnkit_isa_get(i, &info, NULL), ATTNKIT_OK);
        const bool not_built = strstr(info.reason, "not built") != NULL;
        const bool lacking = strstr(info.reason, "lacks") || strstr(info.reason, "does not");
        assert_int_equal(not_built, !info.built);
        assert_int_equal(lacking, info.built && !info.can_run);
    }
}

static void scalar_comes_first_and_always_runs(void **state)
{
    (void)state;
    assert_string_equal(isas[0].name, "scalar");
    assert_true(attnkit_isa_can_run(&isas[0]));
}

static void indices_out_of_range_are_refused(void **state)
{
    (void)state;
    const int32_t indices[] = {-1, isa_count, INT32_MIN, INT32_MAX};
    static const char *const texts[] = {"index is -1", "index is ", "index is -2147483648",
                                        "index is 2147483647"};
    for (int i = 0; i < 4; i++) {
        attnkit_isa_info info = {.size = sizeof info};
        const attnkit_isa_info before = info;
        char message[ATTNKIT_MESSAGE_SIZE];
        assert_int_equal(attnkit_isa_get(indices[i], &info, message), ATTNKIT_BAD_ARGUMENT);
        assert_non_null(strstr(message, texts[i]));
        assert_int_equal(attnkit_isa_get(indices[i], &info, NULL), ATTNKIT_BAD_ARGUMENT);
        assert_memory_equal(&info, &before, sizeof info);
    }
}

/* --- Structs that the library fills ------------------------------------------------------ */

static void null_structs_are_refused(void **state)
{
    (void)state;
    char message[ATTNKIT_MESSAGE_SIZE];
    assert_int_equal(attnkit_isa_get(0, NULL, message), ATTNKIT_BAD_ARGUMENT);
    assert_string_equal(message, "info is NULL");
    assert_int_equal(attnkit_isa_get(0, NULL, NULL), ATTNKIT_BAD_ARGUMENT);
    assert_int_equal(attnkit_isa_choose("scalar", NULL, message), ATTNKIT_BAD_ARGUMENT);
    assert_string_equal(message, "choice is NULL");
    assert_int_equal(attnkit_isa_choose("scalar", NULL, NULL), ATTNKIT_BAD_ARGUMENT);
}

static void structs_of_no_version_are_refused_and_not_filled(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 8, offsetof(attnkit_isa_choice, unit) - 1, 4097, SIZE_MAX};
    for (int i = 0; i < 5; i++) {
        char message[ATTNKIT_MESSAGE_SIZE];
        attnkit_isa_info info = {.size = sizes[i]};
        const attnkit_isa_info info_before = info;
        assert_int_equal(attnkit_isa_get(0, &info, message), ATTNKIT_BAD_ARGUMENT);
        assert_non_null(strstr(message, "attnkit_isa_info.size is "));
        assert_memory_equal(&info, &info_before, sizeof info);
        attnkit_isa_choice choice = {.size = sizes[i]};
        const attnkit_isa_choice choice_before = choice;
        assert_int_equal(attnkit_isa_choose("scalar", &choice, message), ATTNKIT_BAD_ARGUMENT);
        assert_non_null(strstr(message, "attnkit_isa_choice.size is "));
        assert_memory_equal(&choice, &choice_before, sizeof choice);
    }
}

static void fields_of_a_newer_header_are_set_to_zero(void **state)
{
    (void)state;
    struct {
        attnkit_isa_info info;
        char tail[64];
    } newer;
    memset(&newer, 0xa5, sizeof newer);
    newer.info.size = sizeof newer;
    assert_int_equal(attnkit_isa_get(0, &newer.info, NULL), ATTNKIT_OK);
    assert_string_equal(newer.info.name, "scalar");
    assert_int_equal(newer.info.size, sizeof newer);
    for (size_t i = 0; i < sizeof newer.tail; i++)
        assert_int_equal(newer.tail[i], 0);
}

/* --- Names ------------------------------------------------------------------------------- */

static void a_named_instruction_set_is_chosen_if_it_can_run(void **state)
{
    (void)state;
    for (int i = 0; i < isa_count; i++) {
        attnkit_isa_choice choice = {.size = sizeof choice};
        char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
        const attnkit_status status = attnkit_isa_choose(isas[i].name, &choice, message);
        if (attnkit_isa_can_run(&isas[i])) {
            assert_int_equal(status, ATTNKIT_OK);
            assert_string_equal(message, "");
            assert_string_equal(choice.prefill, isas[i].name);
            assert_string_equal(choice.decode, isas[i].name);
            assert_non_null(strstr(choice.reason, "attnkit_exec.isa"));
        } else {
            assert_int_equal(status, ATTNKIT_BAD_ISA);
            assert_non_null(strstr(message, isas[i].name));
            assert_null(choice.prefill);
        }
    }
}

/* Checks that the message ends with a list. The list must name each instruction set that can run,
 * and no other instruction set. */
static void expect_possible_names(const char *message)
{
    const char *possible = strstr(message, "possible here: ");
    assert_non_null(possible);
    for (int i = 0; i < isa_count; i++)
        if (attnkit_isa_can_run(&isas[i]))
            assert_non_null(strstr(possible, isas[i].name));
        else
            assert_null(strstr(possible, isas[i].name));
}

static void messages_on_unknown_names_list_the_possible_names(void **state)
{
    (void)state;
    const char *const names[] = {"sse9", "", "AVX2", "scalar,avx2", "\xc3\x28"};
    for (int i = 0; i < 5; i++) {
        attnkit_isa_choice choice = {.size = sizeof choice};
        char message[ATTNKIT_MESSAGE_SIZE];
        assert_int_equal(attnkit_isa_choose(names[i], &choice, message), ATTNKIT_BAD_ISA);
        assert_non_null(strstr(message, "exec.isa is \""));
        assert_non_null(strstr(message, names[i]));
        expect_possible_names(message);
        assert_int_equal(attnkit_isa_choose(names[i], &choice, NULL), ATTNKIT_BAD_ISA);
    }
}

/* --- The automatic choice ---------------------------------------------------------------- */

/* The report of a child process. The report has no pointers, because it goes through a pipe. */
struct report {
    attnkit_status choose, query, call; /* statuses of the three calls that need a choice */
    char chosen[32], reason[64], message[ATTNKIT_MESSAGE_SIZE];
};

static attnkit_status attend(const char *isa, attnkit_status *query, char *message)
{
    static char workspace[1 << 18];
    const float one = 1.0f;
    float out = 0.0f;
    const attnkit_attention_args args = {
        .size = sizeof args,
        .batch = 1,
        .q_heads = 1,
        .kv_heads = 1,
        .q_len = 1,
        .kv_len = 1,
        .head_dim = 1,
        .q = {.data = &one},
        .k = {.data = &one},
        .v = {.data = &one},
        .out = {.data = &out},
    };
    const attnkit_exec exec = {.size = sizeof exec,
                               .workspace = workspace,
                               .workspace_size = sizeof workspace,
                               .isa = isa};
    size_t bytes;
    *query = attnkit_attention_workspace(&args, &exec, &bytes, NULL);
    return attnkit_attention(&args, &exec, message);
}

static void make_report(const char *isa, struct report *r)
{
    attnkit_isa_choice choice = {.size = sizeof choice};
    r->call = attend(isa, &r->query, r->message);
    r->choose = attnkit_isa_choose(isa, &choice, NULL);
    if (r->choose == ATTNKIT_OK) {
        strncpy(r->chosen, choice.prefill, sizeof r->chosen - 1);
        strncpy(r->reason, choice.reason, sizeof r->reason - 1);
    }
}

/* Runs make_report in a child process, and returns the report. The calls of the child process name
 * the instruction set `isa`, or leave the choice to the library if `isa` is NULL. In the child
 * process, ATTNKIT_ISA is `variable`, or is not set if `variable` is NULL. */
static struct report report_with(const char *variable, const char *isa)
{
    struct report r = {.choose = ATTNKIT_OK};
    int ends[2], how;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (variable)
            setenv("ATTNKIT_ISA", variable, 1);
        else
            unsetenv("ATTNKIT_ISA");
        make_report(isa, &r);
        _exit(write(ends[1], &r, sizeof r) == sizeof r ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    assert_int_equal(read(ends[0], &r, sizeof r), sizeof r);
    close(ends[0]);
    close(ends[1]);
    return r;
}

static void expect_choice(const struct report *r, const char *name, const char *reason)
{
    assert_int_equal(r->choose, ATTNKIT_OK);
    assert_int_equal(r->query, ATTNKIT_OK);
    assert_int_equal(r->call, ATTNKIT_OK);
    assert_string_equal(r->message, "");
    assert_string_equal(r->chosen, name);
    assert_non_null(strstr(r->reason, reason));
}

static void expect_refusal(const struct report *r, const char *name)
{
    assert_int_equal(r->choose, ATTNKIT_BAD_ISA);
    assert_int_equal(r->query, ATTNKIT_BAD_ISA);
    assert_int_equal(r->call, ATTNKIT_BAD_ISA);
    assert_non_null(strstr(r->message, "ATTNKIT_ISA is \""));
    assert_non_null(strstr(r->message, name));
    expect_possible_names(r->message);
}

static void the_choice_is_the_best_that_can_run(void **state)
{
    (void)state;
    const struct report r = report_with(NULL, NULL);
    expect_choice(&r, best_name(), "best");
}

static void an_empty_variable_counts_as_not_set(void **state)
{
    (void)state;
    const struct report r = report_with("", NULL);
    expect_choice(&r, best_name(), "best");
}

static void the_variable_may_name_any_instruction_set_that_can_run(void **state)
{
    (void)state;
    for (int i = 0; i < isa_count; i++) {
        const struct report r = report_with(isas[i].name, NULL);
        if (attnkit_isa_can_run(&isas[i]))
            expect_choice(&r, isas[i].name, "ATTNKIT_ISA");
        else
            expect_refusal(&r, isas[i].name);
    }
}

static void a_bad_name_in_the_variable_is_refused_by_every_call(void **state)
{
    (void)state;
    const char *const values[] = {"avx9000", "Scalar", " ", "\xff\xfe\x80", "%s%n"};
    for (int i = 0; i < 5; i++) {
        const struct report r = report_with(values[i], NULL);
        expect_refusal(&r, values[i]);
    }
}

static void a_variable_of_a_megabyte_is_refused(void **state)
{
    (void)state;
    const size_t megabyte = 1 << 20;
    char *value = malloc(megabyte + 1);
    memset(value, 'x', megabyte);
    value[megabyte] = '\0';
    const struct report r = report_with(value, NULL);
    free(value);
    expect_refusal(&r, "xxxx");
}

static void exec_isa_wins_over_the_variable(void **state)
{
    (void)state;
    const char *const variables[] = {"scalar", "avx9000", best_name()};
    for (int v = 0; v < 3; v++)
        for (int i = 0; i < isa_count; i++)
            if (attnkit_isa_can_run(&isas[i])) {
                const struct report r = report_with(variables[v], isas[i].name);
                expect_choice(&r, isas[i].name, "attnkit_exec.isa");
            }
}

/* --- Units ------------------------------------------------------------------------------- */

static const struct unit *units;

static void every_unit_is_described(void **state)
{
    (void)state;
    const int count = attnkit_units(&units);
    assert_int_equal(attnkit_unit_count(), count);
    for (int32_t i = 0; i < count; i++) {
        attnkit_unit_info info = {.size = sizeof info};
        char message[ATTNKIT_MESSAGE_SIZE] = "nothing";
        assert_int_equal(attnkit_unit_get(i, &info, message), ATTNKIT_OK);
        assert_string_equal(message, "");
        assert_string_equal(info.name, units[i].name);
        assert_true(info.needs[0] != '\0' && info.reason[0] != '\0');
        assert_int_equal(info.built, units[i].kernels != NULL);
        assert_int_equal(info.can_run, attnkit_unit_can_run(&units[i]));
        assert_true(info.built || !info.can_run);
        assert_true(info.can_run || !info.used);
        const struct isa *const isa = &isas[units[i].isa];
        assert_in_range(i, isa->first_unit, isa->first_unit + isa->unit_count - 1);
        assert_int_equal(strncmp(units[i].name, isa->name, strlen(isa->name)), 0);
        assert_int_equal(strstr(info.reason, "not built") != NULL, !info.built);
    }
}

static void bad_indices_of_units_are_refused(void **state)
{
    (void)state;
    const int32_t indices[] = {-1, attnkit_units(&units), INT32_MIN, INT32_MAX};
    char message[ATTNKIT_MESSAGE_SIZE];
    for (int i = 0; i < 4; i++) {
        attnkit_unit_info info = {.size = sizeof info};
        assert_int_equal(attnkit_unit_get(indices[i], &info, message), ATTNKIT_BAD_ARGUMENT);
        assert_non_null(strstr(message, "index is "));
        assert_null(info.name);
    }
    assert_int_equal(attnkit_unit_get(0, NULL, message), ATTNKIT_BAD_ARGUMENT);
    assert_string_equal(message, "info is NULL");
    attnkit_unit_info info = {.size = 8};
    assert_int_equal(attnkit_unit_get(0, &info, message), ATTNKIT_BAD_ARGUMENT);
    assert_non_null(strstr(message, "attnkit_unit_info.size is 8"));
}

/* Returns the unit that a name chooses, or NULL if the name chooses no unit. Sets *isa to the
 * instruction set. The choice has to succeed. */
static const char *unit_for(const char *name, const char **isa)
{
    attnkit_isa_choice choice = {.size = sizeof choice};
    assert_int_equal(attnkit_isa_choose(name, &choice, NULL), ATTNKIT_OK);
    *isa = choice.prefill;
    return choice.unit;
}

/* Returns the unit that an instruction set uses according to attnkit_unit_get, or NULL. */
static const char *used_unit(int isa)
{
    const char *name = NULL;
    const int count = attnkit_units(&units);
    for (int u = 0; u < count; u++) {
        attnkit_unit_info info = {.size = sizeof info};
        assert_int_equal(attnkit_unit_get(u, &info, NULL), ATTNKIT_OK);
        if (units[u].isa == isa && info.used)
            name = info.name;
    }
    return name;
}

static void a_unit_is_used_if_it_is_worth_it(void **state)
{
    (void)state;
    for (int i = 0; i < isa_count; i++) {
        const char *isa;
        if (!attnkit_isa_can_run(&isas[i]))
            continue;
        assert_ptr_equal(unit_for(isas[i].name, &isa), used_unit(i));
        assert_string_equal(isa, isas[i].name);
    }
}

static void check_named_unit(const struct unit *unit)
{
    const char *isa;
    char none[32], message[ATTNKIT_MESSAGE_SIZE];
    attnkit_isa_choice choice = {.size = sizeof choice};
    const attnkit_status status = attnkit_isa_choose(unit->name, &choice, message);
    if (attnkit_unit_can_run(unit)) {
        assert_int_equal(status, ATTNKIT_OK);
        assert_string_equal(choice.unit, unit->name);
    } else {
        assert_int_equal(status, ATTNKIT_BAD_ISA);
        assert_non_null(strstr(message, unit->name));
        assert_null(strstr(strstr(message, "possible here: "), unit->name));
    }
    snprintf(none, sizeof none, "%s+none", isas[unit->isa].name);
    if (attnkit_isa_can_run(&isas[unit->isa]))
        assert_null(unit_for(none, &isa));
    assert_int_equal(report_with(unit->name, NULL).call, status);
}

static void a_named_unit_is_used_or_refused(void **state)
{
    (void)state;
    static const char *const unknown[] = {"scalar+none", "avx512+", "avx512+bf17", "avx512none"};
    const int count = attnkit_units(&units);
    for (int u = 0; u < count; u++)
        check_named_unit(&units[u]);
    for (int i = 0; i < 4; i++) {
        attnkit_isa_choice choice = {.size = sizeof choice};
        char message[ATTNKIT_MESSAGE_SIZE];
        assert_int_equal(attnkit_isa_choose(unknown[i], &choice, message), ATTNKIT_BAD_ISA);
        assert_non_null(strstr(message, "no such instruction set or unit"));
    }
}

static void tables_of_units_differ_only_in_their_tiles(void **state)
{
    (void)state;
    const int count = attnkit_units(&units);
    for (int u = 0; u < count; u++) {
        if (!units[u].kernels)
            continue;
        const struct kernels *const without = isas[units[u].isa].kernels;
        struct kernels table = *units[u].kernels;
        assert_string_equal(table.name, units[u].name);
        const bool has_words_of_two = table.pairs || units[u].needs_leave;
        assert_true(table.pairs || table.integers != without->integers);
        /* If the unit has instructions for integers, its table has `integers->add` and
         * `matrix_integers->add`, or the table has `bytes->dot`. With these functions the library
         * checks the bits of the instructions. Tables of other units have none of these
         * functions. */
        const bool has_bytes = table.bytes && table.bytes->dot;
        assert_int_equal(table.integers != without->integers, table.integers->add || has_bytes);
        const struct matrix_integer_kernels *const maps = table.matrix_integers;
        assert_int_equal(maps != without->matrix_integers, maps->add || has_bytes);
        table.bytes = NULL;
        table.matrix_integers = without->matrix_integers;
        table.name = without->name;
        /* A unit may use decode_together for other blocks. */
        assert_int_equal(!table.together_rows, !table.decode_together);
        assert_int_equal(table.together_bytes == 0, !table.decode_together);
        table.together_rows = without->together_rows;
        table.together_bytes = without->together_bytes;
        table.pairs = NULL;
        table.integers = without->integers;
        /* Groups of products use words of two elements if and only if the unit has an instruction
         * for such words: the instruction for tiles of AMX, or the instruction of `pairs`. */
        assert_int_equal(table.grouped->elements, has_words_of_two ? 2 : 1);
        assert_true(table.grouped->elements == 2 || table.grouped == without->grouped);
        table.grouped = without->grouped;
        assert_memory_equal(&table, without, sizeof table);
    }
}

/* --- Tables ------------------------------------------------------------------------------ */

typedef void (*entry)(void);

enum { OWN_ENTRIES = 34, ENTRIES = OWN_ENTRIES + 2 + 5 + 4 + 6 };

_Static_assert(offsetof(struct kernels, pairs) - offsetof(struct kernels, exp2) ==
                   OWN_ENTRIES * sizeof(entry),
               "every entry of struct kernels belongs into list_entries");
_Static_assert(offsetof(struct integer_kernels, panel) == 2 * sizeof(entry),
               "every entry of struct integer_kernels belongs into list_entries, too");
_Static_assert(sizeof(struct integer_panel_kernels) == 5 * sizeof(entry),
               "every entry of struct integer_panel_kernels belongs into list_entries, too");
_Static_assert(offsetof(struct matrix_integer_kernels, add) -
                       offsetof(struct matrix_integer_kernels, round_rows) ==
                   4 * sizeof(entry),
               "every entry of struct matrix_integer_kernels belongs into list_entries, too");
_Static_assert(sizeof(struct grouped_kernels) == (3 + 6) * sizeof(entry),
               "every entry of struct grouped_kernels but begin and end belongs into list_entries");

static void list_entries(const struct kernels *k, entry entries[ENTRIES])
{
    const entry all[ENTRIES] = {(entry)k->exp2,
                                (entry)k->widen,
                                (entry)k->unpack,
                                (entry)k->widen_tile,
                                (entry)k->narrow,
                                (entry)k->rotate,
                                (entry)k->pack_q,
                                (entry)k->scores,
                                (entry)k->softmax,
                                (entry)k->adjust,
                                (entry)k->weighted_v,
                                (entry)k->fold,
                                (entry)k->finish,
                                (entry)k->decode,
                                (entry)k->decode_finish,
                                (entry)k->head_scores,
                                (entry)k->head_out,
                                (entry)k->nonzero,
                                (entry)k->widen_matrix,
                                (entry)k->product,
                                (entry)k->few_product,
                                (entry)k->same_ids,
                                (entry)k->unmasked,
                                (entry)k->bias_line,
                                (entry)k->keep_line,
                                (entry)k->compact_line,
                                (entry)k->spread_line,
                                (entry)k->mean,
                                (entry)k->multiply,
                                (entry)k->begin_total,
                                (entry)k->finish_total,
                                (entry)k->fold_row,
                                (entry)k->quotient_row,
                                (entry)k->fill_pointers,
                                (entry)k->integers->round_row,
                                (entry)k->integers->decode,
                                (entry)k->integers->panel->pack_q,
                                (entry)k->integers->panel->pack_k,
                                (entry)k->integers->panel->pack_v,
                                (entry)k->integers->panel->scores,
                                (entry)k->integers->panel->weighted_v,
                                (entry)k->matrix_integers->round_rows,
                                (entry)k->matrix_integers->make_words,
                                (entry)k->matrix_integers->product,
                                (entry)k->matrix_integers->few_product,
                                (entry)k->grouped->pack_row,
                                (entry)k->grouped->pack_group,
                                (entry)k->grouped->scores,
                                (entry)k->grouped->scale,
                                (entry)k->grouped->softmax,
                                (entry)k->grouped->weighted_v};
    memcpy(entries, all, sizeof all);
}

static void tables_are_complete_and_within_the_limits_of_the_loops(void **state)
{
    (void)state;
    for (int i = 0; i < isa_count; i++) {
        const struct kernels *k = isas[i].kernels;
        if (!k)
            continue;
        entry entries[ENTRIES];
        list_entries(k, entries);
        for (int e = 0; e < ENTRIES; e++)
            assert_non_null(entries[e]);
        assert_non_null(k->integers);
        assert_non_null(k->matrix_integers);
        assert_in_range(k->matrix_integers->rows, 1, MAX_MATRIX_ROWS);
        assert_in_range(k->matrix_integers->x_bytes, 1, 1024);
        assert_in_range(k->matrix_integers->words_bytes, 1, 1088);
        assert_non_null(k->grouped);
        assert_in_range(k->grouped->elements, 1, 2);
        assert_string_equal(k->name, isas[i].name);
        assert_in_range(k->vector, 4, MAX_VECTOR);
        assert_in_range(k->lanes, k->vector, MAX_LANES);
        assert_int_equal(k->lanes % k->vector, 0);
        assert_in_range(k->decode_rows, 1, MAX_DECODE_ROWS);
        assert_in_range(k->f32_decode_rows, 1, k->decode_rows);
        assert_in_range(k->far_rest_rows, 0, k->vector / 2);
        assert_in_range(k->f32_far_rest_rows, 0, k->vector / 2);
        assert_true(k->near_rest_bytes > 0);
        assert_in_range(k->matrix_rows, 1, MAX_MATRIX_ROWS);
        assert_in_range(k->f32_matrix_rows, 1, MAX_MATRIX_ROWS);
    }
}

static void no_table_has_functions_of_another_table(void **state)
{
    (void)state;
    for (int i = 0; i < isa_count; i++)
        for (int j = 0; j < i; j++) {
            if (!isas[i].kernels || !isas[j].kernels)
                continue;
            entry a[ENTRIES], b[ENTRIES];
            list_entries(isas[i].kernels, a);
            list_entries(isas[j].kernels, b);
            for (int x = 0; x < ENTRIES; x++)
                for (int y = 0; y < ENTRIES; y++)
                    assert_true(a[x] != b[y]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_set_is_described),
        cmocka_unit_test(the_reason_says_whether_it_is_built_and_can_run),
        cmocka_unit_test(scalar_comes_first_and_always_runs),
        cmocka_unit_test(indices_out_of_range_are_refused),
        cmocka_unit_test(null_structs_are_refused),
        cmocka_unit_test(structs_of_no_version_are_refused_and_not_filled),
        cmocka_unit_test(fields_of_a_newer_header_are_set_to_zero),
        cmocka_unit_test(a_named_instruction_set_is_chosen_if_it_can_run),
        cmocka_unit_test(messages_on_unknown_names_list_the_possible_names),
        cmocka_unit_test(the_choice_is_the_best_that_can_run),
        cmocka_unit_test(an_empty_variable_counts_as_not_set),
        cmocka_unit_test(the_variable_may_name_any_instruction_set_that_can_run),
        cmocka_unit_test(a_bad_name_in_the_variable_is_refused_by_every_call),
        cmocka_unit_test(a_variable_of_a_megabyte_is_refused),
        cmocka_unit_test(exec_isa_wins_over_the_variable),
        cmocka_unit_test(every_unit_is_described),
        cmocka_unit_test(bad_indices_of_units_are_refused),
        cmocka_unit_test(a_unit_is_used_if_it_is_worth_it),
        cmocka_unit_test(a_named_unit_is_used_or_refused),
        cmocka_unit_test(tables_of_units_differ_only_in_their_tiles),
        cmocka_unit_test(tables_are_complete_and_within_the_limits_of_the_loops),
        cmocka_unit_test(no_table_has_functions_of_another_table),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, list_isas, NULL);
}
