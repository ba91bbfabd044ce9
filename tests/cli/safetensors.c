/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the reader of safetensors files. The tests give the reader headers that other programs
 * write, wrong headers, headers that are cut off at any byte, and headers with any byte changed.
 * Each header ends at an unmapped page.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/formats/safetensors.h"
#include "tests/support/memory.h"

enum { MAX_HEADER = 4096 };

/* The memory of the headers. Each header ends at the end of this memory. */
static struct guarded page;

/* Parses a header that `data` bytes follow in the file. Returns NULL, or a message that describes
 * the fault of the header. */
static const char *parse(const char *header, size_t size, uint64_t data, struct safetensors *file)
{
    static char why[SAFETENSORS_WHY];
    char *const end = page.data + MAX_HEADER;
    memcpy(end - size, header, size);
    return safetensors_parse(end - size, size, data, file, why) ? NULL : why;
}

static void assert_refused(const char *header, uint64_t data, const char *why)
{
    struct safetensors file;
    const char *const wrong = parse(header, strlen(header), data, &file);
    assert_non_null(wrong);
    assert_string_equal(wrong, why);
    assert_null(file.tensors);
}

/* A header of two tensors with 28 bytes together, with metadata and spaces. */
static const char sample[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    " \"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[4,28]} ,\r\n\t"
    "\"b\":{ \"data_offsets\" : [ 0 , 4 ] , \"shape\" : [ 2 ] , \"dtype\" : \"BF16\" }}  ";

static void a_header_is_read(void **state)
{
    (void)state;
    struct safetensors file;
    assert_null(parse(sample, sizeof sample - 1, 28, &file));
    assert_int_equal(file.count, 2);
    const struct safetensor *const w = safetensors_find(&file, "w");
    const struct safetensor *const b = safetensors_find(&file, "b");
    assert_non_null(w);
    assert_non_null(b);
    assert_string_equal(w->dtype, "F32");
    assert_int_equal(w->rank, 2);
    assert_int_equal(w->shape[0], 2);
    assert_int_equal(w->shape[1], 3);
    assert_int_equal(w->begin, 4);
    assert_int_equal(w->end, 28);
    assert_string_equal(b->dtype, "BF16");
    assert_int_equal(b->rank, 1);
    assert_int_equal(b->end, 4);
    assert_null(safetensors_find(&file, "__metadata__"));
    assert_null(safetensors_find(&file, "w "));
    safetensors_close(&file);
}

static void a_file_may_have_no_tensors(void **state)
{
    (void)state;
    static const char *const headers[] = {"{}", "{ }   ", "{\"__metadata__\":{}}"};
    for (int i = 0; i < 3; i++) {
        struct safetensors file;
        assert_null(parse(headers[i], strlen(headers[i]), 0, &file));
        assert_null(safetensors_find(&file, ""));
        safetensors_close(&file);
    }
}

/* The tensor `none` has no elements. The elements of the tensor `half` have 4 bits. */
static void shapes_of_all_ranks_are_read(void **state)
{
    (void)state;
    static const char header[] =
        "{\"scalar\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"many\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,2],\"data_offsets\":[8,10]},"
        "\"none\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,4,0],\"data_offsets\":[8,8]},"
        "\"half\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[10,11]}}";
    struct safetensors file;
    assert_null(parse(header, sizeof header - 1, 11, &file));
    assert_int_equal(safetensors_find(&file, "scalar")->rank, 0);
    assert_int_equal(safetensors_find(&file, "many")->rank, 6);
    assert_int_equal(safetensors_find(&file, "none")->shape[0], INT64_MAX);
    safetensors_close(&file);
}

static void a_header_cut_off_anywhere_is_refused(void **state)
{
    (void)state;
    const size_t whole = sizeof sample - 3; /* without the spaces at its end */
    for (size_t size = 0; size < whole; size++) {
        struct safetensors file;
        assert_non_null(parse(sample, size, 28, &file));
        assert_null(file.tensors);
    }
}

/* Whatever a byte is changed to, the header is refused, or its tensors exactly fill the file. */
static void a_changed_byte_is_refused_or_harmless(void **state)
{
    (void)state;
    char header[sizeof sample];
    memcpy(header, sample, sizeof sample);
    for (size_t i = 0; i < sizeof sample - 1; i++) {
        for (int value = 0; value < 256; value++) {
            struct safetensors file;
            header[i] = (char)value;
            if (parse(header, sizeof sample - 1, 28, &file))
                continue;
            uint64_t bytes = 0;
            for (size_t t = 0; t < file.count; t++)
                bytes += file.tensors[t].end - file.tensors[t].begin;
            assert_int_equal(bytes, 28);
            safetensors_close(&file);
        }
        header[i] = sample[i];
    }
}

