/* Checkpoints of packed integers (GPTQ, AWQ, compressed-tensors): the codes of a matrix, packed here by each format's
 * definition, are read as (code - zero) * scale in any range of rows, and as the same q4; what does not fit is rejected by
 * name. */
#include "common/checkpoint/convert.h"
#include "tests/unit/checkpoint.h"

enum { OUT = 24, IN = 96, GROUPS_MAX = 6 };
enum { GPTQ, AWQ, PACKED };

static char *folder;

/* A matrix and its quantisation. */
struct matrix {
    int kind, bits, group;
    bool symmetric, v2, ordered, no_order, narrow;          /* narrow: scales in BF16 */
    int code[OUT][IN], zero[OUT][GROUPS_MAX], of[IN];
    float scale[OUT][GROUPS_MAX];
};

static int setup(void **state)
{
    (void)state;
    folder = unit_folder();
    srand(9);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unit_remove(folder);
    return 0;
}

static void fill(struct matrix *m)
{
    const int half = 1 << (m->bits - 1);
    for (int o = 0; o < OUT; o++) {
        for (int i = 0; i < IN; i++)
            m->code[o][i] = rand() % (2 * half);
        for (int g = 0; g < IN / m->group; g++) {
            m->zero[o][g] = m->symmetric ? half : rand() % (2 * half);
            m->scale[o][g] = m->narrow ? bf16_to_f32((uint16_t)(0x3c00 + rand() % 300))
                                       : f16_to_f32((uint16_t)(0x1400 + rand() % 5000));
        }
    }
    for (int i = 0; i < IN; i++)
        m->of[i] = m->ordered ? rand() % (IN / m->group) : i / m->group;
}

static void set_code(uint32_t *words, size_t word, int position, int bits, int value)
{
    words[word] |= (uint32_t)value << position * bits;
}

static int awq_position(int output)
{
    static const int order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    for (int i = 0; i < 8; i++)
        if (order[i] == output % 8)
            return i;
    return -1;
}

static void put_shaped(struct weights *w, const char *name, const char *dtype, int a, int b, const void *data, size_t element)
{
    char shape[40];
    snprintf(shape, sizeof shape, b ? "[%d,%d]" : "[%d]", a, b);
    weights_put(w, name, dtype, shape, data, (size_t)a * (size_t)(b ? b : 1) * element);
}

/* Writes the tensors of the module `a`. */
static void put_matrix(struct weights *w, const struct matrix *m)
{
    static uint32_t codes[OUT * IN], zeros[OUT * GROUPS_MAX];
    static uint16_t scales[OUT * GROUPS_MAX];
    const int per = 32 / m->bits, groups = IN / m->group;
    const bool packed = m->kind == PACKED;
    memset(codes, 0, sizeof codes);
    memset(zeros, 0, sizeof zeros);
    for (int o = 0; o < OUT; o++)
        for (int i = 0; i < IN; i++) {
            int word = packed ? o * (IN / per) + i / per : m->kind == AWQ ? i * (OUT / per) + o / per : i / per * OUT + o;
            set_code(codes, (size_t)word, m->kind == AWQ ? awq_position(o) : i % per, m->bits, m->code[o][i]);
        }
    for (int o = 0; o < OUT; o++)
        for (int g = 0; g < groups; g++) {
            /* GPTQ stores one less, so 0 as the largest code. */
            int stored = (m->zero[o][g] - (m->kind == GPTQ && !m->v2)) & ((1 << m->bits) - 1);
            set_code(zeros, (size_t)(packed ? o / per * groups + g : g * (OUT / per) + o / per),
                     m->kind == AWQ ? awq_position(o) : o % per, m->bits, stored);
            float scale = m->scale[o][g];
            scales[packed ? o * groups + g : g * OUT + o] = m->narrow ? f32_to_bf16(scale) : f32_to_f16(scale);
        }
    const char *dtype = m->narrow ? "BF16" : "F16";
    int64_t shape[2] = {OUT, IN};
    if (packed) {
        put_shaped(w, "a.weight_packed", "I32", OUT, IN / per, codes, 4);
        put_shaped(w, "a.weight_scale", dtype, OUT, groups, scales, 2);
        put_shaped(w, "a.weight_shape", "I64", 2, 0, shape, 8);
        if (!m->symmetric)
            put_shaped(w, "a.weight_zero_point", "I32", OUT / per, groups, zeros, 4);
        if (m->ordered)
            put_shaped(w, "a.weight_g_idx", "I32", IN, 0, m->of, 4);
        return;
    }
    put_shaped(w, "a.qweight", "I32", m->kind == AWQ ? IN : IN / per, m->kind == AWQ ? OUT / per : OUT, codes, 4);
    put_shaped(w, "a.scales", dtype, groups, OUT, scales, 2);
    put_shaped(w, "a.qzeros", "I32", groups, OUT / per, zeros, 4);
    if (m->kind == GPTQ && !m->no_order)
        put_shaped(w, "a.g_idx", "I32", IN, 0, m->of, 4);
}

