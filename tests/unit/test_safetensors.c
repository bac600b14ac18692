/* Headers of safetensors files: valid ones are accepted, and no others. */
#include "common/checkpoint/checkpoint.h"
#include "tests/unit/checkpoint.h"
#include "tests/unit/folder.h"


static int make_files(void **state)
{
    make_folder(state);
    write_string(unit_path(folder, "config.json"), TINY_OLMOE);
    return 0;
}

/* Makes a file of this header and `data` bytes of data. */
static const char *write_file(const char *header, size_t data)
{
    struct text file = {0};
    const char *path = unit_path(folder, "x.safetensors");
    for (int i = 0; i < 8; i++)
        text_putc(&file, (char)((uint64_t)strlen(header) >> 8 * i), NULL);
    text_puts(&file, header, NULL);
    for (size_t i = 0; i < data; i++)
        text_putc(&file, (char)i, NULL);
    unit_write(path, file.data, file.length);
    text_free(&file);
    return path;
}

static void reads_tensors(void **state)
{
    (void)state;
    struct err err = {0};
    struct checkpoint *cp = NULL;
    const char *path = write_file("{\"__metadata__\":{\"format\":\"pt\"},"
                                  "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                                  "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[16,16]},"
                                  "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}   ", 16);
    assert_int_equal(checkpoint_open(&cp, path, NULL, &err), 0);
    assert_int_equal(cp->tensor_count, 3);
    assert_string_equal(cp->name, "x");
    const struct source_tensor *a = checkpoint_find(cp, "a"), *b = checkpoint_find(cp, "b");
    assert_non_null(a);
    assert_non_null(b);
    assert_null(checkpoint_find(cp, "c"));
    assert_int_equal(a->dim_count, 0);
    assert_int_equal(b->dim_count, 2);
    assert_int_equal(b->dims[0], 2);
    assert_int_equal(b->dims[1], 3);
    assert_ptr_equal(b->coding, &coding_bf16);
    uint8_t data[4];
    assert_int_equal(checkpoint_read(cp, b, 2, data, 4, &err), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(data[i], 6 + i);
    assert_int_equal(checkpoint_read(cp, b, 10, data, 4, &err), -1);
    assert_non_null(strstr(err.text, "ended at byte"));
    checkpoint_close(&cp);
}

#define T(name, dtype, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static const struct { const char *header; size_t data; const char *says; } FAULTS[] = {
    {"", 0, "declares a header of 0 bytes"},
    {"[1]", 0, "does not begin with '{'"},
    {" {}", 0, "does not begin with '{'"},
    {"{} x", 0, "something follows the value"},
    {"{\"a\":1}", 0, "must be an object with dtype"},
    {"{\"a\":{}}", 0, "dtype is missing"},
    {"{" T("a", "F33", "[1]", "0", "4") "}", 4, "dtype is \"F33\""},
    {"{" T("a", "F32", "[1]", "0", "4") "," T("a", "F32", "[1]", "4", "8") "}", 8,
     "tensor a is in x.safetensors and in x.safetensors"},
    {"{" T("a", "F32", "[2]", "0", "4") "}", 4, "that is 8 bytes, but its offsets span 4"},
    {"{" T("a", "F32", "[1]", "0", "4") "}", 5, "declares 4 bytes of tensors, but the file contains 5"},
    {"{" T("a", "F32", "[1]", "0", "4") "}", 3, "declares 4 bytes of tensors, but the file contains 3"},
    {"{" T("a", "F32", "[1]", "4", "8") "}", 8, "begin at offset 4, but the previous tensor ends at 0"},
    {"{" T("a", "F32", "[2]", "0", "8") "," T("b", "F32", "[1]", "4", "8") "}", 8, "begin at offset 4, but the previous "
     "tensor ends at 8"},
    {"{" T("a", "F32", "[1]", "0", "4") "," T("b", "F32", "[1]", "8", "12") "}", 12,
     "begin at offset 8, but the previous tensor ends at 4"},
    {"{" T("a", "F32", "[1]", "4", "0") "}", 4, "it must be begin and end"},
    {"{" T("a", "F32", "[1]", "-4", "0") "}", 4, "it must be begin and end"},
    {"{" T("a", "F32", "[-1]", "0", "4") "}", 4, "sizes must be integers of at least 0"},
    {"{" T("a", "F32", "[1.0]", "0", "4") "}", 4, "sizes must be integers of at least 0"},
    {"{" T("a", "F32", "4", "0", "4") "}", 4, "it must be a list"},
    {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "at most 8 sizes"},
    {"{" T("a", "F32", "[4294967296,4294967296]", "0", "0") "}", 0, "more than any file holds"},
    {"{" T("a", "F32", "[99999999999999999999]", "0", "4") "}", 4, "sizes must be integers"},
    {"{\"a\\u0000b\":{}}", 0, "\\u0000"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "it must be begin and end"},
};