/* ----------------------------------------------------------------------------------- refusals */

static void malformed_headers_are_refused(void **state)
{
    (void)state;
    static const char *const headers[] = {"",
                                          " {}",
                                          "[]",
                                          "{",
                                          "}",
                                          "{}}",
                                          "{},",
                                          "{,}",
                                          "{}{}",
                                          "{\"a\"}",
                                          "{\"a\":}",
                                          "{\"a\":{}}",
                                          "{\"a\":1}",
                                          "{\"a\":[]}",
                                          "{\"a\":null}",
                                          "{a:{}}",
                                          "{\"__metadata__\":[]}",
                                          "{\"__metadata__\":{\"a\":1}}",
                                          "{\"__metadata__\":{\"a\":{}}}",
                                          "{\"__metadata__\":{\"a\":\"b\",}}",
                                          "{\"__metadata__\":{}",
                                          "{}\0"};
    for (size_t i = 0; i < sizeof headers / sizeof *headers - 1; i++)
        assert_refused(headers[i], 0, "a malformed header");
    struct safetensors file;
    assert_non_null(parse("{}\0", 3, 0, &file));
}

/* Returns a header that has only a tensor `a` with this dtype, shape and offsets, given as text. */
static const char *one(const char *dtype, const char *shape, const char *offsets)
{
    static char header[MAX_HEADER];
    snprintf(header, sizeof header, "{\"a\":{\"dtype\":%s,\"shape\":%s,\"data_offsets\":%s}}",
             dtype, shape, offsets);
    return header;
}

static void malformed_tensors_are_refused(void **state)
{
    (void)state;
    static const char *const shapes[] = {"",
                                         "[",
                                         "[1",
                                         "[1,]",
                                         "[,1]",
                                         "[1 1]",
                                         "[-1]",
                                         "[+1]",
                                         "[1.0]",
                                         "[1e0]",
                                         "[01]",
                                         "[\"1\"]",
                                         "[[1]]",
                                         "[18446744073709551616]",
                                         "[9223372036854775808]",
                                         "1",
                                         "null",
                                         "{}"};
    static const char *const offsets[] = {
        "[]", "[0]", "[0,4,4]", "[0,4", "[0 4]", "[-0,4]", "[0,18446744073709551616]", "4", "null"};
    static const char *const dtypes[] = {"", "1", "null", "[\"F32\"]", "F32"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        assert_refused(one("\"F32\"", shapes[i], "[0,4]"), 4, "a malformed header");
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++)
        assert_refused(one("\"F32\"", "[1]", offsets[i]), 4, "a malformed header");
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        assert_refused(one(dtypes[i], "[1]", "[0,4]"), 4, "a malformed header");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "a malformed header");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],"
                   "\"data_offsets\":[0,4]}}",
                   4, "a malformed header");
    assert_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4,
                   "a malformed header");
}

