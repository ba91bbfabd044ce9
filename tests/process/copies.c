/* SPDX-License-Identifier: Apache-2.0
 *
 * Several copies of the library in one process, as if a program and its plugins each had their own
 * copy. The test is linked with the static library. It loads two copies of the shared library from
 * files of their own, one of them with global symbols, and a third copy into another namespace of
 * the loader. All copies give the same bits, and each chooses its instruction set itself. If the
 * library is loaded and unloaded a thousand times, the process holds no more resources than before.
 *
 *   copies SHARED_LIBRARY
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <dlfcn.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attnkit.h"
#include "tests/support/random.h"

enum {
    ROWS = 70,
    DIM = 24,
    LOADS = 1000,
};

static const char *shared_library;

/* A copy of the library in this process. */
struct copy {
    char folder[64], file[96]; /* empty if the copy has no file of its own */
    void *library;
    __typeof__(attnkit_attention) *attention;
    __typeof__(attnkit_isa_choose) *choose;
    __typeof__(attnkit_isa_get) *get;
};

static void *symbol(void *library, const char *name)
{
    void *const address = dlsym(library, name);
    if (!address)
        fail_msg("%s", dlerror());
    return address;
}

static void bind(struct copy *c, void *library)
{
    if (!library)
        fail_msg("%s", dlerror());
    c->library = library;
    *(void **)&c->attention = symbol(library, "attnkit_attention");
    *(void **)&c->choose = symbol(library, "attnkit_isa_choose");
    *(void **)&c->get = symbol(library, "attnkit_isa_get");
}

static void copy_file(const char *from_name, const char *to_name)
{
    static char bytes[1 << 16];
    FILE *const from = fopen(from_name, "rb"), *const to = fopen(to_name, "wb");
    assert_true(from && to);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, from)) > 0;)
        assert_int_equal(fwrite(bytes, 1, n, to), n);
    fclose(from);
    assert_int_equal(fclose(to), 0);
}

static struct copy copy_from_a_file(int visibility)
{
    struct copy c = {.folder = P_tmpdir "/attnkit-XXXXXX"};
    assert_non_null(mkdtemp(c.folder));
    snprintf(c.file, sizeof c.file, "%s/libother.so", c.folder);
    copy_file(shared_library, c.file);
    bind(&c, dlopen(c.file, RTLD_NOW | visibility));
    return c;
}

static struct copy copy_in_a_namespace(void)
{
    struct copy c = {0};
    bind(&c, dlmopen(LM_ID_NEWLM, shared_library, RTLD_NOW | RTLD_LOCAL));
    return c;
}

static struct copy linked_copy(void)
{
    return (struct copy){
        .attention = attnkit_attention, .choose = attnkit_isa_choose, .get = attnkit_isa_get};
}

static void copy_end(struct copy *c)
{
    if (c->library)
        assert_int_equal(dlclose(c->library), 0);
    if (c->file[0]) {
        unlink(c->file);
        rmdir(c->folder);
    }
}

/* --- A call ----------------------------------------------------------------------------------- */

static float q[ROWS * DIM], k[ROWS * DIM], v[ROWS * DIM];
static _Alignas(64) char workspace[1 << 20];

static int make_inputs(void **state)
{
    uint64_t random = 28;
    (void)state;
    for (int i = 0; i < ROWS * DIM; i++) {
        q[i] = random_uniform(&random);
        k[i] = random_uniform(&random);
        v[i] = random_uniform(&random);
    }
    return 0;
}

static attnkit_status attend(const struct copy *c, const char *isa, float *out)
{
    const attnkit_attention_args args = {
        .size = sizeof args,
        .flags = ATTNKIT_CAUSAL,
        .align = ATTNKIT_ALIGN_UPPER_LEFT,
        .batch = 1,
        .q_heads = 1,
        .kv_heads = 1,
        .q_len = ROWS,
        .kv_len = ROWS,
        .head_dim = DIM,
        .q = {.data = q},
        .k = {.data = k},
        .v = {.data = v},
        .out = {.data = out},
    };
    const attnkit_exec exec = {.size = sizeof exec,
                               .isa = isa,
                               .workspace = workspace,
                               .workspace_size = sizeof workspace};
    return c->attention(&args, &exec, NULL);
}

/* --- Copies ----------------------------------------------------------------------------------- */

enum { COPIES = 4 };

