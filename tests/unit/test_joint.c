/* Quantised checkpoints: codes and scales become one tensor, whose values equal those of decoding them one by one, in any
 * range of rows; coded rows have the same values; what does not fit is rejected by name. */
#include <math.h>

#include "common/base/mem.h"
#include "common/checkpoint/gguf.h"
#include "common/checkpoint/joint.h"
#include "tests/unit/checkpoint.h"
#include "tests/unit/gguf.h"

enum { ROWS = 70, COLUMNS = 320 };
static char *folder;
static uint8_t code[ROWS * COLUMNS];
static float scale[ROWS * COLUMNS];

static int setup(void **state)
{
    (void)state;
    folder = unit_folder();
    srand(4);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        code[i] = (uint8_t)(rand() % 256);
        code[i] = (code[i] & 0x7f) == 0x7f ? 3 : code[i];
        scale[i] = (float)(1 + rand() % 100) / 1024;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unit_remove(folder);
    return 0;
}

/* Returns the value of an E4M3 by its definition. */
static double e4m3(uint8_t c)
{
    int exponent = c >> 3 & 15, fraction = c & 7;
    double value = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
    return c & 0x80 ? -value : value;
}

/* Opens a folder with these tensors and this quantization_config; NULL with the message in *err if it is rejected. */
static struct checkpoint *open_tensors(struct weights *w, const char *quantisation, struct err *err)
{
    struct checkpoint *cp = NULL;
    char config[600];
    snprintf(config, sizeof config, "{\"model_type\":\"llama\",\"quantization_config\":%s}", quantisation);
    write_string(unit_path(folder, "config.json"), config);
    weights_write(w, unit_path(folder, "model.safetensors"));
    return checkpoint_open(&cp, folder, NULL, err) ? NULL : cp;
}

static void put_codes(struct weights *w, const char *name, const char *dtype, int matrices)
{
    weights_put(w, name, dtype, matrices > 1 ? "[2,35,320]" : "[70,320]", code, sizeof code);
}

/* Compares values and coded rows of a few ranges, with a scale for `down` x `across` blocks of each matrix, the n-th being
 * scale[n]. */
static void check_values(const struct checkpoint *cp, int matrices, int down, int across, bool fp8, const float *scales)
{
    const int each = ROWS / matrices, blocks = (each + down - 1) / down;
    struct source_tensor *t = checkpoint_find(cp, "a.weight");
    struct source_reading reading = {0};
    struct err err = {0};
    assert_non_null(t);
    assert_int_equal(cp->tensor_count, 1);
    for (int first = 0; first < ROWS; first += 23) {
        int rows = ROWS - first < 31 ? ROWS - first : 31;
        static float values[ROWS * COLUMNS], kept[ROWS * COLUMNS];
        static unsigned char coded[ROWS * (COLUMNS + 12)];
        if (t->coding->read(cp, t, (int64_t)first * COLUMNS, (int64_t)rows * COLUMNS, &reading, values, &err))
            fail_msg("%s", err.text);
        if (t->coding->read_coded) {
            size_t bytes = format_coded_bytes(t->coding->format, COLUMNS);
            assert_int_equal(t->coding->read_coded(cp, t, (int64_t)first * COLUMNS, (int64_t)rows * COLUMNS, &reading, coded,
                                                   &err), 0);
            for (int r = 0; r < rows; r++)
                format_coded_values(t->coding->format, COLUMNS, coded + (size_t)r * bytes, kept + r * COLUMNS);
            assert_memory_equal(kept, values, (size_t)(rows * COLUMNS) * sizeof *values);
        }
        for (int i = 0; i < rows * COLUMNS; i++) {
            int row = first + i / COLUMNS, column = i % COLUMNS,
                block = (row / each * blocks + row % each / down) * ((COLUMNS + across - 1) / across) + column / across;
            uint8_t c = code[row * COLUMNS + column];
            assert_true((double)values[i] == (double)(float)((fp8 ? e4m3(c) : (double)(int8_t)c) * (double)scales[block]));
        }
    }
    source_reading_free(&reading);
}

