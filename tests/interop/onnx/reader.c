/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the reader of ONNX's tensors and nodes. The tests make protobuf messages of nodes and of
 * tensors. The tensors have elements in every form. Some messages are cut off, have more elements
 * than the dimensions say, or have a changed byte. An unmapped page follows the last byte of a
 * message.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/memory.h"
#include "tests/interop/onnx/node.h"
#include "tests/interop/onnx/tensor.h"

enum { MAX_MESSAGE = 256 };

/* A message under construction. */
struct builder {
    uint8_t data[MAX_MESSAGE];
    size_t size;
};

static void add_varint(struct builder *b, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        b->data[b->size++] = (uint8_t)(value | 0x80);
    b->data[b->size++] = (uint8_t)value;
}

static void add_number(struct builder *b, unsigned field, uint64_t value)
{
    add_varint(b, field << 3 | WIRE_VARINT);
    add_varint(b, value);
}

static void add_bytes(struct builder *b, unsigned field, const void *data, size_t size)
{
    add_varint(b, field << 3 | WIRE_BYTES);
    add_varint(b, size);
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

static void add_float(struct builder *b, unsigned field, float value)
{
    add_varint(b, field << 3 | WIRE_FIXED32);
    memcpy(b->data + b->size, &value, sizeof value);
    b->size += sizeof value;
}

/* Returns a message that holds a tensor of the given dimensions, without elements. */
static struct builder begin_tensor(enum tensor_type type, int64_t rows, int64_t columns)
{
    struct builder b = {.size = 0};
    add_number(&b, 1, (uint64_t)rows);
    add_number(&b, 1, (uint64_t)columns);
    add_number(&b, 2, (uint64_t)type);
    return b;
}

/* The memory of the messages. Each message is copied to the end of this memory. */
static struct guarded page;

static struct bytes at_the_end(const uint8_t *data, size_t size)
{
    uint8_t *const end = (uint8_t *)page.data + MAX_MESSAGE;
    memcpy(end - size, data, size);
    return (struct bytes){end - size, end};
}

static const char *parse(const struct builder *b, struct tensor *tensor)
{
    return tensor_parse(at_the_end(b->data, b->size), tensor);
}

static void assert_refused(const struct builder *b, const char *why)
{
    struct tensor tensor;
    const char *const wrong = parse(b, &tensor);
    assert_non_null(wrong);
    assert_string_equal(wrong, why);
    assert_null(tensor.data);
}

static void assert_tensor(const struct builder *b, enum tensor_type type, const void *elements)
{
    struct tensor tensor;
    assert_null(parse(b, &tensor));
    assert_int_equal(tensor.type, type);
    assert_int_equal(tensor.rank, 2);
    assert_int_equal(tensor.dims[0], 2);
    assert_int_equal(tensor.dims[1], 3);
    assert_int_equal(tensor.count, 6);
    assert_memory_equal(tensor.data, elements, tensor.count * tensor.element);
    tensor_free(&tensor);
}

static const float floats[6] = {1.0f, -2.5f, 3e38f, -0.0f, 1e-45f, 0.1f};
static const int64_t int64s[6] = {0, 1, -1, INT64_MAX, INT64_MIN, 300};
static const uint16_t halves[6] = {0, 0x3c00, 0xffff, 0x8000, 1, 0x7c00};
static const uint8_t bools[6] = {0, 1, 1, 0, 0, 1};

static struct builder raw_floats(void)
{
    struct builder b = begin_tensor(TENSOR_FLOAT, 2, 3);
    add_bytes(&b, 9, floats, sizeof floats);
    return b;
}

static void raw_elements_are_read(void **state)
{
    (void)state;
    static const uint8_t other_trues[6] = {0, 2, 255, 0, 0, 1};
    const struct {
        enum tensor_type type;
        const void *stored, *elements;
        size_t size;
    } cases[] = {
        {TENSOR_FLOAT, floats, floats, sizeof floats},
        {TENSOR_INT64, int64s, int64s, sizeof int64s},
        {TENSOR_FLOAT16, halves, halves, sizeof halves},
        {TENSOR_BFLOAT16, halves, halves, sizeof halves},
        {TENSOR_BOOL, other_trues, bools, sizeof bools},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct builder b = begin_tensor(cases[i].type, 2, 3);
        add_bytes(&b, 9, cases[i].stored, cases[i].size);
        assert_tensor(&b, cases[i].type, cases[i].elements);
    }
}

static void numbers_are_read_one_by_one(void **state)
{
    (void)state;
    struct builder f = begin_tensor(TENSOR_FLOAT, 2, 3), i = begin_tensor(TENSOR_INT64, 2, 3);
    struct builder h = begin_tensor(TENSOR_FLOAT16, 2, 3), b = begin_tensor(TENSOR_BOOL, 2, 3);
    for (int j = 0; j < 6; j++) {
        add_float(&f, 4, floats[j]);
        add_number(&i, 7, (uint64_t)int64s[j]);
        add_number(&h, 5, halves[j]);
        add_number(&b, 5, bools[j]);
    }
    assert_tensor(&f, TENSOR_FLOAT, floats);
    assert_tensor(&i, TENSOR_INT64, int64s);
    assert_tensor(&h, TENSOR_FLOAT16, halves);
    assert_tensor(&b, TENSOR_BOOL, bools);
}

/* In the first tensor, the elements come before the dimensions, and the dimensions and all elements
 * but the last are packed. In the second tensor, only the elements are packed. */
static void packed_numbers_are_read(void **state)
{
    (void)state;
    struct builder numbers = {.size = 0}, b = {.size = 0};
    for (int j = 0; j < 5; j++)
        add_varint(&numbers, (uint64_t)int64s[j]);
    add_bytes(&b, 7, numbers.data, numbers.size);
    add_number(&b, 7, (uint64_t)int64s[5]);
    add_bytes(&b, 1, "\2\3", 2);
    add_bytes(&b, 8, "a name", 6);
    add_number(&b, 2, TENSOR_INT64);
    assert_tensor(&b, TENSOR_INT64, int64s);
    b = begin_tensor(TENSOR_FLOAT, 2, 3);
    add_bytes(&b, 4, floats, sizeof floats);
    assert_tensor(&b, TENSOR_FLOAT, floats);
}

static void empty_tensors_and_scalars_are_read(void **state)
{
    (void)state;
    struct tensor tensor;
    struct builder b = begin_tensor(TENSOR_FLOAT, 0, 3);
    assert_null(parse(&b, &tensor));
    assert_non_null(tensor.data);
    assert_int_equal(tensor.count, 0);
    tensor_free(&tensor);
    b.size = 0;
    add_number(&b, 2, TENSOR_INT64);
    add_number(&b, 7, 42);
    assert_null(parse(&b, &tensor));
    assert_int_equal(tensor.rank, 0);
    assert_int_equal(*(int64_t *)tensor.data, 42);
    tensor_free(&tensor);
}

static void a_message_cut_off_anywhere_is_refused(void **state)
{
    (void)state;
    const struct builder whole = raw_floats();
    for (size_t size = 0; size < whole.size; size++) {
        struct tensor tensor;
        assert_non_null(tensor_parse(at_the_end(whole.data, size), &tensor));
        assert_null(tensor.data);
    }
}

/* Changes each byte of a message to each value. The reader must refuse the message, or return a
 * tensor that takes no more bytes than `floats` and whose dimensions agree with its count. */
static void a_changed_byte_is_refused_or_harmless(void **state)
{
    (void)state;
    struct builder b = raw_floats();
    for (size_t i = 0; i < b.size; i++) {
        const uint8_t was = b.data[i];
        for (int value = 0; value < 256; value++) {
            struct tensor tensor;
            b.data[i] = (uint8_t)value;
            if (parse(&b, &tensor))
                continue;
            assert_true(tensor.count * tensor.element <= sizeof floats);
            size_t count = 1;
            for (int d = 0; d < tensor.rank; d++)
                count *= (size_t)tensor.dims[d];
            assert_int_equal(count, tensor.count);
            tensor_free(&tensor);
        }
        b.data[i] = was;
    }
}

static void lengths_beyond_the_end_are_refused(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {25, 1000, INT64_MAX, UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct builder b = begin_tensor(TENSOR_FLOAT, 2, 3);
        add_varint(&b, 9 << 3 | WIRE_BYTES);
        add_varint(&b, lengths[i]);
        memcpy(b.data + b.size, floats, sizeof floats);
        b.size += sizeof floats;
        assert_refused(&b, "not a whole message");
    }
}

static void bad_fields_are_refused(void **state)
{
    (void)state;
    static const char *const messages[] = {
        "\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02",     /* a varint of more than 64 bits */
        "\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", /* a varint of 11 bytes */
        "\x0b\x01",                                         /* a group */
        "\x02\x01",                                         /* field 0 */
        "\x80\x80\x80\x80\x80\x01\x01",                     /* a field beyond 2^29 */
    };
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        struct builder b = {.size = strlen(messages[i])};
        memcpy(b.data, messages[i], b.size);
        assert_refused(&b, "not a whole message");
    }
}