static struct checkpoint *open_tensors(struct weights *w, const char *quantisation, struct err *err)
{
    struct checkpoint *cp = NULL;
    char config[1200];
    snprintf(config, sizeof config, "{\"model_type\":\"llama\",\"quantization_config\":%s}", quantisation);
    write_string(unit_path(folder, "config.json"), config);
    weights_write(w, unit_path(folder, "model.safetensors"));
    return checkpoint_open(&cp, folder, NULL, err) ? NULL : cp;
}

#define COMPRESSED(format, type, bits, symmetric, strategy, group) \
    "{\"quant_method\":\"compressed-tensors\",\"format\":\"" format "\",\"config_groups\":{\"group_0\":{" \
    "\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":" bits ",\"type\":\"" type "\",\"symmetric\":" symmetric "," \
    "\"strategy\":\"" strategy "\",\"group_size\":" group "}}},\"ignore\":[\"lm_head\"],\"sparsity_config\":{}}"

static void say(char *out, size_t room, const struct matrix *m)
{
    char bits[12], group[12];
    snprintf(bits, sizeof bits, "%d", m->bits);
    snprintf(group, sizeof group, "%d", m->group == IN ? -1 : m->group);
    if (m->kind == GPTQ)
        snprintf(out, room, "{\"quant_method\":\"gptq\",\"bits\":%s,\"group_size\":%s,\"sym\":%s,\"desc_act\":%s,"
                 "\"checkpoint_format\":\"%s\",\"damp_percent\":0.1}", bits, group, m->symmetric ? "true" : "false",
                 m->ordered ? "true" : "false", m->v2 ? "gptq_v2" : "gptq");
    else if (m->kind == AWQ)
        snprintf(out, room, "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":%s,\"zero_point\":true,\"version\":\"gemm\"}",
                 group);
    else
        snprintf(out, room, "{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":{\"x\":{"
                 "\"weights\":{\"num_bits\":%s,\"type\":\"int\",\"symmetric\":%s,\"strategy\":\"%s\",\"group_size\":%s}}}}",
                 bits, m->symmetric ? "true" : "false", m->group == IN ? "channel" : "group", m->group == IN ? "null" : group);
}

static void check_matrix(const struct checkpoint *cp, const struct matrix *m, bool kept)
{
    struct source_tensor *t = checkpoint_find(cp, "a.weight");
    struct source_reading reading = {0};
    struct err err = {0};
    assert_non_null(t);
    assert_int_equal(cp->tensor_count, 1);
    assert_int_equal(t->dim_count, 2);
    assert_int_equal(t->dims[0], OUT);
    assert_int_equal(t->dims[1], IN);
    assert_int_equal(t->coding->format, kept ? FORMAT_Q4 : FORMAT_F32);
    assert_int_equal(t->coding->read_coded != NULL, kept);
    for (int first = 0; first < OUT; first += 5)
        for (int rows = 1; rows <= OUT - first; rows += 3) {
            static float values[OUT * IN], decoded[OUT * IN];
            static unsigned char coded[OUT * IN];
            if (t->coding->read(cp, t, first * IN, rows * IN, &reading, values, &err))
                fail_msg("%s", err.text);
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < IN; i++) {
                    int o = first + r, g = m->of[i];
                    assert_true(values[r * IN + i] == (float)(m->code[o][i] - m->zero[o][g]) * m->scale[o][g]);
                }
            if (!kept)
                continue;
            assert_int_equal(t->coding->read_coded(cp, t, first * IN, rows * IN, &reading, coded, &err), 0);
            for (int r = 0; r < rows; r++)
                format_coded_values(FORMAT_Q4, IN, coded + (size_t)r * format_coded_bytes(FORMAT_Q4, IN), decoded + r * IN);
            assert_memory_equal(decoded, values, (size_t)(rows * IN) * sizeof *values);
        }
    source_reading_free(&reading);
}