static void scales_of_blocks_rows_and_tensors_are_applied(void **state)
{
    static const struct { const char *shape, *name, *dtype; int down, across; size_t count; int matrices; } cases[] = {
        {"[1,3]", "a.weight_scale_inv", "F8_E4M3", 128, 128, 3}, {"[5,5]", "a.weight_scale_inv", "F8_E4M3", 16, 64, 25},
        {"[70,1]", "a.weight_scale", "F8_E4M3", 1, COLUMNS, 70}, {"[70]", "a.weight_scale", "I8", 1, COLUMNS, 70},
        {"[]", "a.weight_scale", "F8_E4M3", ROWS, COLUMNS, 1}, {"[1]", "a.weight_scale", "I8", ROWS, COLUMNS, 1},
        {"[2,3,5]", "a.weight_scale_inv", "F8_E4M3", 16, 64, 30, .matrices = 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int narrow = 0; narrow < 2; narrow++) {
            struct weights w = {0};
            struct err err = {0};
            char quantisation[100];
            uint16_t half[100];
            float used[100];
            for (size_t k = 0; k < cases[i].count; k++) {
                half[k] = f32_to_bf16(scale[k]);
                used[k] = narrow ? bf16_to_f32(half[k]) : scale[k];
            }
            const int matrices = cases[i].matrices ? cases[i].matrices : 1;
            put_codes(&w, "a.weight", cases[i].dtype, matrices);
            weights_put(&w, cases[i].name, narrow ? "BF16" : "F32", cases[i].shape, narrow ? (void *)half : (void *)scale,
                        cases[i].count * (narrow ? 2 : 4));
            weights_put(&w, "a.input_scale", "F32", "[]", scale, 4);
            snprintf(quantisation, sizeof quantisation, "{\"quant_method\":\"fp8\",\"weight_block_size\":[%d,%d]}",
                     cases[i].down, cases[i].across);
            struct checkpoint *cp = open_tensors(&w, quantisation, &err);
            if (!cp)
                fail_msg("%s", err.text);
            check_values(cp, matrices, cases[i].down, cases[i].across, strcmp(cases[i].dtype, "I8") != 0, used);
            checkpoint_close(&cp);
        }
}

static void blocks_of_mxfp4_are_decoded(void **state)
{
    static const double step[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    enum { EXPERTS = 2, OUTPUTS = 3, BLOCKS = 4, COUNT = EXPERTS * OUTPUTS * BLOCKS };
    uint8_t exponent[COUNT];
    float values[COUNT * 32];
    struct weights w = {0};
    struct err err = {0};
    struct source_reading reading = {0};
    (void)state;
    for (int i = 0; i < COUNT; i++)
        exponent[i] = (uint8_t)(120 + i % 9);
    weights_put(&w, "x_blocks", "U8", "[2,3,4,16]", code, COUNT * 16);
    weights_put(&w, "x_scales", "U8", "[2,3,4]", exponent, COUNT);
    struct checkpoint *cp = open_tensors(&w, "{\"quant_method\":\"mxfp4\",\"modules_to_not_convert\":[\"y\"]}", &err);
    if (!cp)
        fail_msg("%s", err.text);
    const struct source_tensor *t = checkpoint_find(cp, "x_blocks");
    assert_int_equal(t->dim_count, 3);
    assert_int_equal(t->dims[2], BLOCKS * 32);
    assert_int_equal(t->coding->format, FORMAT_MXFP4);
    assert_int_equal(t->coding->read(cp, t, BLOCKS * 32, 4 * BLOCKS * 32, &reading, values, &err), 0);
    for (int i = 0; i < 4 * BLOCKS * 32; i++) {
        int at = BLOCKS * 32 + i, nibble = code[at / 2] >> (at % 2 ? 4 : 0) & 15;
        double expected = ldexp(step[nibble & 7], exponent[at / 32] - 127);
        assert_true((double)values[i] == (nibble & 8 ? -expected : expected));
    }
    source_reading_free(&reading);
    checkpoint_close(&cp);
}

#define FOUR_BITS(format, group) "{\"quant_method\":\"compressed-tensors\",\"format\":\"" format "\",\"config_groups\":{" \
    "\"group_0\":{\"weights\":{\"num_bits\":4,\"type\":\"float\",\"strategy\":\"tensor_group\",\"group_size\":" group "}}}}"
#define MODELOPT "{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\",\"group_size\":16,\"ignore\":[\"lm_head\"]}"
#define NVFP4 "nvfp4-pack-quantized"
#define CODES "a.weight_packed"
#define WHOLE "a.weight_global_scale"

static const double e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

/* Blocks that are kept have the same values, except for the rounding of a divided scale. values: of rows 3 to 11. */
static void check_kept(const struct checkpoint *cp, const struct source_tensor *t, bool divided, const float *values)
{
    static unsigned char coded[9 * COLUMNS / 64 * 40];
    static float kept[COLUMNS];
    struct source_reading reading = {0};
    struct err err = {0};
    assert_int_equal(sizeof coded, 9 * format_coded_bytes(FORMAT_NVFP4_S, COLUMNS));
    assert_int_equal(t->coding->read_coded(cp, t, 3 * COLUMNS, 9 * COLUMNS, &reading, coded, &err), 0);
    for (int row = 0; row < 9; row++) {
        const unsigned char *at = coded + (size_t)row * format_coded_bytes(FORMAT_NVFP4_S, COLUMNS);
        assert_int_equal(format_coded_check(FORMAT_NVFP4_S, COLUMNS, at), -1);
        format_coded_values(FORMAT_NVFP4_S, COLUMNS, at, kept);
        for (int i = 0; i < COLUMNS; i++)
            assert_true(fabsf(kept[i] - values[row * COLUMNS + i]) <= (divided ? 0x1p-22f : 0) * fabsf(kept[i]));
    }
    source_reading_free(&reading);
}

static void four_bit_floats_are_decoded(void **state)
{
    const double *const step = e2m1;
    static const struct { const char *quantisation, *codes, *whole; int block; } cases[] = {
        {FOUR_BITS(NVFP4, "16"), "a.weight_packed", "a.weight_global_scale", 16},
        {FOUR_BITS("mxfp4-pack-quantized", "32"), "a.weight_packed", NULL, 32},
        {MODELOPT, "a.weight", "a.weight_scale_2", 16}, {"null", "a.weight", "a.weight_scale_2", 16}};
    static float values[ROWS * COLUMNS];
    static uint8_t exponent[ROWS * COLUMNS / 32];
    const float whole = 0.3f;
    (void)state;
    for (int i = 0; i < ROWS * COLUMNS / 32; i++)
        exponent[i] = (uint8_t)(120 + i % 9);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const bool nv = cases[c].whole != NULL, divided = strstr(cases[c].quantisation, "compressed") != NULL;
        struct weights w = {0};
        struct err err = {0};
        struct source_reading reading = {0};
        weights_put(&w, cases[c].codes, "U8", "[70,160]", code + 1, ROWS * COLUMNS / 2);
        weights_put(&w, "a.weight_scale", nv ? "F8_E4M3" : "U8", nv ? "[70,20]" : "[70,10]", nv ? code + 7 : exponent,
                    nv ? ROWS * COLUMNS / 16 : sizeof exponent);
        if (nv)
            weights_put(&w, cases[c].whole, "F32", divided ? "[1]" : "[]", &whole, sizeof whole);
        weights_put(&w, divided ? "a.input_global_scale" : "a.input_scale", "F32", "[1]", &whole, sizeof whole);
        struct checkpoint *cp = open_tensors(&w, cases[c].quantisation, &err);
        if (!cp)
            fail_msg("case %zu: %s", c, err.text);
        const struct source_tensor *t = checkpoint_find(cp, "a.weight");
        assert_int_equal(cp->tensor_count, 1);
        assert_int_equal(t->dims[1], COLUMNS);
        assert_int_equal(t->coding->format, nv ? FORMAT_NVFP4_S : FORMAT_MXFP4);
        assert_int_equal(t->coding->read(cp, t, 3 * COLUMNS, 9 * COLUMNS, &reading, values, &err), 0);
        for (int i = 0; i < 9 * COLUMNS; i++) {
            const int at = 3 * COLUMNS + i, nibble = code[1 + at / 2] >> (at % 2 ? 4 : 0) & 15, block = at / cases[c].block;
            const float own = nv ? (float)e4m3(code[7 + block]) : (float)ldexp(1, exponent[block] - 127);
            const float scales = !nv ? own : divided ? own / whole : own * whole;
            const float expected = (float)((nibble & 8 ? -step[nibble & 7] : step[nibble]) * (double)scales);
            assert_true(values[i] == expected);
        }
        if (nv)
            check_kept(cp, t, divided, values);
        source_reading_free(&reading);
        checkpoint_close(&cp);
    }
}

/* Matrices whose inputs do not form whole blocks of nvfp4_s are read as f32. */
static void narrow_four_bit_floats_are_decoded(void **state)
{
    struct weights w = {0};
    struct err err = {0};
    struct source_reading reading = {0};
    const float whole = 0.5f;
    float values[48];
    (void)state;
    weights_put(&w, "a.weight", "U8", "[1,24]", code, 24);
    weights_put(&w, "a.weight_scale", "F8_E4M3", "[1,3]", code + 7, 3);
    weights_put(&w, "a.weight_scale_2", "F32", "[]", &whole, sizeof whole);
    struct checkpoint *cp = open_tensors(&w, MODELOPT, &err);
    assert_non_null(cp);
    const struct source_tensor *t = checkpoint_find(cp, "a.weight");
    assert_int_equal(t->coding->format, FORMAT_F32);
    assert_null(t->coding->read_coded);
    assert_int_equal(t->coding->read(cp, t, 0, 48, &reading, values, &err), 0);
    assert_true(values[47] == (float)(e2m1[code[23] >> 4 & 7] * (code[23] & 128 ? -0.5 : 0.5) * e4m3(code[9])));
    source_reading_free(&reading);
    checkpoint_close(&cp);
}

static void four_bit_floats_that_do_not_fit_are_named(void **state)
{
    static const struct {
        const char *quantisation, *codes, *shape, *scale, *type, *whole;
        size_t bytes;
        const char *says;
    } cases[] = {
        {FOUR_BITS(NVFP4, "32"), CODES, "[2,8]", "[2,1]", "F8_E4M3", WHOLE, 16, "format requires 16"},
        {FOUR_BITS(NVFP4, "16"), CODES, "[2,8]", "[2,2]", "F8_E4M3", WHOLE, 16, "each 16 inputs"},
        {FOUR_BITS(NVFP4, "16"), CODES, "[2,8]", "[2,1]", "U8", WHOLE, 16, "in F8_E4M3"},
        {FOUR_BITS(NVFP4, "16"), CODES, "[2,7]", "[2,1]", "F8_E4M3", WHOLE, 14, "in U8"},
        {FOUR_BITS(NVFP4, "16"), CODES, "[2,8]", "[2,1]", "F8_E4M3", "b", 16, "tensor a.weight_global_scale is missing"},
        {FOUR_BITS(NVFP4, "16"), CODES, "[1,2,8]", "[2,1]", "F8_E4M3", WHOLE, 16, "of all experts"},
        {MODELOPT, "a.weight", "[2,8]", "[1,2]", "F8_E4M3", "a.weight_scale_2", 16, "each 16 inputs"},
        {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4_AWQ\"}", "a.weight", "[2,8]", "[2,1]", "F8_E4M3",
         "a.weight_scale_2", 16, "quant_algo is \"NVFP4_AWQ\"; supported are FP8"},
#define WRONG(settings, says) {"{\"quant_method\":\"modelopt\"," settings "}", "a.weight", "[2,8]", "[2,1]", "F8_E4M3", \
                               "a.weight_scale_2", 16, says}
#define GROUP(weights) "\"config_groups\":{\"group_0\":{\"weights\":{" weights "}}}"
        WRONG("\"quant_algo\":\"NVFP4\",\"group_size\":32", "quantization_config: group_size is 32; the algorithm requires 16"),
        WRONG("\"quant_algo\":\"FP8\",\"group_size\":16", "group_size is 16; the algorithm has no groups"),
        WRONG("\"quant_algo\":\"NVFP4\"," GROUP("\"num_bits\":8"),
              "config_groups: group_0: num_bits is 8; the algorithm requires 4"),
        WRONG("\"quant_algo\":\"FP8\"," GROUP("\"num_bits\":4"), "num_bits is 4; the algorithm requires 8"),
        WRONG("\"quant_algo\":\"NVFP4\"," GROUP("\"num_bits\":4,\"group_size\":64"), "group_size is 64; the format requires"),
        WRONG("\"quant_algo\":\"NVFP4\"," GROUP("\"num_bits\":4,\"type\":\"int\""), "type is \"int\"; the format requires"),
        WRONG("\"quant_algo\":\"FP8\"," GROUP("\"num_bits\":8,\"type\":\"int\""), "type is \"int\"; only float"),
        WRONG("\"quant_algo\":\"MIXED_PRECISION\"," GROUP("\"num_bits\":6"), "num_bits is 6; supported are 4 and 8"),
        WRONG("\"quant_algo\":\"MIXED_PRECISION\",\"quantized_layers\":{\"a\":{\"quant_algo\":\"NVFP4\",\"group_size\":8}}",
              "quantized_layers: a: group_size is 8; the algorithm requires 16"),
        WRONG("\"quant_algo\":\"MIXED_PRECISION\",\"quantized_layers\":{\"a\":{\"quant_algo\":\"W4A8\"}}",
              "quantized_layers: a: quant_algo is \"W4A8\""),
        WRONG("\"quant_algo\":\"NVFP4\",\"config_groups\":[1]", "config_groups is [1]; it must be an object"),
        WRONG("\"quant_algo\":\"NVFP4\",\"quantized_layers\":{\"a\":7}", "quantized_layers: a is 7; it must be an object"),
#undef WRONG
#undef GROUP
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weights w = {0};
        struct err err = {0};
        weights_put(&w, cases[i].codes, "U8", cases[i].shape, code, cases[i].bytes);
        weights_put(&w, "a.weight_scale", cases[i].type, cases[i].scale, code, strcmp(cases[i].scale, "[2,2]") ? 2 : 4);
        weights_put(&w, cases[i].whole, "F32", "[1]", scale, 4);
        assert_null(open_tensors(&w, cases[i].quantisation, &err));
        if (!strstr(err.text, cases[i].says))
            fail_msg("'%s' does not say %s", err.text, cases[i].says);
    }
}

