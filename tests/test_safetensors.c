/* SPDX-License-Identifier: MIT
 *
 * test_safetensors.c - .safetensors files: what the reference implementation
 * refuses is refused, with a message that says why.
 */
#include "test.h"

#include "safetensors.h"

/* A file with this header and `data` bytes after it. Free it. */
static unsigned char *make_file(const char *header, size_t length, size_t data, size_t *size)
{
    unsigned char *bytes = calloc(1, 8 + length + data + 1);

    assert_non_null(bytes);
    for (size_t i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)length >> 8 * i);
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < data; i++)
        bytes[8 + length + i] = (unsigned char)i;
    *size = 8 + length + data;
    return bytes;
}

static void assert_refused(const char *header, size_t data, const char *message)
{
    safetensors_file file;
    failure why = {0};
    size_t size;
    unsigned char *bytes = make_file(header, strlen(header), data, &size);

    assert_false(safetensors_parse(bytes, size, &file, &why));
    assert_string_equal(why.message, message);
    assert_int_equal(why.status, STATUS_FILE);
    free(bytes);
}

#define TENSOR(name, dtype, shape, begin, end)                                                     \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end   \
    "]}"

static void test_good(void **state)
{
    /* Listed out of order, one of a dtype that is not taken, one empty, one 0-d. */
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"}," TENSOR(
        "fc.bias", "F32", "[3]", "24",
        "36") "," TENSOR("fc.weight", "F16", "[3,4]", "0",
                         "24") "," TENSOR("ids", "U64", "[1]", "36",
                                          "44") "," TENSOR("none", "F64", "[0,5]", "44",
                                                           "44") "," TENSOR("scale", "BF16", "[]",
                                                                            "44", "46") "}   ";
    safetensors_file file;
    failure why;
    size_t size;
    host_layout layout;
    unsigned char *bytes = make_file(header, strlen(header), 46, &size);

    (void)state;
    if (!safetensors_parse(bytes, size, &file, &why))
        fail_msg("%s", why.message);
    assert_int_equal(file.count, 5);
    const safetensors_entry *bias = safetensors_find(&file, "fc.bias");
    assert_non_null(bias);
    assert_int_equal(bias->data_offset, size - 46 + 24);
    assert_int_equal(bias->bytes, 12);
    assert_true(safetensors_layout(bias, &layout, &why));
    assert_string_equal(layout.dtype->name, "float32");
    assert_int_equal(layout.shape[0], 3);
    assert_true(safetensors_layout(safetensors_find(&file, "fc.weight"), &layout, &why));
    assert_int_equal(layout.strides[0], 4);
    assert_true(safetensors_layout(safetensors_find(&file, "scale"), &layout, &why));
    assert_int_equal(layout.ndim, 0);
    assert_true(safetensors_layout(safetensors_find(&file, "none"), &layout, &why));
    assert_int_equal(host_layout_elements(&layout), 0);
    assert_false(safetensors_layout(safetensors_find(&file, "ids"), &layout, &why));
    assert_string_equal(why.message, "tensor 'ids' has dtype U64; ogive takes F16, BF16, F32, F64, "
                                     "BOOL, U8, I8, I16, I32, I64");
    assert_null(safetensors_find(&file, "__metadata__"));
    assert_null(safetensors_find(&file, "fc"));
    safetensors_release(&file);
    free(bytes);
}

#define BAD "bad .safetensors header: "