static void packed_integers_are_decoded(void **state)
{
    static const struct matrix cases[] = {
        {GPTQ, 4, 32, true}, {GPTQ, 4, 32, true, .v2 = true}, {GPTQ, 4, 32}, {GPTQ, 4, 16, true},
        {GPTQ, 4, 32, true, .ordered = true}, {GPTQ, 4, 16, .ordered = true, .v2 = true},
        {GPTQ, 4, IN, true, .no_order = true}, {GPTQ, 8, 32, true}, {GPTQ, 8, 48},
        {AWQ, 4, 32}, {AWQ, 4, 32, true}, {AWQ, 4, IN}, {AWQ, 4, 16, .narrow = true},
        {PACKED, 4, 32, true}, {PACKED, 4, 32, true, .narrow = true}, {PACKED, 4, 16, true}, {PACKED, 4, 32}, {PACKED, 4, IN},
        {PACKED, 4, IN, true}, {PACKED, 4, 32, true, .ordered = true}, {PACKED, 8, 32, true}, {PACKED, 8, 32, .narrow = true}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct matrix m = cases[i];
        struct weights w = {0};
        struct err err = {0};
        char quantisation[700];
        fill(&m);
        put_matrix(&w, &m);
        say(quantisation, sizeof quantisation, &m);
        struct checkpoint *cp = open_tensors(&w, quantisation, &err);
        if (!cp)
            fail_msg("case %zu: %s", i, err.text);
        check_matrix(cp, &m, m.bits == 4 && m.kind != AWQ && m.symmetric && !m.ordered && m.group % 32 == 0);
        checkpoint_close(&cp);
    }
}

/* Bit widths promised by config.json are checked; a scale beyond f16 prevents q4. */
static void promises_of_symmetry_are_checked(void **state)
{
    struct matrix m = {GPTQ, 4, 32};
    struct weights w = {0};
    struct err err = {0};
    struct source_reading reading = {0};
    unsigned char coded[OUT * IN];
    float values[OUT * IN];
    (void)state;
    fill(&m);
    put_matrix(&w, &m);
    struct checkpoint *cp = open_tensors(&w, "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"sym\":true}", &err);
    assert_non_null(cp);
    struct source_tensor *t = checkpoint_find(cp, "a.weight");
    assert_int_equal(t->coding->read(cp, t, 0, OUT * IN, &reading, values, &err), 0);
    assert_int_equal(t->coding->read_coded(cp, t, 0, OUT * IN, &reading, coded, &err), -1);
    assert_non_null(strstr(err.text, "is not symmetric with an f16 scale"));
    checkpoint_close(&cp);
    m = (struct matrix){PACKED, 4, 32, true, .narrow = true};
    fill(&m);
    m.scale[3][1] = 0x1p-30f;
    put_matrix(&w, &m);
    cp = open_tensors(&w, COMPRESSED("pack-quantized", "int", "4", "true", "group", "32"), &err);
    assert_non_null(cp);
    check_matrix(cp, &m, false);
    checkpoint_close(&cp);
    source_reading_free(&reading);
}

static void an_order_that_leads_nowhere_is_named(void **state)
{
    struct matrix m = {GPTQ, 4, 32, .ordered = true};
    struct weights w = {0};
    struct err err = {0};
    struct source_reading reading = {0};
    float values[IN];
    (void)state;
    fill(&m);
    m.of[7] = 3;
    put_matrix(&w, &m);
    struct checkpoint *cp = open_tensors(&w, "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32}", &err);
    assert_non_null(cp);
    struct source_tensor *t = checkpoint_find(cp, "a.weight");
    assert_int_equal(t->coding->read(cp, t, 0, IN, &reading, values, &err), -1);
    assert_non_null(strstr(err.text, "a.g_idx: element [7] is 3, but there are 3 groups"));
    checkpoint_close(&cp);
    source_reading_free(&reading);
}