static void bad_dimensions_are_refused(void **state)
{
    (void)state;
    struct builder b = begin_tensor(TENSOR_FLOAT, -1, 3);
    assert_refused(&b, "a negative dimension");
    b = begin_tensor(TENSOR_FLOAT, INT64_MAX, 3);
    assert_refused(&b, "dimensions that are too large for the memory");
    b = begin_tensor(TENSOR_FLOAT, INT64_MAX / 2, 1);
    assert_refused(&b, "dimensions that are too large for the memory");
    b = begin_tensor(TENSOR_BOOL, INT64_MAX / 4, 1);
    assert_refused(&b, "fewer elements than the dimensions say");
    b = begin_tensor(TENSOR_FLOAT, 1, 1);
    for (int i = 0; i < 3; i++)
        add_number(&b, 1, 1);
    assert_refused(&b, "a tensor of more than 4 dimensions");
    b = begin_tensor(TENSOR_FLOAT, 1, 1);
    add_bytes(&b, 1, "\x80", 1);
    assert_refused(&b, "dims: a number is cut off or too long");
}

static void bad_types_are_refused(void **state)
{
    (void)state;
    struct builder b = begin_tensor((enum tensor_type)11, 2, 3); /* double */
    assert_refused(&b, "data_type: not a type that Attention takes");
    b.size = 0;
    assert_refused(&b, "no data_type");
    b = raw_floats();
    add_number(&b, 14, 1);
    assert_refused(&b, "elements in another file");
    b = begin_tensor(TENSOR_FLOAT, 2, 3);
    add_bytes(&b, 13, "", 0);
    assert_refused(&b, "elements in other messages or files");
}