static void refuses_faults(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        struct err err = {0};
        struct checkpoint *cp = NULL;
        assert_int_equal(checkpoint_open(&cp, write_file(FAULTS[i].header, FAULTS[i].data), NULL, &err), -1);
        assert_null(cp);
        assert_int_equal(err.code, ERR_INPUT);
        if (!strstr(err.text, FAULTS[i].says))
            fail_msg("case %zu: '%s' does not say '%s'", i, err.text, FAULTS[i].says);
        assert_non_null(strstr(err.text, "x.safetensors: "));
    }
}

/* As many tensors as one file of a large model with a tensor per expert, and more than any file has. */
static void takes_many_tensors(void **state)
{
    (void)state;
    struct checkpoint *cp = NULL;
    struct err err = {0};
    struct text header = {0};
    for (int count = 60000; count <= 262145; count += 202145) {
        text_clear(&header);
        for (int i = 0; i < count; i++)
            text_printf(&header, NULL, "%s\"model.layers.0.mlp.experts.%d.gate_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[1],"
                        "\"data_offsets\":[%d,%d]}", i ? "," : "{", i, 2 * i, 2 * i + 2);
        text_putc(&header, '}', NULL);
        int rc = checkpoint_open(&cp, write_file(header.data, 2 * (size_t)count), NULL, &err);
        assert_int_equal(rc, count == 60000 ? 0 : -1);
        if (!rc)
            assert_int_equal(cp->tensor_count, count);
        checkpoint_close(&cp);
    }
    assert_non_null(strstr(err.text, "has more than 262144 tensors"));
    text_free(&header);
}

static void refuses_lengths(void **state)
{
    (void)state;
    static const unsigned char huge[] = "\xff\xff\xff\xff\xff\xff\xff\x7f{}", beyond[] = "\x03\0\0\0\0\0\0\0{}";
    struct err err = {0};
    struct checkpoint *cp = NULL;
    const char *path = unit_path(folder, "x.safetensors");
    unit_write(path, huge, 10);
    assert_int_equal(checkpoint_open(&cp, path, NULL, &err), -1);
    assert_non_null(strstr(err.text, "bytes, more than the limit"));
    err_clear(&err);
    unit_write(path, beyond, 10);
    assert_int_equal(checkpoint_open(&cp, path, NULL, &err), -1);
    assert_non_null(strstr(err.text, "it is truncated"));
    err_clear(&err);
    unit_write(path, beyond, 5);
    assert_int_equal(checkpoint_open(&cp, path, NULL, &err), -1);
    assert_non_null(strstr(err.text, "too short"));
}

static const char GOOD[] = "{" T("a", "F32", "[2]", "0", "8") "," T("b", "BF16", "[2,2]", "8", "16") "}";

static void is_whole_or_refused_at_every_cut(void **state)
{
    (void)state;
    struct text file = {0};
    const char *path = write_file(GOOD, 16);
    for (int i = 0; i < 8; i++)
        text_putc(&file, (char)((sizeof GOOD - 1) >> 8 * i), NULL);
    text_puts(&file, GOOD, NULL);
    for (int i = 0; i < 16; i++)
        text_putc(&file, 'x', NULL);
    for (size_t bytes = 0; bytes <= file.length; bytes++) {
        struct err err = {0};
        struct checkpoint *cp = NULL;
        unit_write(path, file.data, bytes);
        assert_int_equal(checkpoint_open(&cp, path, NULL, &err), bytes == file.length ? 0 : -1);
        checkpoint_close(&cp);
    }
    text_free(&file);
}

/* A flipped bit may give another valid header, but never offsets outside the file. */
static void stays_inside_with_every_bit_flipped(void **state)
{
    (void)state;
    struct text file = {0};
    int opened = 0;
    const char *path = write_file(GOOD, 16);
    for (int i = 0; i < 8; i++)
        text_putc(&file, (char)((sizeof GOOD - 1) >> 8 * i), NULL);
    text_puts(&file, GOOD, NULL);
    for (int i = 0; i < 16; i++)
        text_putc(&file, 'x', NULL);
    for (size_t bit = 0; bit < (8 + sizeof GOOD - 1) * 8; bit++) {
        struct err err = {0};
        struct checkpoint *cp = NULL;
        file.data[bit / 8] = (char)(file.data[bit / 8] ^ 1 << bit % 8);
        unit_write(path, file.data, file.length);
        file.data[bit / 8] = (char)(file.data[bit / 8] ^ 1 << bit % 8);
        if (checkpoint_open(&cp, path, NULL, &err))
            continue;
        opened++;
        for (size_t i = 0; i < cp->tensor_count; i++) {
            uint8_t data[16];
            assert_true(cp->tensors[i].bytes <= sizeof data);
            assert_int_equal(checkpoint_read(cp, &cp->tensors[i], 0, data, cp->tensors[i].bytes, &err), 0);
        }
        checkpoint_close(&cp);
    }
    assert_in_range(opened, 1, 200);        /* names may change */
    text_free(&file);
}

