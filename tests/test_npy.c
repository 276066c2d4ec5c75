/* SPDX-License-Identifier: MIT
 *
 * test_npy.c - .npy files: what NumPy writes is read, everything else is
 * refused with a message that says why.
 */
#include "test.h"

#include "npy.h"

/* A file with this header text and `data` zero bytes after it. Free it. */
static unsigned char *make_file(int version, const char *header, size_t data, size_t *size)
{
    size_t length = strlen(header), start = version == 1 ? 10 : 12;
    unsigned char *bytes = calloc(1, start + length + data + 1);

    assert_non_null(bytes);
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = (unsigned char)version;
    for (size_t i = 8; i < start; i++)
        bytes[i] = (unsigned char)(length >> 8 * (i - 8));
    memcpy(bytes + start, header, length);
    *size = start + length + data;
    return bytes;
}

static npy_array parse(int version, const char *header, size_t data)
{
    npy_array array;
    failure why = {0};
    size_t size;
    unsigned char *bytes = make_file(version, header, data, &size);

    if (!npy_parse(bytes, size, &array, &why))
        fail_msg("%s: %s", header, why.message);
    assert_int_equal(array.data_offset, size - data);
    free(bytes);
    return array;
}

static void assert_refused(int version, const char *header, size_t data, const char *message)
{
    npy_array array;
    failure why = {0};
    size_t size;
    unsigned char *bytes = make_file(version, header, data, &size);

    assert_false(npy_parse(bytes, size, &array, &why));
    assert_string_equal(why.message, message);
    assert_int_equal(why.status, STATUS_FILE);
    free(bytes);
}

static void test_c_order(void **state)
{
    (void)state;
    npy_array a = parse(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4, 5), }\n", 240);
    assert_string_equal(a.layout.dtype->name, "float32");
    assert_int_equal(a.layout.ndim, 3);
    assert_int_equal(a.elements, 60);
    const int64_t strides[] = {20, 5, 1};
    assert_memory_equal(a.layout.strides, strides, sizeof(strides));
}

static void test_fortran_order(void **state)
{
    (void)state;
    npy_array a = parse(1, "{'descr': '<f8', 'fortran_order': True, 'shape': (3, 4, 5), }\n", 480);
    assert_string_equal(a.layout.dtype->name, "float64");
    const int64_t strides[] = {1, 3, 12};
    assert_memory_equal(a.layout.strides, strides, sizeof(strides));
}

static void test_versions_and_shapes(void **state)
{
    (void)state;
    for (int version = 1; version <= 3; version++) {
        npy_array a =
            parse(version, "{'descr': '<f2', 'fortran_order': False, 'shape': (7,), }\n", 14);
        assert_string_equal(a.layout.dtype->name, "float16");
        assert_int_equal(a.layout.shape[0], 7);
    }
    assert_int_equal(parse(1, "{'descr':'<f4','fortran_order':False,'shape':()}", 4).elements, 1);
    assert_int_equal(parse(1, "{'shape':(0,9),'fortran_order':True,'descr':'<f4'}", 0).elements, 0);
    /* Double quotes, Python 2's long integers, any order, a comma or none. */
    assert_int_equal(
        parse(2, " { \"shape\" : ( 3L , 2L ) , \"descr\" : \"<f4\" , \"fortran_order\" : False } ",
              24)
            .elements,
        6);
    /* Bytes after the array are ignored, as NumPy does. */
    npy_array array;
    failure why;
    size_t size;
    unsigned char *bytes =
        make_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 100, &size);
    assert_true(npy_parse(bytes, size, &array, &why));
    assert_int_equal(array.elements, 2);
    free(bytes);
}

#define TAKES                                                                                      \
    "ogive reads little-endian float16, float32 and float64 ('<f2', '<f4', '<f8'), bool, uint8 "   \
    "and integers of 8 to 64 bits"