static void bad_elements_are_refused(void **state)
{
    (void)state;
    struct builder b = begin_tensor(TENSOR_FLOAT, 2, 3);
    add_bytes(&b, 9, floats, sizeof floats - 4);
    assert_refused(&b, "raw_data: not as long as the dimensions say");
    b = begin_tensor(TENSOR_FLOAT, 2, 3);
    add_bytes(&b, 4, floats, sizeof floats - 4);
    assert_refused(&b, "fewer elements than the dimensions say");
    add_bytes(&b, 4, floats, 8);
    assert_refused(&b, "more elements than the dimensions say");
    b = begin_tensor(TENSOR_FLOAT, 2, 3);
    add_bytes(&b, 4, floats, sizeof floats - 3);
    assert_refused(&b, "elements: a number is cut off or too long");
    b = begin_tensor(TENSOR_FLOAT, 2, 3);
    add_number(&b, 7, 1);
    assert_refused(&b, "elements of another type");
    b = begin_tensor(TENSOR_FLOAT, 2, 3);
    add_number(&b, 4, 1);
    assert_refused(&b, "elements of the wrong kind");
    b = begin_tensor(TENSOR_FLOAT16, 2, 3);
    add_number(&b, 5, 0x10000);
    assert_refused(&b, "an element beyond its type");
    b = begin_tensor(TENSOR_FLOAT, 2, 3);
    add_float(&b, 4, 1.0f);
    add_bytes(&b, 9, floats, sizeof floats);
    assert_refused(&b, "raw_data after other elements");
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    char path[] = P_tmpdir "/attnkit-tensor-XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    const struct builder b = raw_floats();
    struct tensor written, read;
    assert_null(parse(&b, &written));
    assert_null(tensor_write(path, &written));
    assert_null(tensor_read(path, &read));
    assert_int_equal(read.rank, written.rank);
    assert_memory_equal(read.dims, written.dims, 2 * sizeof *read.dims);
    assert_memory_equal(read.data, floats, sizeof floats);
    tensor_free(&read);
    tensor_free(&written);
    remove(path);
    assert_string_equal(tensor_read(path, &read), "cannot be opened");
}

/* ----------------------------------------------------------------------------------------- nodes
 */