static void scales_of_matrices_that_make_no_numbers_are_named(void **state)
{
    static const float scales[] = {INFINITY, NAN, -0.5f, 0};
    static const struct { const char *quantisation, *codes, *whole; bool zero; } kinds[] = {
        {FOUR_BITS(NVFP4, "16"), CODES, WHOLE, false}, {MODELOPT, "a.weight", "a.weight_scale_2", true}};
    (void)state;
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
            struct weights w = {0};
            struct err err = {0};
            char says[80];
            weights_put(&w, kinds[k].codes, "U8", "[2,8]", code, 16);
            weights_put(&w, "a.weight_scale", "F8_E4M3", "[2,1]", code, 2);
            weights_put(&w, kinds[k].whole, "F32", "[1]", &scales[i], 4);
            struct checkpoint *cp = open_tensors(&w, kinds[k].quantisation, &err);
            snprintf(says, sizeof says, "model.safetensors: tensor %s has the scale %g", kinds[k].whole, (double)scales[i]);
            if (cp ? scales[i] != 0 || !kinds[k].zero : !strstr(err.text, says))
                fail_msg("'%s' does not say %s", err.text, says);
            checkpoint_close(&cp);
        }
}

/* GGUF's NVFP4 with matrix scales, as llama.cpp converts it; scales of 1 are dropped, and the blocks kept. */
static void scales_of_gguf_are_applied(void **state)
{
    enum { EXPERTS = 3, OUTPUTS = 2, INPUTS = 128, NVFP4_TYPE = 40 };
    static const int sizes[] = {INPUTS, OUTPUTS, EXPERTS}, experts[] = {EXPERTS}, one[] = {1};
    static const float scales[EXPERTS] = {0.5f, 0.3f, 7}, ones[EXPERTS] = {1, 1, 1};
    static float plain[EXPERTS * OUTPUTS * INPUTS], values[EXPERTS * OUTPUTS * INPUTS];
    (void)state;
    for (int c = 0; c < 4; c++) {
        struct gguf_file g = {{0}};
        struct gguf read = {0};
        struct err err = {0};
        struct source_reading reading = {0};
        struct checkpoint *cp = mem_alloc(1, sizeof *cp, NULL);
        gguf_put_tensor(&g, "blk.0.x.weight", NVFP4_TYPE, 3, sizes, code, sizeof plain / sizeof *plain / 64 * 36);
        gguf_put_tensor(&g, "blk.0.x.scale", 0, 1, c == 2 ? one : experts, c == 1 ? ones : scales, c == 2 ? 4 : sizeof scales);
        if (c == 3)
            gguf_put_tensor(&g, "blk.1.x.scale", 0, 1, experts, scales, sizeof scales);
        gguf_write(&g, unit_path(folder, "t.gguf"));
        must(checkpoint_add_opened(cp, unit_path(folder, "t.gguf"), "t.gguf", &err), &err);
        must(gguf_read(&read, cp, 0, &err), &err);
        must(checkpoint_finish(cp, &err), &err);
        const struct source_tensor *t = checkpoint_find(cp, "blk.0.x.weight");
        must(t->coding->read(cp, t, 0, EXPERTS * OUTPUTS * INPUTS, &reading, plain, &err), &err);
        must(checkpoint_join(cp, &err), &err);
        assert_int_equal(cp->tensor_count, 1 + (c == 3));
        t = checkpoint_find(cp, "blk.0.x.weight");
        assert_int_equal(t->coding->format, c == 1 ? FORMAT_NVFP4 : FORMAT_F32);
        must(t->coding->read(cp, t, INPUTS, (EXPERTS * OUTPUTS - 1) * INPUTS, &reading, values, &err), &err);
        for (int i = INPUTS; i < EXPERTS * OUTPUTS * INPUTS; i++)
            assert_true(values[i - INPUTS] == plain[i] * (c == 1 ? 1 : scales[c == 2 ? 0 : i / (OUTPUTS * INPUTS)]));
        source_reading_free(&reading);
        gguf_free(&read);
        checkpoint_close(&cp);
    }
}