static void bad_tensors_are_refused(void **state)
{
    (void)state;
    static const char unfit[] = "data_offsets that do not fit the shape: 'a'";
    assert_refused(one("\"F33\"", "[1]", "[0,4]"), 4, "an unknown dtype: 'a' is 'F33'");
    assert_refused(one("\"f32\"", "[1]", "[0,4]"), 4, "an unknown dtype: 'a' is 'f32'");
    assert_refused(one("\"\"", "[1]", "[0,4]"), 4, "an unknown dtype: 'a' is ''");
    assert_refused(one("\"F32\"", "[1]", "[4,0]"), 4,
                   "data_offsets that end before they begin: 'a'");
    assert_refused(one("\"F32\"", "[1]", "[0,3]"), 3, unfit);
    assert_refused(one("\"F32\"", "[2]", "[0,4]"), 4, unfit);
    assert_refused(one("\"BF16\"", "[1,1]", "[0,4]"), 4, unfit);
    assert_refused(one("\"F4\"", "[1]", "[0,1]"), 1, unfit);
    assert_refused(one("\"F32\"", "[0]", "[0,4]"), 4, unfit);
    assert_refused(one("\"F32\"", "[4611686018427387904]", "[0,0]"), 0, unfit);
    assert_refused(one("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0,
                   "a shape that is too large for the memory: 'a'");
}

/* Checks that a file is refused with the message `why`. The file has tensors of bytes at the given
 * places, called "a", "b" and so on, and `data` bytes after the header. */
static void assert_places(const char *why, uint64_t data, size_t count, const uint64_t (*places)[2])
{
    char header[MAX_HEADER] = "{";
    size_t used = 1;
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(
            header + used, sizeof header - used,
            "%s\"%c\":{\"dtype\":\"U8\",\"shape\":[%llu],\"data_offsets\":[%llu,%llu]}",
            i ? "," : "", (int)('a' + i), (unsigned long long)(places[i][1] - places[i][0]),
            (unsigned long long)places[i][0], (unsigned long long)places[i][1]);
    snprintf(header + used, sizeof header - used, "}");
    assert_refused(header, data, why);
}

/* The message names the tensors that overlap. Gaps between tensors and tensors beyond the end of
 * the file do not change the message. */
static void tensors_that_overlap_are_named(void **state)
{
    (void)state;
    assert_places("tensors that overlap: 'a' ends at byte 4, 'b' begins at byte 3", 7, 2,
                  (const uint64_t[][2]){{0, 4}, {3, 7}});
    assert_places("tensors that overlap: 'b' ends at byte 4, 'a' begins at byte 3", 7, 2,
                  (const uint64_t[][2]){{3, 7}, {0, 4}});
    assert_places("tensors that overlap: 'a' ends at byte 8, 'b' begins at byte 4", 8, 2,
                  (const uint64_t[][2]){{4, 8}, {4, 8}});
    assert_places("tensors that overlap: 'a' ends at byte 8, 'b' begins at byte 2", 12, 3,
                  (const uint64_t[][2]){{0, 8}, {2, 4}, {8, 12}});
    assert_places("tensors that overlap: 'c' ends at byte 9, 'b' begins at byte 8", 16, 3,
                  (const uint64_t[][2]){{0, 4}, {8, 16}, {4, 9}});
    assert_places("tensors that overlap: 'a' ends at byte 12, 'b' begins at byte 10", 16, 2,
                  (const uint64_t[][2]){{8, 12}, {10, 16}});
    assert_places("tensors that overlap: 'c' ends at byte 12, 'b' begins at byte 11", 16, 3,
                  (const uint64_t[][2]){{0, 4}, {11, 16}, {8, 12}});
    assert_places("tensors that overlap: 'a' ends at byte 12, 'b' begins at byte 11", 4, 2,
                  (const uint64_t[][2]){{8, 12}, {11, 16}});
    assert_places("tensors that overlap: 'a' ends at byte 4, 'b' begins at byte 2", 4, 2,
                  (const uint64_t[][2]){{0, 4}, {2, 2}});
}

static void bytes_outside_all_tensors_are_refused(void **state)
{
    (void)state;
    assert_places("a gap: no tensor has the bytes 4 .. 4 before 'b'", 9, 2,
                  (const uint64_t[][2]){{0, 4}, {5, 9}});
    assert_places("a gap: no tensor has the bytes 0 .. 7 before 'a'", 12, 1,
                  (const uint64_t[][2]){{8, 12}});
    assert_places("a gap: no tensor has the bytes 0 .. 3 before 'a'", 4, 1,
                  (const uint64_t[][2]){{4, 4}});
    assert_places("1 bytes after the last tensor", 9, 2, (const uint64_t[][2]){{0, 4}, {4, 8}});
    assert_refused("{}", 1, "1 bytes after the last tensor");
}

static void tensors_beyond_the_end_are_refused(void **state)
{
    (void)state;
    assert_places("tensors beyond the end of the file: 'b' ends at byte 8 of 7", 7, 2,
                  (const uint64_t[][2]){{0, 4}, {4, 8}});
    assert_places("tensors beyond the end of the file: 'b' ends at byte 9 of 8", 8, 2,
                  (const uint64_t[][2]){{0, 4}, {5, 9}});
    assert_places("tensors beyond the end of the file: 'a' ends at byte 18446744073709551615 of 4",
                  4, 1, (const uint64_t[][2]){{UINT64_MAX - 4, UINT64_MAX}});
}

static void names_that_occur_twice_are_refused(void **state)
{
    (void)state;
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                   "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
                   8, "a name that occurs twice: 'a'");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                   "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
                   4, "a name that occurs twice: 'a'");
    assert_refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0,
                   "a name that occurs twice: '__metadata__'");
}

/* The message cuts a long name, so that names of any length fit. */
static void a_long_name_is_cut(void **state)
{
    (void)state;
    char header[MAX_HEADER], name[1001] = "", why[300];
    memset(name, 'n', sizeof name - 1);
    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,5]}}", name);
    snprintf(why, sizeof why, "data_offsets that do not fit the shape: '%.200s'", name);
    assert_refused(header, 5, why);
}

/* -------------------------------------------------------------------------------------- strings
 */

/* Checks that the reader reads the tensor name `written` as `name`. If `name` is NULL, the reader
 * must refuse the header. */
static void assert_name(const char *written, const char *name)
{
    static const char tensor[] = "\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}";
    char header[MAX_HEADER];
    struct safetensors file;
    snprintf(header, sizeof header, "{\"%s%s", written, tensor);
    const char *const wrong = parse(header, strlen(header), 1, &file);
    if (!name) {
        assert_non_null(wrong);
        return;
    }
    assert_null(wrong);
    assert_string_equal(file.tensors[0].name, name);
    safetensors_close(&file);
}