static void add_attribute(struct builder *b, const char *name, float f, int64_t i)
{
    struct builder attribute = {.size = 0};
    add_bytes(&attribute, 1, name, strlen(name));
    if (f != 0.0f)
        add_float(&attribute, 2, f);
    else
        add_number(&attribute, 3, (uint64_t)i);
    add_bytes(b, 5, attribute.data, attribute.size);
}

static struct builder sample_node(void)
{
    static const char *const inputs[] = {"Q", "K", "V", "", "past_key", "past_value"};
    static const char *const outputs[] = {"Y", "", "", "qk"};
    struct builder b = {.size = 0};
    for (int i = 0; i < 6; i++)
        add_bytes(&b, 1, inputs[i], strlen(inputs[i]));
    for (int i = 0; i < 4; i++)
        add_bytes(&b, 2, outputs[i], strlen(outputs[i]));
    add_bytes(&b, 4, "Attention", 9);
    add_attribute(&b, "scale", 0.5f, 0);
    add_attribute(&b, "left_window_size", 0.0f, -1);
    add_attribute(&b, "right_window_size", 0.0f, 2);
    return b;
}

static const char *parse_node(const struct builder *b, struct node *node)
{
    return node_parse(at_the_end(b->data, b->size), node);
}

static void a_node_is_read(void **state)
{
    (void)state;
    static const bool inputs[INPUTS] = {true, true, true, false, true, true, false};
    static const bool outputs[OUTPUTS] = {true, false, false, true};
    const struct builder b = sample_node();
    struct node node;
    assert_null(parse_node(&b, &node));
    assert_memory_equal(node.has_input, inputs, sizeof inputs);
    assert_memory_equal(node.has_output, outputs, sizeof outputs);
    assert_true(node.has_scale && node.scale == 0.5f && node.softcap == 0.0f);
    assert_int_equal(node.left_window_size, -1);
    assert_int_equal(node.right_window_size, 2);
    assert_int_equal(node.is_causal, 0);
}

static void assert_node_refused(const struct builder *b, const char *why)
{
    struct node node;
    const char *const wrong = parse_node(b, &node);
    assert_non_null(wrong);
    assert_string_equal(wrong, why);
}

static void bad_nodes_are_refused(void **state)
{
    (void)state;
    struct builder b = sample_node();
    add_attribute(&b, "slope", 0.5f, 0);
    assert_node_refused(&b, "an unknown attribute, or one of the wrong type");
    b = sample_node();
    add_attribute(&b, "is_causal", 0.5f, 0);
    assert_node_refused(&b, "an unknown attribute, or one of the wrong type");
    b = sample_node();
    add_bytes(&b, 5, "\x0a\x05name", 6);
    assert_node_refused(&b, "an attribute is not a whole message");
    b = sample_node();
    add_bytes(&b, 4, "Gemm", 4);
    assert_node_refused(&b, "another operator than Attention");
    b = sample_node();
    add_bytes(&b, 2, "more", 4);
    assert_node_refused(&b, "more inputs or outputs than Attention has");
    b.size = 0;
    assert_node_refused(&b, "no Q, K or V");
}

/* A prefix of the message that ends between two fields is a valid node if it has the inputs Q, K
 * and V and the output Y. */
static void a_node_may_be_cut_off_anywhere(void **state)
{
    (void)state;
    struct builder b = sample_node();
    int refused = 0;
    for (; b.size > 0; b.size--) {
        struct node node;
        refused += parse_node(&b, &node) != NULL;
    }
    assert_true(refused > 80);
}

static int map_page(void **state)
{
    (void)state;
    page = memory_guarded(MAX_MESSAGE, 0, true);
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
        cmocka_unit_test(raw_elements_are_read),
        cmocka_unit_test(numbers_are_read_one_by_one),
        cmocka_unit_test(packed_numbers_are_read),
        cmocka_unit_test(empty_tensors_and_scalars_are_read),
        cmocka_unit_test(a_message_cut_off_anywhere_is_refused),
        cmocka_unit_test(a_changed_byte_is_refused_or_harmless),
        cmocka_unit_test(lengths_beyond_the_end_are_refused),
        cmocka_unit_test(bad_fields_are_refused),
        cmocka_unit_test(bad_dimensions_are_refused),
        cmocka_unit_test(bad_types_are_refused),
        cmocka_unit_test(bad_elements_are_refused),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(a_node_is_read),
        cmocka_unit_test(bad_nodes_are_refused),
        cmocka_unit_test(a_node_may_be_cut_off_anywhere),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, map_page, unmap_page);
}