static void what_is_not_supported_is_named(void **state)
{
    static const struct { const char *quantisation, *says; } cases[] = {
        {"{\"quant_method\":\"gptq\",\"bits\":3}", "bits is 3; supported are 4 and 8"},
        {"{\"quant_method\":\"gptq\"}", "bits is missing"},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"checkpoint_format\":\"marlin\"}", "supported are gptq and gptq_v2"},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"rotation\":\"hadamard\"}", "quantization_config: rotation is"},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":0}", "group_size is 0"},
        {"{\"quant_method\":\"awq\",\"bits\":4,\"version\":\"gemv\"}", "version is \"gemv\"; only gemm"},
        {COMPRESSED("nvfp4-pack-quantized", "int", "4", "true", "tensor_group", "16"), "the format requires float"},
        {COMPRESSED("mxfp8-quantized", "float", "8", "true", "group", "32"), "format is \"mxfp8-quantized\""},
        {COMPRESSED("pack-quantized", "int", "3", "true", "group", "32"), "group_0: num_bits is 3"},
        {COMPRESSED("float-quantized", "int", "8", "true", "channel", "null"), "type is \"int\"; the format requires float"},
        {COMPRESSED("int-quantized", "int", "8", "false", "channel", "null"), "group_0: symmetric is false"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\"}", "config_groups is missing"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":{},"
         "\"sparsity_config\":{\"format\":\"sparse-24\"}}", "sparse weights are not supported"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weights w = {0};
        struct err err = {0};
        weights_add(&w, "a", "F32", 0, 3, 3);
        struct checkpoint *cp = open_tensors(&w, cases[i].quantisation, &err);
        assert_null(cp);
        if (!strstr(err.text, cases[i].says))
            fail_msg("'%s' does not say %s", err.text, cases[i].says);
    }
}

static void parts_that_do_not_fit_are_named(void **state)
{
    static const struct { const char *name, *dtype, *shape; size_t bytes; const char *says; } cases[] = {
        {"a.qweight", "I32", "[12]", 48, "a matrix of words in I32"},
        {"a.scales", "F16", "[3,20]", 120, "for each group of each output"},
        {"a.scales", "I16", "[3,24]", 144, "scales in F32, F16 and BF16"},
        {"a.scales", "F16", "[5,24]", 240, "each group_size inputs"},
        {"a.qzeros", "I32", "[3,4]", 48, "expected a zero for each scale"},
        {"a.g_idx", "I32", "[95]", 380, "the group of each input"},
        {"a.scales", NULL, NULL, 0, "because tensor a.scales is missing"},
        {"a.qzeros", NULL, NULL, 0, "because tensor a.qzeros is missing"},
    };
    static const struct { const char *name, *dtype, *shape; size_t bytes; } whole[] = {
        {"a.qweight", "I32", "[12,24]", 12 * 24 * 4}, {"a.scales", "F16", "[3,24]", 144}, {"a.qzeros", "I32", "[3,3]", 36},
        {"a.g_idx", "I32", "[96]", 384}};
    static const char data[4096];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weights w = {0};
        struct err err = {0};
        bool no_order = strcmp(cases[i].says, "each group_size inputs") == 0;
        for (size_t k = 0; k < 4; k++) {
            bool other = strcmp(whole[k].name, cases[i].name) == 0;
            if (other ? !cases[i].dtype : no_order && k == 3)
                continue;
            weights_put(&w, whole[k].name, other ? cases[i].dtype : whole[k].dtype, other ? cases[i].shape : whole[k].shape,
                        data, other ? cases[i].bytes : whole[k].bytes);
        }
        struct checkpoint *cp = open_tensors(&w, "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32}", &err);
        if (cp)
            fail_msg("case %zu is taken", i);
        if (!strstr(err.text, cases[i].says))
            fail_msg("'%s' does not say %s", err.text, cases[i].says);
    }
}

/* All experts in one tensor, as some quantisers write models whose experts are fused. */
static void experts_in_one_tensor_are_refused(void **state)
{
    static const struct { const char *name, *quantisation; } cases[] = {
        {"m.experts.gate_up_proj_packed", COMPRESSED("pack-quantized", "int", "4", "true", "group", "32")},
        {"m.experts.gate_up_proj.weight_packed", COMPRESSED("pack-quantized", "int", "4", "true", "group", "32")},
        {"m.experts.gate_up_proj.qweight", "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32}"},
        {"m.experts.down_proj.qweight", "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32}"},
    };
    static const char data[2 * 8 * 4 * 4];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weights w = {0};
        struct err err = {0};
        weights_put(&w, cases[i].name, "I32", "[2,8,4]", data, sizeof data);
        assert_null(open_tensors(&w, cases[i].quantisation, &err));
        if (!strstr(err.text, cases[i].name) || !strstr(err.text, "contains the weights of all experts"))
            fail_msg("'%s' does not say what %s is", err.text, cases[i].name);
    }
}