static void write_shard(const char *name, const char *first, const char *second)
{
    struct weights w = {0};
    weights_add(&w, first, "F32", 0, 2, 3);
    if (second)
        weights_add(&w, second, "F32", 0, 3, 0);
    weights_write(&w, unit_path(folder, name));
}

static const struct { const char *index, *says; } INDEX_FAULTS[] = {
    {"{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s1.safetensors\"}}",
     "tensor b should be in s1.safetensors, but is nowhere"},
    {"{\"weight_map\":{\"a\":\"s2.safetensors\",\"b\":\"s1.safetensors\"}}",
     "tensor a should be in s2.safetensors, but is in s1"},
    {"{\"weight_map\":{\"a\":\"../s1.safetensors\"}}", "is not the name of a file in the same folder"},
    {"{\"weight_map\":{\"a\":\"s3.safetensors\"}}", "s3.safetensors is missing, although"},
    {"{\"weight_map\":{\"a\":7}}", "is not the name of a file in the same folder"},
    {"{\"weight_map\":{}}", "has no \"weight_map\""},
    {"{}", "has no \"weight_map\""},
    {"[]", "must be one JSON object"},
    {"{", "expected"},
    {"{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\",\"x\":\"s4.safetensors\"}}", "tensor b is in"},
};

static void checks_the_index_of_shards(void **state)
{
    (void)state;
    struct err err = {0};
    struct checkpoint *cp = NULL;
    write_shard("s1.safetensors", "a", NULL);
    write_shard("s2.safetensors", "b", "c");
    write_shard("s4.safetensors", "x", "b");
    write_string(unit_path(folder, "model.safetensors.index.json"),
                 "{\"weight_map\":{\"a\":\"s1.safetensors\",\"c\":\"s2.safetensors\",\"b\":\"s2.safetensors\"}}");
    assert_int_equal(checkpoint_open(&cp, folder, NULL, &err), 0);
    assert_int_equal(cp->tensor_count, 3);
    checkpoint_close(&cp);
    assert_int_equal(checkpoint_open(&cp, unit_path(folder, "model.safetensors.index.json"), NULL, &err), 0);
    checkpoint_close(&cp);
    for (size_t i = 0; i < sizeof INDEX_FAULTS / sizeof *INDEX_FAULTS; i++) {
        err_clear(&err);
        write_string(unit_path(folder, "model.safetensors.index.json"), INDEX_FAULTS[i].index);
        assert_int_equal(checkpoint_open(&cp, folder, NULL, &err), -1);
        if (!strstr(err.text, INDEX_FAULTS[i].says))
            fail_msg("case %zu: '%s' does not say '%s'", i, err.text, INDEX_FAULTS[i].says);
    }
    unlink(unit_path(folder, "model.safetensors.index.json"));
}

static void a_folder_needs_one_file_of_weights(void **state)
{
    (void)state;
    struct err err = {0};
    struct checkpoint *cp = NULL;
    char *empty = unit_folder();
    assert_int_equal(checkpoint_open(&cp, empty, NULL, &err), -1);
    assert_non_null(strstr(err.text, "has no .safetensors, pytorch_model.bin or .gguf file"));
    err_clear(&err);
    assert_int_equal(checkpoint_open(&cp, unit_path(empty, "none"), NULL, &err), -1);
    assert_int_equal(err.code, ERR_IO);
    err_clear(&err);
    struct weights w = {0};
    weights_add(&w, "a", "F32", 0, 1, 0);
    weights_write(&w, unit_path(empty, "one.safetensors"));
    assert_int_equal(checkpoint_open(&cp, empty, NULL, &err), 0);
    checkpoint_close(&cp);
    weights_add(&w, "a", "F32", 0, 1, 0);
    weights_write(&w, unit_path(empty, "two.safetensors"));
    assert_int_equal(checkpoint_open(&cp, empty, NULL, &err), -1);
    assert_non_null(strstr(err.text, "has 2 .safetensors files"));
    unit_remove(empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_tensors),
        cmocka_unit_test(refuses_faults),
        cmocka_unit_test(takes_many_tensors),
        cmocka_unit_test(refuses_lengths),
        cmocka_unit_test(is_whole_or_refused_at_every_cut),
        cmocka_unit_test(stays_inside_with_every_bit_flipped),
        cmocka_unit_test(checks_the_index_of_shards),
        cmocka_unit_test(a_folder_needs_one_file_of_weights),
    };
    return cmocka_run_group_tests(tests, make_files, remove_folder);
}
