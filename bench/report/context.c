/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes the machine, the compiler and the commit for the "context" of results. The numbers of
 * the CPU model are included, because virtual machines give CPUs of several generations the same
 * name.
 */
#include "bench/report/context.h"

#include <stdio.h>
#include <string.h>

#include <attnkit.h>

#include "dispatch/cpu/isa.h"
#include "tools/cli/tool.h"
#include "bench/report/commit.h"
#include "bench/measure/gbench.h"

enum { CONTEXT_LINE = 256, NUMBER = 16 };

struct cpu_number {
    const char *key, *name; /* key in /proc/cpuinfo, name in the context */
};

/* The first three numbers exist on x86, the other numbers on ARM. */
static const struct cpu_number cpu_numbers[] = {
    {"cpu family", "family"},           {"model\t", "model"}, {"stepping", "stepping"},
    {"CPU implementer", "implementer"}, {"CPU part", "part"}, {"CPU variant", "variant"},
};

/* Sets `text` to the numbers of the CPU model, as in "family 25, model 17, stepping 1". Sets `text`
 * to "" if the system reports no such number. */
static void describe_model(char text[CONTEXT_LINE])
{
    char value[CPUINFO_LINE];
    text[0] = '\0';
    for (size_t i = 0; i < sizeof cpu_numbers / sizeof *cpu_numbers; i++) {
        const size_t used = strlen(text);
        cpuinfo(cpu_numbers[i].key, value);
        if (value[0])
            snprintf(text + used, CONTEXT_LINE - used, "%s%s %.*s", used ? ", " : "",
                     cpu_numbers[i].name, NUMBER, value);
    }
}

/* Lists the instruction sets that can run, from worst to best, as in "scalar avx2 avx512". */
static void describe_isas(char text[CONTEXT_LINE])
{
    const struct isa *isas;
    const int count = attnkit_isas(&isas);
    text[0] = '\0';
    for (int i = 0; i < count; i++) {
        const size_t used = strlen(text);
        if (attnkit_isa_can_run(&isas[i]))
            snprintf(text + used, CONTEXT_LINE - used, "%s%s", used ? " " : "", isas[i].name);
    }
}

void describe_context(void)
{
    char cpu[CPUINFO_LINE], text[CONTEXT_LINE];
    cpuinfo("model name", cpu);
    gbench_context("cpu", cpu);
    describe_model(text);
    gbench_context("cpu_model", text);
    describe_isas(text);
    gbench_context("isas", text);
    gbench_context("attnkit", attnkit_version());
    gbench_context("commit", bench_commit);
    gbench_context("compiler", tool_compiler());
}