static void test_refused_dtypes(void **state)
{
    static const struct {
        const char *descr, *message;
    } cases[] = {
        {"'>f4'", "dtype '>f4' is big-endian; " TAKES},
        {"'>i8'", "dtype '>i8' is an integer of another size or byte order; " TAKES},
        {"'<u2'", "dtype '<u2' is an unsigned integer of more than 8 bits; " TAKES},
        {"'<c8'", "dtype '<c8' is complex; " TAKES},
        {"'|O'", "dtype '|O' is Python objects (pickle); " TAKES},
        {"'<U7'", "dtype '<U7' is text; " TAKES},
        {"'|V2'", "dtype '|V2' is raw or structured data; " TAKES},
        {"'<f16'", "dtype '<f16' is a float that is not of 16, 32 or 64 bits; " TAKES},
        {"'=f4'", "dtype '=f4' names no byte order; " TAKES},
        {"'f8'", "dtype 'f8' names no byte order; " TAKES},
        {"'zzz'", "dtype 'zzz' is unknown; " TAKES},
        {"''", "dtype '' is unknown; " TAKES},
        {"[('a', '<f4')]", "the dtype is structured (a record with fields); " TAKES},
    };
    (void)state;
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        char header[200];
        snprintf(header, sizeof(header), "{'descr': %s, 'fortran_order': False, 'shape': (2,), }",
                 cases[i].descr);
        assert_refused(1, header, 64, cases[i].message);
    }
}

#define HEADER(shape) "{'descr': '<f4', 'fortran_order': False, 'shape': " shape ", }"
#define BAD "bad .npy header: "

static void test_refused_headers(void **state)
{
    static const struct {
        const char *header, *message;
    } cases[] = {
        {"", BAD "expected '{', got the end of the header"},
        {"[]", BAD "expected '{' at byte 0, got '['"},
        {"{", BAD "expected a key in quotes, got the end of the header"},
        {"{}", BAD "key 'descr' is missing"},
        {"{'descr': '<f4'}", BAD "key 'fortran_order' is missing"},
        {"{'descr': '<f4', 'fortran_order': False}", BAD "key 'shape' is missing"},
        {"{'descr': '<f4', 'descr': '<f4'}", BAD "duplicate key 'descr'; expected 'descr', "
                                                 "'fortran_order' and 'shape' once each"},
        {"{'evil': 1}", BAD "unknown key 'evil'; expected 'descr', 'fortran_order' and 'shape' "
                            "once each"},
        {"{'descr' '<f4'}", BAD "expected ':' at byte 9, got '''"},
        {"{'descr': '<f4", BAD "expected a closing quote, got the end of the header"},
        {"{'descr': 4}", BAD "expected the dtype as a string at byte 10, got '4'"},
        {"{'descr': '<f4' 'shape': ()}", BAD "expected ',' or '}' at byte 16, got '''"},
        {"{'fortran_order': 1}", BAD "expected True or False at byte 18, got '1'"},
        {HEADER("5"), BAD "expected '(' of the shape at byte 50, got '5'"},
        {HEADER("(5)"), BAD "the shape is a number, expected a tuple"},
        {HEADER("(-1,)"),
         BAD "expected a dim of the shape (a whole number, at least 0) at byte 51, got '-'"},
        {HEADER("(2 3)"), BAD "expected ',' or ')' in the shape at byte 53, got '3'"},
        {HEADER("(,)"),
         BAD "expected a dim of the shape (a whole number, at least 0) at byte 51, got ','"},
        {HEADER("(2, 3"), BAD "expected a dim of the shape (a whole number, at least 0) at byte "
                              "57, got '}'"},
        {HEADER("(9223372036854775808,)"), BAD "a dim of the shape is too large"},
        {HEADER("(99999999999999999999999,)"), BAD "a dim of the shape is too large"},
        {HEADER("(4294967296, 4294967296)"), BAD "the shape has too many elements"},
        {HEADER("(4611686018427387904,)"), BAD "the shape has too many elements"},
        {HEADER("(4611686018427387904, 4, 0)"), BAD "the shape has too many elements"},
        {HEADER("(1, 1, 1, 1, 1, 1, 1, 1, 1)"), "the array has 9 dims; ogive takes up to 8"},
        {HEADER("(2,)") " x", BAD "expected nothing after '}' at byte 58, got 'x'"},
    };
    (void)state;
    for (size_t i = 0; i < TEST_COUNT(cases); i++)
        assert_refused(1, cases[i].header, 64, cases[i].message);
}