static void what_does_not_fit_is_named(void **state)
{
    static const struct { const char *quantisation, *scale_name, *dtype, *shape; size_t bytes; const char *says; } cases[] = {
        {"{\"quant_method\":\"bitsandbytes\"}", "a.weight_scale", "F32", "[]", 4,
         "quant_method is \"bitsandbytes\"; supported are"},
        {"{\"quant_method\":\"fp8\",\"group\":3}", "a.weight_scale", "F32", "[]", 4, "quantization_config: group is 3"},
        {"{\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"}", "a.weight_scale", "F32", "[]", 4, "fmt is \"e5m2\""},
        {"{\"quant_method\":\"fp8\",\"weight_block_size\":[0,4]}", "a.weight_scale", "F32", "[]", 4, "weight_block_size"},
        {"3", "a.weight_scale", "F32", "[]", 4, "quantization_config: must be an object"},
        {"{\"quant_method\":\"fp8\"}", "a.weight_scale_inv", "F32", "[1,2]", 8, "tensor a.weight_scale_inv has the wrong "
         "shape"},
        {"{\"quant_method\":\"fp8\"}", "a.weight_scale", "F32", "[3]", 12, "expected one scale, or one for each row"},
        {"{\"quant_method\":\"fp8\"}", "a.weight_scale", "I16", "[]", 2, "a.weight_scale is I16; scales in"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weights w = {0};
        struct err err = {0};
        put_codes(&w, "a.weight", "F8_E4M3", 1);
        weights_put(&w, cases[i].scale_name, cases[i].dtype, cases[i].shape, scale, cases[i].bytes);
        struct checkpoint *cp = open_tensors(&w, cases[i].quantisation, &err);
        assert_null(cp);
        if (!strstr(err.text, cases[i].says))
            fail_msg("'%s' does not say %s", err.text, cases[i].says);
    }
}

static void blocks_without_scales_are_named(void **state)
{
    struct weights w = {0};
    struct err err = {0};
    (void)state;
    weights_put(&w, "x_blocks", "U8", "[2,3,4,16]", code, 2 * 3 * 4 * 16);
    assert_null(open_tensors(&w, "{\"quant_method\":\"mxfp4\"}", &err));
    if (!strstr(err.text, "model.safetensors: tensor x_blocks cannot be dequantised, because tensor x_scales"))
        fail_msg("%s", err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_of_blocks_rows_and_tensors_are_applied),
        cmocka_unit_test(blocks_of_mxfp4_are_decoded),
        cmocka_unit_test(four_bit_floats_are_decoded),
        cmocka_unit_test(narrow_four_bit_floats_are_decoded),
        cmocka_unit_test(four_bit_floats_that_do_not_fit_are_named),
        cmocka_unit_test(scales_of_matrices_that_make_no_numbers_are_named),
        cmocka_unit_test(scales_of_gguf_are_applied),
        cmocka_unit_test(blocks_without_scales_are_named),
        cmocka_unit_test(what_does_not_fit_is_named),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
