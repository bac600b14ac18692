/* Values of all readable GGUF block types equal those of gguf-py (tests/golden/gguf/make.py). */
#include <jansson.h>

#include "common/base/hash.h"
#include "common/checkpoint/coding_gguf.h"
#include "tests/unit/unit.h"

enum { BLOCKS = 1024, BLOCK_MAX = 256, BYTES_MAX = 256 };

/* A type that is kept as it is has the same values in the coded rows of a model file. */
static void check_coded(const struct gguf_coding *type, const uint8_t *block, const float *values)
{
    uint8_t coded[BLOCK_MAX * 2];
    float kept[BLOCK_MAX];
    if (!type->coding.read_coded)
        return;
    if (type->recode)
        type->recode(block, coded);
    format_coded_values(type->coding.format, type->block, type->recode ? coded : block, kept);
    for (int i = 0; i < type->block; i++)
        if (kept[i] != values[i])
            fail_msg("%s as %s: value %d is %.9g, not %.9g", type->coding.name, format_name(type->coding.format), i,
                     (double)kept[i], (double)values[i]);
}

/* Compares values of made-up blocks of one type with those that gguf-py computes (tests/golden/gguf/make.py). */
static void check_type(const json_t *golden)
{
    static uint8_t data[BLOCKS * BYTES_MAX];
    static float values[BLOCKS * BLOCK_MAX];
    const int id = (int)json_integer_value(json_object_get(golden, "id"));
    const char *name = json_string_value(json_object_get(golden, "type"));
    const struct gguf_coding *type = gguf_codings;
    while (type->coding.name && type->id != id)
        type++;
    assert_non_null(type->coding.name);
    assert_string_equal(type->coding.name, name);
    assert_int_equal(type->block, json_integer_value(json_object_get(golden, "block")));
    assert_int_equal(type->bytes, json_integer_value(json_object_get(golden, "bytes")));
    uint64_t generator = (uint64_t)id;
    for (int i = 0; i < BLOCKS * type->bytes; i++) {
        generator = generator * 6364136223846793005u + 1442695040888963407u;
        data[i] = (uint8_t)(generator >> 56);
    }
    const json_t *halves = json_object_get(golden, "halves");
    for (int i = 0; i < BLOCKS; i++) {
        uint8_t *block = data + i * type->bytes;
        for (size_t h = 0; h < json_array_size(halves); h++)
            block[json_integer_value(json_array_get(halves, h)) + 1] &= 0xbb;
        if (!strcmp(name, "MXFP4"))
            block[0] &= 0x7f;
        gguf_decode(type, block, values + i * type->block);
        check_coded(type, block, values + i * type->block);
    }
    for (int i = 0; i < BLOCKS * type->block; i++)
        values[i] += 0.0f;          /* no -0 */
    const json_t *first = json_object_get(golden, "first");
    for (size_t i = 0; i < json_array_size(first); i++)
        if (values[i] != (float)json_real_value(json_array_get(first, i)))
            fail_msg("%s: value %zu is %.9g", name, i, (double)values[i]);
    struct sha256 digest;
    char hex[65];
    assert_int_equal(hash_sha256(values, (size_t)(BLOCKS * type->block) * sizeof *values, &digest, NULL), 0);
    sha256_hex(&digest, hex);
    if (strcmp(hex, json_string_value(json_object_get(golden, "sha256"))))
        fail_msg("%s: values differ from gguf-py's", name);
}

static void test_types(void **state)
{
    char path[4096];
    (void)state;
    snprintf(path, sizeof path, "%s/../golden/gguf/blocks.jsonl", unit_models());
    FILE *file = fopen(path, "r");
    int checked = 0, all = 0;
    json_t *golden;
    assert_non_null(file);
    while ((golden = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL))) {
        check_type(golden);
        json_decref(golden);
        checked++;
    }
    fclose(file);
    for (const struct gguf_coding *type = gguf_codings; type->coding.name; type++)
        all++;
    assert_int_equal(checked, all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