static void test_truncated(void **state)
{
    static const char header[] = HEADER("(3, 4)");
    npy_array array;
    failure why;
    size_t size;

    (void)state;
    assert_refused(1, header, 47,
                   "truncated: the array should have 48 bytes of data, the file has 47");
    unsigned char *bytes = make_file(1, header, 48, &size);
    for (size_t cut = 0; cut < size; cut++) {
        /* A copy of that size, so that a sanitizer sees a read beyond it. */
        unsigned char *copy = malloc(cut ? cut : 1);
        assert_non_null(copy);
        memcpy(copy, bytes, cut);
        assert_false(npy_parse(copy, cut, &array, &why));
        free(copy);
    }
    free(bytes);
}

static void test_not_npy(void **state)
{
    npy_array array;
    failure why;

    (void)state;
    assert_false(npy_parse("PK\3\4 a zip file", 15, &array, &why));
    assert_string_equal(why.message, "not a .npy file: it does not begin with \\x93NUMPY");
    assert_false(npy_parse("", 0, &array, &why));
    assert_false(npy_parse("\x93NUMPY\4\0\1\0{", 11, &array, &why));
    assert_string_equal(why.message, ".npy version 4.0 is unknown; ogive reads 1.0, 2.0, 3.0");
    assert_false(npy_parse("\x93NUMPY\1\1\1\0{", 11, &array, &why));
    assert_string_equal(why.message, ".npy version 1.1 is unknown; ogive reads 1.0, 2.0, 3.0");
    assert_false(npy_parse("\x93NUMPY\2\0\xff\xff\xff\xff{}", 14, &array, &why));
    assert_string_equal(
        why.message,
        "truncated: the .npy header should have 4294967295 bytes, the file has 2 left");
}

/* What is written reads back as the same, and as NumPy writes it. */
static void test_write(void **state)
{
    host_layout layout = {.dtype = host_dtype_named("float32"), .ndim = 2, .shape = {3, 4}};
    char header[NPY_MAX_HEADER + 48] = {0};
    npy_array array;
    failure why;

    (void)state;
    size_t length = npy_write_header(&layout, header);
    assert_int_equal(length, 128);
    assert_memory_equal(header,
                        "\x93NUMPY\1\0\x76\0{'descr': '<f4', 'fortran_order': False, "
                        "'shape': (3, 4), }  ",
                        71);
    assert_int_equal(header[127], '\n');
    assert_true(npy_parse(header, length + 48, &array, &why));
    assert_int_equal(array.layout.ndim, 2);
    assert_memory_equal(array.layout.shape, layout.shape, sizeof(layout.shape));

    layout.ndim = MAX_RANK;
    for (int i = 0; i < MAX_RANK; i++)
        layout.shape[i] = i ? 1 : 0;
    layout.shape[1] = INT64_MAX / 16; /* the longest header there can be */
    length = npy_write_header(&layout, header);
    assert_int_equal(length % 64, 0);
    assert_true(npy_parse(header, length, &array, &why));
    assert_int_equal(array.elements, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_c_order),
        cmocka_unit_test(test_fortran_order),
        cmocka_unit_test(test_versions_and_shapes),
        cmocka_unit_test(test_refused_dtypes),
        cmocka_unit_test(test_refused_headers),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_not_npy),
        cmocka_unit_test(test_write),
    };
    return TEST_RUN(tests);
}