/* The other formats of compressed-tensors: codes of one byte with scales of channels, tensors, groups and blocks. */
static void floats_and_integers_with_scales_are_known(void **state)
{
    static const struct { const char *quantisation, *dtype, *scales; size_t bytes; int down, across; } cases[] = {
        {COMPRESSED("float-quantized", "float", "8", "true", "channel", "null"), "F8_E4M3", "[24,1]", 96, 1, IN},
        {COMPRESSED("float-quantized", "float", "8", "true", "tensor", "null"), "F8_E4M3", "[1]", 4, OUT, IN},
        {COMPRESSED("int-quantized", "int", "8", "true", "channel", "null"), "I8", "[24,1]", 96, 1, IN},
        {COMPRESSED("naive-quantized", "int", "8", "true", "group", "32"), "I8", "[24,3]", 288, 1, 32},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\",\"config_groups\":{\"a\":{\"weights\":{"
         "\"num_bits\":8,\"type\":\"float\",\"strategy\":\"block\",\"block_structure\":[16,64]}}}}",
         "F8_E4M3", "[2,2]", 16, 16, 64},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weights w = {0};
        struct err err = {0};
        static char code[OUT * IN];
        static float scale[OUT * 3], values[OUT * IN];
        struct source_reading reading = {0};
        for (int k = 0; k < OUT * IN; k++)
            code[k] = cases[i].dtype[0] == 'F' ? 0x38 : 1;              /* one, in both */
        for (int k = 0; k < OUT * 3; k++)
            scale[k] = (float)(k + 1) / 64;
        put_shaped(&w, "a.weight", cases[i].dtype, OUT, IN, code, 1);
        weights_put(&w, "a.weight_scale", "F32", cases[i].scales, scale, cases[i].bytes);
        weights_put(&w, "a.input_scale", "F32", "[]", scale, 4);
        weights_put(&w, "b.k_scale", "F32", "[1]", scale, 4);
        struct checkpoint *cp = open_tensors(&w, cases[i].quantisation, &err);
        if (!cp)
            fail_msg("case %zu: %s", i, err.text);
        struct source_tensor *t = checkpoint_find(cp, "a.weight");
        assert_int_equal(cp->tensor_count, 1);
        assert_int_equal(t->coding->read(cp, t, 0, OUT * IN, &reading, values, &err), 0);
        for (int k = 0; k < OUT * IN; k++) {
            int block = k / IN / cases[i].down * ((IN + cases[i].across - 1) / cases[i].across) + k % IN / cases[i].across;
            assert_true(values[k] == scale[block]);
        }
        source_reading_free(&reading);
        checkpoint_close(&cp);
    }
}

/* Quantisers may write a bias for each module: a bias of zeros is ignored, any other is rejected. */
static void biases_of_zeros_are_passed_over(void **state)
{
    const struct convert_options options = {.dense.keep = true, .experts.keep = true, .producer = "test"};
    static float bias[TINY_KV_HEADS * TINY_HEAD_DIM];
    (void)state;
    for (int other = 0; other < 2; other++) {
        struct weights w = {0};
        struct err err = {0};
        struct checkpoint *cp = NULL;
        struct conversion plan = {0};
        tiny_outside(&w, "BF16");
        for (int layer = 0; layer < TINY_LAYERS; layer++) {
            tiny_experts(&w, layer, "BF16");
            tiny_attention(&w, layer, "BF16");
        }
        bias[5] = other ? 1 : -0.0f;
        weights_put(&w, "model.layers.0.self_attn.k_proj.bias", "F32", "[8]", bias, sizeof bias);
        write_string(unit_path(folder, "config.json"), TINY_OLMOE);
        weights_write(&w, unit_path(folder, "model.safetensors"));
        assert_int_equal(checkpoint_open(&cp, folder, NULL, &err), 0);
        assert_int_equal(conversion_plan(&plan, cp, &options, &err), other ? -1 : 0);
        if (other)
            assert_non_null(strstr(err.text, "self_attn.k_proj.bias is not part of"));
        conversion_free(&plan);
        checkpoint_close(&cp);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_integers_are_decoded),
        cmocka_unit_test(promises_of_symmetry_are_checked),
        cmocka_unit_test(an_order_that_leads_nowhere_is_named),
        cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(parts_that_do_not_fit_are_named),
        cmocka_unit_test(experts_in_one_tensor_are_refused),
        cmocka_unit_test(biases_of_zeros_are_passed_over),
        cmocka_unit_test(floats_and_integers_with_scales_are_known),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