static void test_refused(void **state)
{
    static const struct {
        const char *header;
        size_t data;
        const char *message;
    } cases[] = {
        {" {}", 0, BAD "it does not begin with '{'"},
        {"[]", 0, BAD "it does not begin with '{'"},
        {"{\"a\":1}", 0, BAD "tensor 'a': expected an object with dtype, shape and data_offsets"},
        {"{\"a\":{}}", 0, BAD "tensor 'a': dtype is missing or no string"},
        {"{" TENSOR("a", "F33", "[1]", "0", "4") "}", 4, BAD "tensor 'a': dtype 'F33' is unknown"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4,
         BAD "tensor 'a': shape is missing or no list"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4,
         BAD "tensor 'a': data_offsets must be [BEGIN, END], two whole numbers >= 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4,
         BAD "tensor 'a': data_offsets must be [BEGIN, END], two whole numbers >= 0"},
        {"{" TENSOR("a", "F32", "[1]", "0.0", "4") "}", 4,
         BAD "tensor 'a': data_offsets must be [BEGIN, END], two whole numbers >= 0"},
        {"{" TENSOR("a", "F32", "[1]", "-4", "0") "}", 4,
         BAD "tensor 'a': data_offsets must be [BEGIN, END], two whole numbers >= 0"},
        {"{" TENSOR("a", "F32", "[-1]", "0", "4") "}", 4,
         BAD "tensor 'a': a dim of its shape is not a whole number >= 0"},
        {"{" TENSOR("a-0", "F32", "[-0]", "0", "0") "}", 0, BAD "-0 is not a whole number >= 0"},
        {"{" TENSOR("a", "F32", "[1.5]", "0", "4") "}", 4,
         BAD "tensor 'a': a dim of its shape is not a whole number >= 0"},
        {"{" TENSOR("a", "F32", "[2]", "0", "4") "}", 4,
         BAD "tensor 'a': data_offsets give 4 bytes, dtype and shape 8"},
        {"{" TENSOR("a", "F32", "[1]", "4", "0") "}", 4,
         BAD "tensor 'a': data_offsets end before they begin"},
        {"{" TENSOR("a", "F32", "[4611686018427387904,8]", "0", "4") "}", 4,
         BAD "tensor 'a': its shape has too many elements"},
        {"{" TENSOR("a", "F32", "[4611686018427387904,8,0]", "0", "0") "}", 0,
         BAD "tensor 'a': its shape has too many elements"},
        {"{" TENSOR("a", "F4", "[3]", "0", "1") "}", 1,
         BAD "tensor 'a': its data does not end at a whole byte"},
        {"{" TENSOR("a", "F32", "[1]", "0", "4") "," TENSOR("b", "F32", "[1]", "2", "6") "}", 6,
         BAD "tensor 'b' begins at byte 2 of the data, expected 4 (tensors overlap)"},
        {"{" TENSOR("a", "F32", "[1]", "0", "4") "," TENSOR("b", "F32", "[1]", "0", "4") "}", 4,
         BAD "tensor 'b' begins at byte 0 of the data, expected 4 (tensors overlap)"},
        {"{" TENSOR("a", "F32", "[1]", "0", "4") "," TENSOR("b", "F32", "[1]", "8", "12") "}", 12,
         BAD "tensor 'b' begins at byte 8 of the data, expected 4 (a gap between tensors)"},
        {"{" TENSOR("a", "F32", "[1]", "4", "8") "}", 8,
         BAD "tensor 'a' begins at byte 4 of the data, expected 0 (a gap between tensors)"},
        {"{" TENSOR("a", "F32", "[1]", "0", "4") "}", 3,
         "truncated: the tensors need 4 bytes of data, the file has 3"},
        {"{" TENSOR("a", "F32", "[1]", "0", "4") "}", 5,
         "bad .safetensors file: 1 bytes after the last tensor's data"},
        {"{}", 1, "bad .safetensors file: 1 bytes after the last tensor's data"},
        {"{" TENSOR("a", "F32", "[1]", "0", "4") "," TENSOR("a", "F32", "[1]", "4", "8") "}", 8,
         BAD "a key is given twice (at byte 57)"},
        {"{\"__metadata__\":[]}", 0, BAD "__metadata__ is not an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, BAD "__metadata__ 'a' is not a string"},
        {"{} x", 0, BAD "end of file expected near 'x' (at byte 4)"},
        {"{", 0, "bad .safetensors file: the header is empty"},
        {"{\"\xff\":1}", 0, BAD "byte 2 is not UTF-8"},
        {"{\"\xc0\x80\":1}", 0, BAD "byte 2 is not UTF-8"},
        {"{\"\xed\xa0\x80\":1}", 0, BAD "byte 2 is not UTF-8"},
    };
    (void)state;
    for (size_t i = 0; i < TEST_COUNT(cases); i++)
        assert_refused(cases[i].header, cases[i].data, cases[i].message);
}

static void test_lengths(void **state)
{
    safetensors_file file;
    failure why;
    unsigned char bytes[16] = {2, 0, 0, 0, 0, 0, 0, 0, '{', '}'};

    (void)state;
    assert_false(safetensors_parse(bytes, 7, &file, &why));
    assert_string_equal(why.message, "not a .safetensors file: 7 bytes, expected at least 8");
    assert_false(safetensors_parse(bytes, 9, &file, &why));
    assert_string_equal(
        why.message, "truncated: the .safetensors header should have 2 bytes, the file has 1 left");
    assert_true(safetensors_parse(bytes, 10, &file, &why));
    assert_int_equal(file.count, 0);
    safetensors_release(&file);
    memset(bytes, 255, 8);
    assert_false(safetensors_parse(bytes, 10, &file, &why));
    assert_string_equal(why.message,
                        "bad .safetensors file: the header's length is 18446744073709551615 bytes, "
                        "more than the format's limit of 100000000");
    memcpy(bytes, "\x01\xe1\xf5\x05\0\0\0\0", 8); /* 100000001 */
    assert_false(safetensors_parse(bytes, 10, &file, &why));
    assert_string_equal(why.message,
                        "bad .safetensors file: the header's length is 100000001 bytes, more than "
                        "the format's limit of 100000000");
    memset(bytes, 0, 8);
    assert_false(safetensors_parse(bytes, 8, &file, &why));
    assert_string_equal(why.message, "bad .safetensors file: the header is empty");
}

/* Every shorter file is refused, and no byte beyond it is read. */
static void test_truncated(void **state)
{
    static const char header[] = "{" TENSOR("a", "F32", "[2]", "0", "8") "}";
    safetensors_file file;
    failure why;
    size_t size;
    unsigned char *bytes = make_file(header, strlen(header), 8, &size);

    (void)state;
    for (size_t cut = 0; cut < size; cut++) {
        unsigned char *copy = malloc(cut ? cut : 1);
        assert_non_null(copy);
        memcpy(copy, bytes, cut);
        assert_false(safetensors_parse(copy, cut, &file, &why));
        free(copy);
    }
    free(bytes);
}

static void test_rank(void **state)
{
    static const char header[] = "{" TENSOR("a", "F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}";
    safetensors_file file;
    failure why;
    size_t size;
    host_layout layout;
    unsigned char *bytes = make_file(header, strlen(header), 4, &size);

    (void)state;
    assert_true(safetensors_parse(bytes, size, &file, &why));
    assert_false(safetensors_layout(&file.entries[0], &layout, &why));
    assert_string_equal(why.message, "tensor 'a' has 9 dims; ogive takes up to 8");
    safetensors_release(&file);
    free(bytes);
}

/* The reference's order and padding; and it reads back. */
static void test_write(void **state)
{
    host_layout half = {.dtype = host_dtype_named("bfloat16"), .ndim = 1, .shape = {3}};
    host_layout wide = {.dtype = host_dtype_named("float64"), .ndim = 0};
    host_layout plain = {.dtype = host_dtype_named("float32"), .ndim = 2, .shape = {2, 2}};
    const host_layout *layouts[] = {&half, &plain, &wide, &plain};
    const char *names[] = {"h\"\xc3\xa9", "z", "w", "a"};
    size_t order[4], length = 0;
    char *header = NULL;
    safetensors_file file;
    failure why;

    (void)state;
    assert_true(safetensors_write_header(layouts, names, 4, order, &header, &length, &why));
    const size_t expected[] = {2, 3, 1, 0};
    assert_memory_equal(order, expected, sizeof(expected));
    assert_int_equal(length % 8, 0);
    char *whole = calloc(1, length + 46);
    assert_non_null(whole);
    memcpy(whole, header, length);
    assert_true(safetensors_parse(whole, length + 46, &file, &why));
    assert_int_equal(file.count, 4);
    assert_string_equal(file.entries[3].name, "h\"\xc3\xa9");
    assert_int_equal(file.entries[3].data_offset, length + 40);
    safetensors_release(&file);
    free(whole);
    free(header);

    const char *bad[] = {"\xff", "z", "w", "a"};
    assert_false(safetensors_write_header(layouts, bad, 4, order, &header, &length, &why));
    assert_string_equal(why.message, "'\xff' is no name for a tensor: it is not UTF-8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),    cmocka_unit_test(test_refused),
        cmocka_unit_test(test_lengths), cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_rank),    cmocka_unit_test(test_write),
    };
    return TEST_RUN(tests);
}
