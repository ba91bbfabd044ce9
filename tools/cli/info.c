/* SPDX-License-Identifier: Apache-2.0
 *
 * `attnkit info` prints the version of the library and the processor of this machine. For each
 * instruction set and each unit, the command prints whether this set or unit can run here, with the
 * reason. The command also prints the instruction sets that the library chooses. With --isas, the
 * command prints only the names of the instruction sets that run here.
 */
#include <attnkit.h>

#include <stdio.h>
#include <string.h>

#include "tools/cli/tool.h"

enum { COLUMNS = 96, LABEL = 10 };

/* ----------------------------------------------------------------- the processor, from Linux */

/* Returns whether a CPU feature matters to arithmetic. Linux may list more than a hundred
 * features. */
static bool is_of_interest(const char *feature)
{
    static const char *const prefixes[] = {"sse4_2", "f16c", "fma", "avx",  "amx",
                                           "asimd",  "fphp", "sve", "bf16", "i8mm"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strncmp(feature, prefixes[i], strlen(prefixes[i])))
            return true;
    return false;
}

static void print_features(char *features)
{
    const size_t start = (size_t)printf("%-*s", LABEL - 1, "features");
    size_t column = start;
    for (char *word = strtok(features, " "); word; word = strtok(NULL, " ")) {
        if (!is_of_interest(word))
            continue;
        if (column + strlen(word) >= COLUMNS)
            column = (size_t)printf("\n%*s", LABEL - 1, "") - 1;
        column += (size_t)printf(" %s", word);
    }
    puts(column == start ? " not known" : "");
}

static void print_machine(void)
{
    char text[CPUINFO_LINE];
    cpuinfo("model name", text);
    say("%-*s%s", LABEL, "CPU", text[0] ? text : "model not known");
    cpuinfo("flags", text);
    if (!text[0])
        cpuinfo("Features", text);
    print_features(text);
}

/* ------------------------------------------------------------------------ instruction sets */

static attnkit_isa_info isa(int32_t index)
{
    attnkit_isa_info info = {.size = sizeof info};
    attnkit_isa_get(index, &info, NULL);
    return info;
}

static const char *yes_or_no(int32_t yes)
{
    return yes ? "yes" : "no";
}

static void print_isas(void)
{
    int width = 0;
    for (int32_t i = 0; i < attnkit_isa_count(); i++) {
        const int length = (int)strlen(isa(i).needs);
        width = length > width ? length : width;
    }
    putchar('\n');
    say("%-*s%-7s%-6s%-*s  %s", LABEL, "ISA", "built", "runs", width, "needs", "why");
    for (int32_t i = 0; i < attnkit_isa_count(); i++) {
        const attnkit_isa_info info = isa(i);
        say("%-*s%-7s%-6s%-*s  %s", LABEL, info.name, yes_or_no(info.built),
            yes_or_no(info.can_run), width, info.needs, info.reason);
    }
}

static attnkit_unit_info unit(int32_t index)
{
    attnkit_unit_info info = {.size = sizeof info};
    attnkit_unit_get(index, &info, NULL);
    return info;
}

static void print_units(void)
{
    int name = LABEL, needs = 0;
    for (int32_t i = 0; i < attnkit_unit_count(); i++) {
        const int length = (int)strlen(unit(i).name) + 1, needed = (int)strlen(unit(i).needs);
        name = length > name ? length : name;
        needs = needed > needs ? needed : needs;
    }
    putchar('\n');
    say("%-*s%-7s%-6s%-6s%-*s  %s", name, "unit", "built", "runs", "used", needs, "needs", "why");
    for (int32_t i = 0; i < attnkit_unit_count(); i++) {
        const attnkit_unit_info info = unit(i);
        say("%-*s%-7s%-6s%-6s%-*s  %s", name, info.name, yes_or_no(info.built),
            yes_or_no(info.can_run), yes_or_no(info.used), needs, info.needs, info.reason);
    }
}

static bool print_choice(void)
{
    char message[ATTNKIT_MESSAGE_SIZE];
    attnkit_isa_choice choice = {.size = sizeof choice};
    if (attnkit_isa_choose(NULL, &choice, message) != ATTNKIT_OK)
        return complain("%s", message);
    putchar('\n');
    say("%-*s%s (%s)", LABEL, "prefill", choice.unit ? choice.unit : choice.prefill, choice.reason);
    say("%-*s%s (%s)", LABEL, "decode", choice.decode, choice.reason);
    return true;
}

static void print_version(void)
{
    say("%-*s%s, this command compiled by %s", LABEL, "attnkit", attnkit_version(),
        tool_compiler());
}

static void print_isa_names(void)
{
    for (int32_t i = 0; i < attnkit_isa_count(); i++)
        if (isa(i).can_run)
            say("%s", isa(i).name);
}

int info_command(int argc, char **argv)
{
    const char *help = NULL, *isas = NULL;
    const struct option options[] = {
        {"--isas", NULL, "only the names of the instruction sets that run here, slowest first",
         &isas},
        {"--help", NULL, "this text", &help},
    };
    const int count = sizeof options / sizeof *options;
    if (!options_parse(options, count, argc, argv))
        return EXIT_USAGE;
    if (help) {
        puts("attnkit info: the instruction sets and units: which of them can run here, and which "
             "are chosen\n");
        options_print_help(options, count);
        return EXIT_OK;
    }
    if (isas) {
        print_isa_names();
        return EXIT_OK;
    }
    print_version();
    print_machine();
    print_isas();
    print_units();
    return print_choice() ? EXIT_OK : EXIT_REFUSED;
}