static void begin_copies(struct copy copies[COPIES])
{
    copies[0] = linked_copy();
    copies[1] = copy_from_a_file(RTLD_GLOBAL); /* loaded before the next copy, which might bind to
                                                  the symbols of this copy */
    copies[2] = copy_from_a_file(RTLD_LOCAL);
    copies[3] = copy_in_a_namespace();
    for (int i = 0; i < COPIES; i++)
        for (int j = 0; j < i; j++)
            assert_true(copies[i].attention != copies[j].attention);
}

static void end_copies(struct copy copies[COPIES])
{
    for (int i = 0; i < COPIES; i++)
        copy_end(&copies[i]);
}

static void copies_have_the_same_bits(void **state)
{
    static float expected[ROWS * DIM], out[ROWS * DIM];
    struct copy copies[COPIES];
    (void)state;
    begin_copies(copies);
    assert_int_equal(attend(&copies[0], "scalar", expected), ATTNKIT_OK);
    int compared = 0;
    for (int i = 0; i < COPIES; i++)
        for (int32_t isa = 0; isa < attnkit_isa_count(); isa++) {
            attnkit_isa_info info = {.size = sizeof info};
            assert_int_equal(copies[i].get(isa, &info, NULL), ATTNKIT_OK);
            if (!info.can_run)
                continue;
            memset(out, 0xa5, sizeof out);
            assert_int_equal(attend(&copies[i], info.name, out), ATTNKIT_OK);
            assert_memory_equal(out, expected, sizeof out);
            compared++;
        }
    assert_true(compared >= COPIES);
    end_copies(copies);
}

/* Each copy chooses an instruction set at its first call, and keeps the choice. */
static void each_copy_chooses_for_itself(void **state)
{
    static float out[ROWS * DIM];
    struct copy copies[COPIES];
    (void)state;
    begin_copies(copies);
    for (int i = 0; i < COPIES; i++) {
        const bool by_variable = i == 1;
        attnkit_isa_choice choice = {.size = sizeof choice};
        if (by_variable)
            setenv("ATTNKIT_ISA", "scalar", 1);
        assert_int_equal(attend(&copies[i], NULL, out), ATTNKIT_OK);
        unsetenv("ATTNKIT_ISA");
        assert_int_equal(copies[i].choose(NULL, &choice, NULL), ATTNKIT_OK);
        assert_int_equal(strstr(choice.reason, "ATTNKIT_ISA") != NULL, by_variable);
    }
    end_copies(copies);
}

/* --- Loading ---------------------------------------------------------------------------------- */

/* The resources that the process holds. */
struct holdings {
    int descriptors, mappings;
    size_t allocated; /* bytes */
};

static int open_descriptors(void)
{
    DIR *const folder = opendir("/proc/self/fd");
    int count = 0;
    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static int mappings(void)
{
    FILE *const maps = fopen("/proc/self/maps", "r");
    int count = 0;
    assert_non_null(maps);
    for (int c; (c = fgetc(maps)) != EOF;)
        count += c == '\n';
    fclose(maps);
    return count;
}

static struct holdings take_stock(void)
{
    return (struct holdings){open_descriptors(), mappings(), mallinfo2().uordblks};
}

static void load_and_use(void)
{
    static float out[ROWS * DIM];
    struct copy c = {0};
    bind(&c, dlopen(shared_library, RTLD_NOW | RTLD_LOCAL));
    assert_int_equal(attend(&c, NULL, out), ATTNKIT_OK);
    copy_end(&c);
}

static void the_library_loads_and_unloads_a_thousand_times(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) /* in these loads, the loader and the C library allocate what they
                                    keep for later loads */
        load_and_use();
    take_stock();
    const struct holdings before = take_stock();
    for (int i = 0; i < LOADS; i++)
        load_and_use();
    const struct holdings after = take_stock();
    assert_int_equal(after.descriptors, before.descriptors);
    assert_int_equal(after.mappings, before.mappings);
    assert_int_equal(after.allocated, before.allocated);
    assert_null(dlopen(shared_library, RTLD_NOW | RTLD_NOLOAD));
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: copies SHARED_LIBRARY\n");
        return 2;
    }
    shared_library = argv[1];
    unsetenv("ATTNKIT_ISA");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_copy_chooses_for_itself),
        cmocka_unit_test(copies_have_the_same_bits),
        cmocka_unit_test(the_library_loads_and_unloads_a_thousand_times),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_inputs, NULL);
}