static void names_are_utf8_and_may_have_escapes(void **state)
{
    (void)state;
    assert_name("", "");
    assert_name("a.b_c-0/\x7e", "a.b_c-0/~");
    assert_name("\xc2\xa0\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xf0\x90\x80\x80\xf4\x8f\xbf"
                "\xbf",
                "\xc2\xa0\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xf0\x90\x80\x80\xf4\x8f\xbf"
                "\xbf");
    assert_name("\\\"\\\\\\/", "\"\\/");
    assert_name("\\u0041\\u00e9\\u20AC\\uD834\\uDD1E\\uDBFF\\uDFFF",
                "A\xc3\xa9\xe2\x82\xac\xf0\x9d\x84\x9e\xf4\x8f\xbf\xbf");
}

static void odd_strings_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"\x80",
                                        "\xbf",
                                        "\xc0\x80",
                                        "\xc1\xbf",
                                        "\xc3",
                                        "\xc3(",
                                        "\xe0\x80\x80",
                                        "\xe0\x9f\xbf",
                                        "\xe2\x82",
                                        "\xed\xa0\x80",
                                        "\xed\xbf\xbf",
                                        "\xf0\x80\x80\x80",
                                        "\xf0\x8f\xbf\xbf",
                                        "\xf4\x90\x80\x80",
                                        "\xf5\x80\x80\x80",
                                        "\xff",
                                        "\xfe",
                                        "\x1f",
                                        "\n",
                                        "\x7f",
                                        "\xc2\x80",
                                        "\xc2\x9f",
                                        "\x1b[2J",
                                        "\\n",
                                        "\\t",
                                        "\\b",
                                        "\\u0000",
                                        "\\u001b",
                                        "\\u009F",
                                        "\\x",
                                        "\\",
                                        "\\u",
                                        "\\u12",
                                        "\\u12g4",
                                        "\\U0041",
                                        "\\ud800",
                                        "\\ud800x",
                                        "\\ud800\\n",
                                        "\\ud800\\u0041",
                                        "\\ud800\\ud800",
                                        "\\udc00",
                                        "\\udc00\\ud800"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_name(names[i], NULL);
}

/* --------------------------------------------------------------------------------------- files
 */

static void bytes_are_read_in_any_order(void **state)
{
    (void)state;
    char path[] = P_tmpdir "/attnkit-safetensors-XXXXXX";
    uint64_t length = sizeof sample - 1;
    char data[28], read[24];
    for (int i = 0; i < 28; i++)
        data[i] = (char)i;
    FILE *const made = fdopen(mkstemp(path), "wb");
    assert_non_null(made);
    fwrite(&length, 1, 8, made);
    fwrite(sample, 1, length, made);
    fwrite(data, 1, sizeof data, made);
    fclose(made);
    struct safetensors file;
    assert_true(safetensors_open(path, &file));
    for (int i = 0; i < 3; i++) {
        assert_true(safetensors_read(&file, safetensors_find(&file, "w"), read));
        assert_memory_equal(read, data + 4, 24);
        assert_true(safetensors_read(&file, safetensors_find(&file, "b"), read));
        assert_memory_equal(read, data, 4);
    }
    safetensors_close(&file);
    remove(path);
}

static int map_page(void **state)
{
    (void)state;
    page = memory_guarded(MAX_HEADER, 0, true);
    return 0;
}

static int unmap_page(void **state)
{
    (void)state;
    memory_unguard(&page);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_is_read),
        cmocka_unit_test(a_file_may_have_no_tensors),
        cmocka_unit_test(shapes_of_all_ranks_are_read),
        cmocka_unit_test(a_header_cut_off_anywhere_is_refused),
        cmocka_unit_test(a_changed_byte_is_refused_or_harmless),
        cmocka_unit_test(malformed_headers_are_refused),
        cmocka_unit_test(malformed_tensors_are_refused),
        cmocka_unit_test(bad_tensors_are_refused),
        cmocka_unit_test(tensors_that_overlap_are_named),
        cmocka_unit_test(bytes_outside_all_tensors_are_refused),
        cmocka_unit_test(tensors_beyond_the_end_are_refused),
        cmocka_unit_test(names_that_occur_twice_are_refused),
        cmocka_unit_test(a_long_name_is_cut),
        cmocka_unit_test(names_are_utf8_and_may_have_escapes),
        cmocka_unit_test(odd_strings_are_refused),
        cmocka_unit_test(bytes_are_read_in_any_order),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, map_page, unmap_page);
}
