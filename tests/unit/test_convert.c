/* From checkpoint to model file: every element arrives at its place, in any form of the checkpoint; what does not fit is
 * rejected by name and leaves no file. */
#include <dirent.h>

#include "common/base/file.h"
#include "common/checkpoint/convert.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/kernel/coded.h"
#include "tests/unit/checkpoint.h"

static char *folder;
static struct thread_pool *pool;

static int setup(void **state)
{
    struct err err = {0};
    (void)state;
    folder = unit_folder();
    return thread_pool_new(&pool, 2, &err);
}

static int teardown(void **state)
{
    (void)state;
    thread_pool_free(&pool);
    unit_remove(folder);
    return 0;
}

static const struct convert_options KEEP = {.dense = {.keep = true}, .experts = {.keep = true}, .name = "tiny",
                                            .producer = "test"};

static int convert(const char *source, const char *output, const struct convert_options *options, struct err *err)
{
    struct checkpoint *cp = NULL;
    struct conversion plan = {0};
    err_clear(err);
    int rc = checkpoint_open(&cp, source, output, err) || conversion_plan(&plan, cp, options, err) ||
             conversion_write(&plan, output, pool, NULL, err) ? -1 : 0;
    conversion_free(&plan);
    checkpoint_close(&cp);
    return rc;
}

static struct model *converted(const char *source, const char *name, const struct convert_options *options)
{
    struct err err = {0};
    struct model *model = NULL;
    char *output = strdup(unit_path(folder, name));
    if (convert(source, output, options, &err) || model_open(&model, output, &err) || model_verify(model, &err))
        fail_msg("%s", err.text);
    free(output);
    return model;
}

static const struct tensor *tensor(const struct model *model, const char *name)
{
    struct err err = {0};
    const struct tensor *t = model_tensor(model, &err, "%s", name);
    assert_non_null(t);
    return t;
}

/* Values of the tiny checkpoint are below 2: the bound is half a step for q8, and a whole step for q4, whose range is
 * clipped at one end. */
static double slack(enum weight_format format)
{
    return format == FORMAT_Q8 ? 1.0 / 127 + 0.001 : format == FORMAT_Q4 ? 0.25 + 0.001 : format == FORMAT_FP8 ? 2.001 / 16 : 0;
}

/* Rows first .. first + rows of a canonical matrix equal the source tensor. */
static void check_rows(const struct model *model, const char *name, int first, int rows, const char *source)
{
    const struct tensor *t = tensor(model, name);
    const void *data = model_data(model, t);
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < t->inputs; k++) {
            float value = t->kind == TENSOR_VECTOR ? ((const float *)data)[first + i]
                                                   : matrix_at(t->format, data, t->inputs, first + i, k);
            assert_float_equal(value, weights_value(source, (size_t)i * (size_t)t->inputs + (size_t)k), slack(t->format));
        }
}

static void check_expert(const struct model *model, int layer, int expert)
{
    char name[64], gate[128], up[128], down[128];
    snprintf(name, sizeof name, "layers.%d.experts", layer);
    snprintf(gate, sizeof gate, "model.layers.%d.mlp.experts.%d.gate_proj.weight", layer, expert);
    snprintf(up, sizeof up, "model.layers.%d.mlp.experts.%d.up_proj.weight", layer, expert);
    snprintf(down, sizeof down, "model.layers.%d.mlp.experts.%d.down_proj.weight", layer, expert);
    const struct tensor *t = tensor(model, name);
    const unsigned char *data = (const unsigned char *)model_data(model, t) + (size_t)expert * t->stride;
    for (int i = 0; i < TINY_INNER; i++)
        for (int k = 0; k < TINY_HIDDEN; k++) {
            size_t at = (size_t)(i * TINY_HIDDEN + k);
            double max = slack(t->format);
            assert_float_equal(expert_gate_at(t->format, data, TINY_HIDDEN, TINY_INNER, i, k), weights_value(gate, at), max);
            assert_float_equal(expert_up_at(t->format, data, TINY_HIDDEN, TINY_INNER, i, k), weights_value(up, at), max);
            assert_float_equal(expert_down_at(t->format, data, TINY_HIDDEN, TINY_INNER, k, i),
                               weights_value(down, (size_t)(k * TINY_INNER + i)), max);
        }
}

static void check_tiny(const struct model *model)
{
    check_rows(model, "embed", 0, TINY_VOCAB, "model.embed_tokens.weight");
    check_rows(model, "head", 0, TINY_VOCAB, "lm_head.weight");
    check_rows(model, "final_norm", 0, TINY_HIDDEN, "model.norm.weight");
    check_rows(model, "layers.1.attention.qkv", 0, 24, "model.layers.1.self_attn.q_proj.weight");
    check_rows(model, "layers.1.attention.qkv", 24, 8, "model.layers.1.self_attn.k_proj.weight");
    check_rows(model, "layers.1.attention.qkv", 32, 8, "model.layers.1.self_attn.v_proj.weight");
    check_rows(model, "layers.1.attention.out", 0, 24, "model.layers.1.self_attn.o_proj.weight");
    check_rows(model, "layers.0.attention.q_norm", 0, 24, "model.layers.0.self_attn.q_norm.weight");
    check_rows(model, "layers.0.attention.k_norm", 0, 8, "model.layers.0.self_attn.k_norm.weight");
    check_rows(model, "layers.0.attention.norm", 0, 24, "model.layers.0.input_layernorm.weight");
    check_rows(model, "layers.0.ffn.norm", 0, 24, "model.layers.0.post_attention_layernorm.weight");
    check_rows(model, "layers.1.router", 0, 3, "model.layers.1.mlp.gate.weight");
    for (int layer = 0; layer < TINY_LAYERS; layer++)
        for (int e = 0; e < TINY_EXPERTS; e++)
            check_expert(model, layer, e);
}

static void elements_land_where_they_belong(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"F32", "F16", "BF16"}, *const kept[] = {"f32", "f16", "bf16"};
    for (int from = 0; from < 3; from++) {
        char *source = tiny_folder(folder, dtypes[from], dtypes[from]);
        struct model *model = converted(source, "kept.moe", &KEEP);
        check_tiny(model);
        assert_string_equal(model_identity(model)->dtype, kept[from]);
        model_close(&model);
        for (int to = 0; format_from_floats((enum weight_format)to); to++) {
            const enum weight_format next = (enum weight_format)(to + 1);
            const enum weight_format routed = format_from_floats(next) ? next : FORMAT_F32;
            struct convert_options options = {.dense = {.format = (enum weight_format)to},
                                              .experts = {.format = routed},
                                              .name = "tiny", .producer = "test"};
            model = converted(source, "to.moe", &options);
            check_tiny(model);
            bool scaled = format_scaled((enum weight_format)to);
            assert_int_equal(tensor(model, "layers.0.router")->format, scaled ? from : to);
            assert_int_equal(tensor(model, "embed")->format, scaled ? from : to);
            assert_int_equal(tensor(model, "head")->format, to);
            assert_int_equal(tensor(model, "layers.0.attention.out")->format, to);
            assert_int_equal(tensor(model, "layers.0.experts")->format, routed);
            assert_int_equal(tensor(model, "final_norm")->format, FORMAT_F32);
            model_close(&model);
        }
        free(source);
    }
}

/* Makes a folder without its weights. */
static char *new_folder(const char *name, const char *config)
{
    char *path = strdup(unit_path(folder, name));
    assert_int_equal(mkdir(path, 0777), 0);
    write_string(unit_path(path, "config.json"), config);
    return path;
}

static void shards_in_any_order_are_the_same_model(void **state)
{
    (void)state;
    char *whole = tiny_folder(folder, "whole", "BF16"), *parts = new_folder("parts", TINY_OLMOE);
    struct weights a = {0}, b = {0};
    struct text index = {0}, names = {0};
    tiny_attention(&b, 1, "BF16");
    tiny_experts(&a, 1, "BF16");
    tiny_outside(&b, "BF16");
    tiny_experts(&b, 0, "BF16");
    tiny_attention(&a, 0, "BF16");
    text_puts(&index, "{\"metadata\":{},\"weight_map\":{\"model.norm.weight\":\"z.safetensors\",", NULL);
    text_puts(&index, "\"model.layers.0.mlp.gate.weight\":\"a.safetensors\"}}", NULL);
    weights_write(&a, unit_path(parts, "a.safetensors"));
    weights_write(&b, unit_path(parts, "z.safetensors"));
    unit_write(unit_path(parts, "model.safetensors.index.json"), index.data, index.length);
    struct model *one = converted(whole, "one.moe", &KEEP), *other = converted(parts, "other.moe", &KEEP);
    assert_memory_equal(&model_identity(one)->source, &model_identity(other)->source, sizeof(struct sha256));
    check_tiny(other);
    for (int i = 0; i < model_tensor_count(one); i++) {
        const struct tensor *x = model_tensor_at(one, i), *y = model_tensor_at(other, i);
        assert_memory_equal(&x->digest, &y->digest, sizeof x->digest);
    }
    assert_int_equal(model_facts(other)->source_count, 4);
    assert_string_equal(model_facts(other)->sources[0].name, "a.safetensors");
    assert_string_equal(model_facts(other)->sources[3].name, "z.safetensors");
    model_close(&one);
    model_close(&other);
    text_free(&index);
    text_free(&names);
    free(whole);
    free(parts);
}

/* All experts in two tensors: the same bytes in another order, so the source's digest is the same. */
static void fused_experts_are_the_same_model(void **state)
{
    (void)state;
    char *apart = tiny_folder(folder, "apart", "F32"), *fused = new_folder("fused", TINY_OLMOE);
    struct weights w = {0};
    enum { PLANE = TINY_INNER * TINY_HIDDEN };
    tiny_outside(&w, "F32");
    for (int layer = 0; layer < TINY_LAYERS; layer++) {
        static float gate_up[TINY_EXPERTS][2][PLANE], down[TINY_EXPERTS][PLANE];
        char name[128];
        tiny_attention(&w, layer, "F32");
        for (int e = 0; e < TINY_EXPERTS; e++)
            for (int part = 0; part < 3; part++) {
                static const char *const parts[] = {"gate", "up", "down"};
                snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s_proj.weight", layer, e, parts[part]);
                for (size_t i = 0; i < PLANE; i++)
                    *(part < 2 ? &gate_up[e][part][i] : &down[e][i]) = weights_value(name, i);
            }
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.gate_up_proj", layer);
        weights_put(&w, name, "F32", "[3,38,24]", gate_up, sizeof gate_up);
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.down_proj", layer);
        weights_put(&w, name, "F32", "[3,24,19]", down, sizeof down);
    }
    weights_write(&w, unit_path(fused, "model.safetensors"));
    struct model *one = converted(apart, "one.moe", &KEEP), *other = converted(fused, "other.moe", &KEEP);
    check_tiny(other);
    assert_memory_equal(&model_identity(one)->source, &model_identity(other)->source, sizeof(struct sha256));
    model_close(&one);
    model_close(&other);
    free(apart);
    free(fused);
}

static void no_output_is_left(const char *name)
{
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (strstr(entry->d_name, name))
            fail_msg("%s was left behind", entry->d_name);
    closedir(dir);
}

enum change { DROP, WIDEN, RETYPE, ADD };

/* Converts the tiny model with one tensor changed. */
static void write_changed(const char *path, enum change change, const char *which)
{
    struct weights all = {0};
    if (change == ADD)
        weights_add(&all, which, "F32", 0, 3, 0);
    tiny_outside(&all, "F32");
    for (int layer = 0; layer < TINY_LAYERS; layer++) {
        tiny_attention(&all, layer, "F32");
        tiny_experts(&all, layer, "F32");
    }
    if (change != ADD) {
        /* Renames in place: the new name is equally long, so nothing moves. */
        char *at = strstr(all.header.data, which);
        assert_non_null(at);
        if (change == DROP)
            at[0] = 'M';
        else if (change == RETYPE)
            memcpy(strstr(at, "F32"), "I32", 3);
        else
            memcpy(strstr(at, "\"shape\":[24,24]") + 8, "[12,48]", 7);
    }
    weights_write(&all, path);
}

static const struct { enum change change; const char *which, *says; } MISFITS[] = {
    {DROP, "model.layers.1.self_attn.k_proj.weight",
     "tensor model.layers.1.self_attn.k_proj.weight is missing; in a model of family olmoe it is the source of"},
    {DROP, "model.layers.1.mlp.experts.2.up_proj.weight", "mlp.experts.2.up_proj.weight is missing"},
    {WIDEN, "model.layers.0.self_attn.o_proj.weight", "model.safetensors: tensor model.layers.0.self_attn.o_proj.weight "
     "has shape [12][48], but config.json requires [24][24]"},
    {RETYPE, "model.layers.0.self_attn.q_norm.weight", "q_norm.weight has dtype I32; supported are F32, F16 and BF16"},
    {ADD, "model.layers.0.mlp.shared_expert_gate.weight",
     "shared_expert_gate.weight is not part of a model with 2 layers of family olmoe"},
    {ADD, "model.layers.2.input_layernorm.weight", "model.layers.2.input_layernorm.weight is not part of"},
};

static void misfits_are_named(void **state)
{
    (void)state;
    char *source = new_folder("misfit", TINY_OLMOE);
    for (size_t i = 0; i < sizeof MISFITS / sizeof *MISFITS; i++) {
        struct err err = {0};
        write_changed(unit_path(source, "model.safetensors"), MISFITS[i].change, MISFITS[i].which);
        assert_int_equal(convert(source, unit_path(folder, "bad.moe"), &KEEP, &err), -1);
        if (!strstr(err.text, MISFITS[i].says))
            fail_msg("'%s' does not say '%s'", err.text, MISFITS[i].says);
        no_output_is_left("bad.moe");
    }
    free(source);
}

static void add_layer(struct weights *w, int layer)
{
    tiny_attention(w, layer, "F32");
    tiny_experts(w, layer, "F32");
}

/* Adds the tensors that make layer `n` a predictor; with an embedding and a head of its own in bf16, or without. */
static void add_predictor(struct weights *w, int n, bool own)
{
    static const struct { const char *name; int rows, columns; } parts[] = {
        {"eh_proj.weight", TINY_HIDDEN, 2 * TINY_HIDDEN}, {"enorm.weight", TINY_HIDDEN, 0}, {"hnorm.weight", TINY_HIDDEN, 0},
        {"shared_head.norm.weight", TINY_HIDDEN, 0}, {"embed_tokens.weight", TINY_VOCAB, TINY_HIDDEN},
        {"shared_head.head.weight", TINY_VOCAB, TINY_HIDDEN}};
    for (size_t i = 0; i < (own ? 6 : 4); i++) {
        char name[128];
        snprintf(name, sizeof name, "model.layers.%d.%s", n, parts[i].name);
        weights_add(w, name, i < 4 ? "F32" : "BF16", 0, parts[i].rows, parts[i].columns);
    }
    add_layer(w, n);
}

/* Two predictors after two layers; the second has no embedding and no head. */
static char *predictors_folder(const char *name)
{
    struct weights all = {0};
    char *source = new_folder(name, TINY_OLMOE);
    add_predictor(&all, 3, false);
    tiny_outside(&all, "F32");
    add_layer(&all, 1);
    add_predictor(&all, 2, true);
    add_layer(&all, 0);
    weights_write(&all, unit_path(source, "model.safetensors"));
    return source;
}

static void predictors_are_kept(void **state)
{
    (void)state;
    struct err err = {0};
    char *source = predictors_folder("predictors");
    struct model *model = converted(source, "predictors.moe", &KEEP);
    const struct hparams *shape = model_hparams(model);
    assert_int_equal(shape->layers, TINY_LAYERS);
    assert_int_equal(shape->predictors, 2);
    assert_true(shape->predictor[0].embed && shape->predictor[0].head && !shape->predictor[1].embed &&
                !shape->predictor[1].head);
    assert_int_equal(shape->layer[2].ffn, FFN_EXPERTS);
    assert_int_equal(model_tensor_count(model), 3 + TINY_LAYERS * 8 + 14 + 12);
    check_rows(model, "predict.0.embed", 0, TINY_VOCAB, "model.layers.2.embed_tokens.weight");
    check_rows(model, "predict.0.head", 0, TINY_VOCAB, "model.layers.2.shared_head.head.weight");
    check_rows(model, "predict.0.final_norm", 0, TINY_HIDDEN, "model.layers.2.shared_head.norm.weight");
    check_rows(model, "predict.1.embed_norm", 0, TINY_HIDDEN, "model.layers.3.enorm.weight");
    check_rows(model, "predict.1.hidden_norm", 0, TINY_HIDDEN, "model.layers.3.hnorm.weight");
    check_rows(model, "predict.1.joint", 0, TINY_HIDDEN, "model.layers.3.eh_proj.weight");
    check_rows(model, "predict.1.router", 0, TINY_EXPERTS, "model.layers.3.mlp.gate.weight");
    assert_int_equal(tensor(model, "predict.0.embed")->format, FORMAT_BF16);
    assert_int_equal(tensor(model, "predict.1.router")->layer, 3);
    const struct tensor *experts = tensor(model, "predict.1.experts");
    const unsigned char *last = (const unsigned char *)model_data(model, experts) + 2 * experts->stride;
    assert_float_equal(expert_up_at(FORMAT_F32, last, TINY_HIDDEN, TINY_INNER, 5, 7),
                       weights_value("model.layers.3.mlp.experts.2.up_proj.weight", 5 * TINY_HIDDEN + 7), 0);
    assert_null(model_tensor(model, &err, "layers.2.router"));
    err_clear(&err);
    assert_int_equal(model_verify(model, &err), 0);
    model_close(&model);

    /* Embeddings, a predictor's included, are never quantised; other matrices are. */
    const struct convert_options small = {.dense = {.format = FORMAT_Q8}, .experts = {.format = FORMAT_Q8}, .producer = "test"};
    model = converted(source, "predictors.moe", &small);
    assert_int_equal(tensor(model, "predict.0.embed")->format, FORMAT_BF16);
    assert_int_equal(tensor(model, "predict.0.head")->format, FORMAT_Q8);
    assert_int_equal(tensor(model, "predict.0.joint")->format, FORMAT_Q8);
    assert_int_equal(tensor(model, "predict.0.experts")->format, FORMAT_Q8);
    model_close(&model);
    free(source);
}

/* A layer is a predictor if it has the tensor that joins embedding and hidden state; it must then be complete. */
static void predictors_are_known_by_what_joins(void **state)
{
    (void)state;
    static const struct { const char *which, *says; } misfits[] = {
        {"model.layers.2.eh_proj.weight", "is not part of a model with 2 layers of family olmoe"},
        {"model.layers.3.enorm.weight", "tensor model.layers.3.enorm.weight is missing; in a model of family olmoe it is the "
         "source of "
         "predict.1.embed_norm"},
        {"model.layers.3.mlp.experts.1.up_proj.weight", "experts.1.up_proj.weight is missing"}};
    for (size_t i = 0; i < sizeof misfits / sizeof *misfits; i++) {
        char name[16];
        snprintf(name, sizeof name, "joins%zu", i);
        struct err err = {0};
        char *source = predictors_folder(name);
        const char *path = unit_path(source, "model.safetensors");
        struct text file = {0};
        assert_int_equal(file_read(&file, path, 1 << 24, &err), 0);
        char *at = memmem(file.data, file.length, misfits[i].which, strlen(misfits[i].which));
        assert_non_null(at);
        at[0] = 'M';
        unit_write(path, file.data, file.length);
        text_free(&file);
        assert_int_equal(convert(source, unit_path(folder, "bad.moe"), &KEEP, &err), -1);
        if (!strstr(err.text, misfits[i].says))
            fail_msg("'%s' does not say '%s'", err.text, misfits[i].says);
        free(source);
    }

    struct weights all = {0};
    struct err err = {0};
    char *source = new_folder("many", TINY_OLMOE);
    tiny_outside(&all, "F32");
    for (int n = 0; n < TINY_LAYERS + PREDICTORS_MAX + 1; n++)
        n < TINY_LAYERS ? add_layer(&all, n) : add_predictor(&all, n, false);
    weights_write(&all, unit_path(source, "model.safetensors"));
    assert_int_equal(convert(source, unit_path(folder, "bad.moe"), &KEEP, &err), -1);
    assert_non_null(strstr(err.text, "has too many multi-token prediction layers, from layer 2 on; at most 8"));
    free(source);
}

/* Overwrites one f32 of the file's first tensor (lm_head). */
static void poke(const char *path, float value)
{
    FILE *file = fopen(path, "r+b");
    uint64_t length;
    assert_non_null(file);
    assert_int_equal(fread(&length, 8, 1, file), 1);
    assert_int_equal(fseek(file, (long)(8 + length + 4 * 25), SEEK_SET), 0);
    assert_int_equal(fwrite(&value, 4, 1, file), 1);
    fclose(file);
}

/* ---- formats of coded rows: weights that only coded rows can express ---- */

static unsigned char *made_row(enum weight_format format, const struct source_tensor *source, int64_t row)
{
    uint64_t seed = (uint64_t)row * 7919;
    for (const char *c = source->name; *c; c++)
        seed = seed * 31 + (unsigned char)*c;
    return coded_draw(format, (int)source->dims[source->dim_count - 1], 1, &seed);
}

static int read_made(const struct checkpoint *cp, const struct source_tensor *source, int64_t first, int64_t count,
                     struct source_reading *reading, float *values, struct err *err)
{
    int columns = (int)source->dims[source->dim_count - 1];
    (void)cp, (void)reading, (void)err;
    for (int64_t row = first / columns; row < (first + count) / columns; row++) {
        unsigned char *coded = made_row(source->coding->format, source, row);
        for (int k = 0; k < columns; k++)
            *values++ = coded_weight(source->coding->format, coded, columns, k);
        free(coded);
    }
    return 0;
}

/* Returns the tensor whose row 5 is not a number. */
static const char *broken_tensor;

static int read_made_coded(const struct checkpoint *cp, const struct source_tensor *source, int64_t first, int64_t count,
                           struct source_reading *reading, unsigned char *coded, struct err *err)
{
    int columns = (int)source->dims[source->dim_count - 1];
    size_t bytes = format_coded_bytes(source->coding->format, columns);
    (void)cp, (void)reading, (void)err;
    for (int64_t row = first / columns; row < (first + count) / columns; row++, coded += bytes) {
        unsigned char *made = made_row(source->coding->format, source, row);
        memcpy(coded, made, bytes);
        if (broken_tensor && row == 5 && strcmp(source->name, broken_tensor) == 0)
            coded[4 + 2] = 0x7f;
        free(made);
    }
    return 0;
}

static const struct source_coding MADE_FP8 = {"fp8", FORMAT_FP8, read_made, read_made_coded};
static const struct source_coding MADE_Q4_K = {"q4_k", FORMAT_Q4_K, read_made, read_made_coded};

/* Layer 0 keeps its down and has v in q4_k, whose blocks are longer than its rows; layer 1 has v in fp8. */
static const struct source_coding *made_coding(const char *name, const struct source_coding *own)
{
    if (strstr(name, "experts."))
        return strstr(name, "layers.0.") && strstr(name, "down_proj") ? own : &MADE_FP8;
    if (strstr(name, "o_proj") || strstr(name, "layers.0.self_attn.v_proj"))
        return &MADE_Q4_K;
    return strstr(name, "layers.1.self_attn.v_proj") ? &MADE_FP8 : own;
}

static int convert_made(const char *source, const char *output, const struct convert_options *options, size_t *widened,
                        struct err *err)
{
    struct checkpoint *cp = NULL;
    struct conversion plan = {0};
    err_clear(err);
    int rc = checkpoint_open(&cp, source, output, err);
    for (size_t i = 0; !rc && i < cp->tensor_count; i++)
        cp->tensors[i].coding = made_coding(cp->tensors[i].name, cp->tensors[i].coding);
    rc = rc || conversion_plan(&plan, cp, options, err);
    *widened = rc ? 0 : plan.widened;
    if (!rc && *widened)
        assert_string_equal(plan.widened_first, "layers.0.attention.qkv");
    rc = rc || conversion_write(&plan, output, pool, NULL, err);
    conversion_free(&plan);
    checkpoint_close(&cp);
    return rc ? -1 : 0;
}

static void coded_rows_are_kept_as_they_are(void **state)
{
    (void)state;
    struct err err = {0};
    struct model *model = NULL;
    size_t widened;
    char *source = tiny_folder(folder, "made", "BF16"), *output = strdup(unit_path(folder, "made.moe"));
    assert_int_equal(convert_made(source, output, &KEEP, &widened, &err), 0);
    assert_int_equal(widened, 1 + TINY_LAYERS);     /* qkv of layer 0 is mixed; rows of 24 cannot be Q4_K */
    assert_int_equal(model_open(&model, output, &err), 0);
    const struct tensor *v = tensor(model, "layers.1.attention.qkv"), *mixed = tensor(model, "layers.0.experts");
    assert_true(v->mixed && v->format == FORMAT_BF16 && v->last_format == FORMAT_FP8);
    assert_true(mixed->mixed && mixed->format == FORMAT_FP8 && mixed->last_format == FORMAT_BF16);
    assert_true(tensor(model, "layers.0.attention.qkv")->last_format == FORMAT_F32);
    check_rows(model, "layers.1.attention.qkv", 0, 24, "model.layers.1.self_attn.q_proj.weight");
    check_rows(model, "layers.1.attention.qkv", 24, 8, "model.layers.1.self_attn.k_proj.weight");
    for (int r = 0; r < 8; r++) {
        struct source_tensor of = {.name = "model.layers.1.self_attn.v_proj.weight", .dims = {8, TINY_HIDDEN}, .dim_count = 2};
        unsigned char *coded = made_row(FORMAT_FP8, &of, r);
        const unsigned char *data = (const unsigned char *)model_data(model, v) + tensor_last_offset(v);
        for (int k = 0; k < TINY_HIDDEN; k++)
            assert_true(matrix_at(FORMAT_FP8, data, TINY_HIDDEN, r, k) == coded_weight(FORMAT_FP8, coded, TINY_HIDDEN, k));
        free(coded);
    }
    for (int e = 0; e < TINY_EXPERTS; e++) {
        const unsigned char *data = (const unsigned char *)model_data(model, mixed) + (size_t)e * mixed->stride;
        char name[64];
        snprintf(name, sizeof name, "model.layers.0.mlp.experts.%d.down_proj.weight", e);
        for (int i = 0; i < TINY_HIDDEN * TINY_INNER; i++)
            assert_true(matrix_at(FORMAT_BF16, data + tensor_last_offset(mixed), TINY_INNER, i / TINY_INNER, i % TINY_INNER) ==
                        weights_value(name, (size_t)i));
    }
    const struct tensor *t = tensor(model, "layers.1.experts"), *out = tensor(model, "layers.1.attention.out");
    const unsigned char *data = (const unsigned char *)model_data(model, t) + t->stride;
    struct source_tensor up = {.name = "model.layers.1.mlp.experts.1.up_proj.weight", .dims = {TINY_INNER, TINY_HIDDEN},
                               .dim_count = 2};
    struct source_tensor down = {.name = "model.layers.1.mlp.experts.1.down_proj.weight", .dims = {TINY_HIDDEN, TINY_INNER},
                                 .dim_count = 2};
    struct source_tensor o = {.name = "model.layers.1.self_attn.o_proj.weight", .dims = {TINY_HIDDEN, TINY_HIDDEN},
                              .dim_count = 2};
    assert_int_equal(t->format, FORMAT_FP8);
    assert_int_equal(out->format, FORMAT_F32);
    for (int r = 0; r < TINY_INNER; r++) {
        unsigned char *coded = made_row(FORMAT_FP8, &up, r);
        for (int k = 0; k < TINY_HIDDEN; k++)
            assert_true(expert_up_at(FORMAT_FP8, data, TINY_HIDDEN, TINY_INNER, r, k) ==
                        coded_weight(FORMAT_FP8, coded, TINY_HIDDEN, k));
        free(coded);
    }
    for (int r = 0; r < TINY_HIDDEN; r++) {
        unsigned char *coded = made_row(FORMAT_FP8, &down, r), *plain = made_row(FORMAT_Q4_K, &o, r);
        for (int k = 0; k < TINY_INNER; k++)
            assert_true(expert_down_at(FORMAT_FP8, data, TINY_HIDDEN, TINY_INNER, r, k) ==
                        coded_weight(FORMAT_FP8, coded, TINY_INNER, k));
        for (int k = 0; k < TINY_HIDDEN; k++)
            assert_true(matrix_at(FORMAT_F32, model_data(model, out), TINY_HIDDEN, r, k) ==
                        coded_weight(FORMAT_Q4_K, plain, TINY_HIDDEN, k));
        free(coded);
        free(plain);
    }
    struct sha256 kept = model_identity(model)->source;
    model_close(&model);
    struct convert_options wide = {.dense = {.format = FORMAT_F32}, .experts = {.format = FORMAT_F32}, .producer = "test"};
    assert_int_equal(convert_made(source, output, &wide, &widened, &err), 0);
    assert_int_equal(widened, 0);
    assert_int_equal(model_open(&model, output, &err), 0);
    assert_memory_equal(&kept, &model_identity(model)->source, sizeof kept);
    model_close(&model);
    broken_tensor = up.name;
    assert_int_equal(convert_made(source, unit_path(folder, "broken.moe"), &KEEP, &widened, &err), -1);
    assert_non_null(strstr(err.text, "tensor model.layers.1.mlp.experts.1.up_proj.weight: element [5][2] or its scale is not a "
                                     "finite number; the checkpoint is damaged"));
    no_output_is_left("broken.moe");
    broken_tensor = NULL;
    free(source);
    free(output);
}

static void values_must_be_finite_and_fit(void **state)
{
    (void)state;
    struct err err = {0};
    struct convert_options half = {.dense = {.format = FORMAT_F16}, .experts = {.format = FORMAT_F16}, .producer = "test"};
    char *source = tiny_folder(folder, "values", "F32"), *output = strdup(unit_path(folder, "bad.moe"));
    poke(unit_path(source, "model.safetensors"), 65519.0f);
    assert_int_equal(convert(source, unit_path(folder, "fits.moe"), &half, &err), 0);
    poke(unit_path(source, "model.safetensors"), 65520.0f);
    assert_int_equal(convert(source, output, &half, &err), -1);
    assert_non_null(strstr(err.text, "tensor lm_head.weight: rows from 0 on: element [1][1] is 65520, too large for f16"));
    assert_int_equal(convert(source, unit_path(folder, "fits.moe"), &KEEP, &err), 0);
    static const struct { enum weight_format format; float fits, does_not; const char *says; } quantised[] =
        {{FORMAT_Q8, 8.32e6f, 8321040, "too large for q8; use --dtype bf16 or f32"},
         {FORMAT_Q4, -5.24e5f, -524160, "too large for q4"}};
    for (int i = 0; i < 2; i++) {
        half.dense.format = quantised[i].format;
        poke(unit_path(source, "model.safetensors"), quantised[i].fits);
        assert_int_equal(convert(source, unit_path(folder, "fits.moe"), &half, &err), 0);
        poke(unit_path(source, "model.safetensors"), quantised[i].does_not);
        assert_int_equal(convert(source, output, &half, &err), -1);
        assert_non_null(strstr(err.text, quantised[i].says));
    }
    poke(unit_path(source, "model.safetensors"), (float)-(1e300 * 1e300));
    assert_int_equal(convert(source, output, &KEEP, &err), -1);
    assert_non_null(strstr(err.text, "element [1][1] is not a finite number"));
    assert_ptr_equal(strstr(err.text, source), err.text);
    no_output_is_left("bad.moe");
    free(source);
    free(output);
}

static const char DENSE[] =
    "{\"model_type\":\"qwen3\",\"hidden_size\":24,\"intermediate_size\":19,\"num_hidden_layers\":1,\"num_attention_heads\":3,"
    "\"num_key_value_heads\":1,\"head_dim\":8,\"rms_norm_eps\":1e-6,\"max_position_embeddings\":64,\"vocab_size\":37,"
    "\"tie_word_embeddings\":true,\"attention_bias\":true}";

static void dense_weights(struct weights *w)
{
    static const struct { const char *name; int rows, columns; } parts[] = {
        {"self_attn.q_proj.weight", 24, 24}, {"self_attn.k_proj.weight", 8, 24}, {"self_attn.v_proj.weight", 8, 24},
        {"self_attn.o_proj.weight", 24, 24}, {"self_attn.q_proj.bias", 24, 0}, {"self_attn.k_proj.bias", 8, 0},
        {"self_attn.v_proj.bias", 8, 0}, {"self_attn.o_proj.bias", 24, 0}, {"self_attn.q_norm.weight", 8, 0},
        {"self_attn.k_norm.weight", 8, 0}, {"input_layernorm.weight", 24, 0}, {"post_attention_layernorm.weight", 24, 0},
        {"mlp.gate_proj.weight", 19, 24}, {"mlp.up_proj.weight", 19, 24}, {"mlp.down_proj.weight", 24, 19}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[128];
        snprintf(name, sizeof name, "model.layers.0.%s", parts[i].name);
        weights_add(w, name, "BF16", 0, parts[i].rows, parts[i].columns);
    }
    weights_add(w, "model.embed_tokens.weight", "BF16", 0, TINY_VOCAB, TINY_HIDDEN);
    weights_add(w, "model.norm.weight", "BF16", 0, TINY_HIDDEN, 0);
}

static void dense_models_with_biases_convert(void **state)
{
    (void)state;
    struct weights w = {0};
    char *source = new_folder("dense", DENSE);
    dense_weights(&w);
    weights_write(&w, unit_path(source, "model.safetensors"));
    struct model *model = converted(source, "dense.moe", &KEEP);
    assert_true(model_hparams(model)->tied);
    check_rows(model, "layers.0.attention.qkv_bias", 0, 24, "model.layers.0.self_attn.q_proj.bias");
    check_rows(model, "layers.0.attention.qkv_bias", 24, 8, "model.layers.0.self_attn.k_proj.bias");
    check_rows(model, "layers.0.attention.qkv_bias", 32, 8, "model.layers.0.self_attn.v_proj.bias");
    check_rows(model, "layers.0.attention.out_bias", 0, 24, "model.layers.0.self_attn.o_proj.bias");
    const struct tensor *t = tensor(model, "layers.0.dense");
    assert_int_equal(t->count, 1);
    assert_float_equal(expert_down_at(t->format, model_data(model, t), 24, 19, 5, 18),
                       weights_value("model.layers.0.mlp.down_proj.weight", 5 * 19 + 18), 0);
    model_close(&model);
    free(source);
}

/* Some tied checkpoints contain the head all the same: it must then equal the embedding. A tied embedding is quantised, but
 * not below 8 bits. */
static void a_tied_head_may_be_repeated(void **state)
{
    (void)state;
    static const struct format_choice FORMATS[] = {{.keep = true}, {.format = FORMAT_FP8}, {.format = FORMAT_Q4}};
    static const enum weight_format EXPECTED[] = {FORMAT_BF16, FORMAT_FP8, FORMAT_Q8};
    struct err err = {0};
    struct weights w = {0};
    char *source = new_folder("tied", DENSE);
    uint16_t head[TINY_VOCAB * TINY_HIDDEN];
    for (size_t i = 0; i < TINY_VOCAB * TINY_HIDDEN; i++)
        head[i] = f32_to_bf16(weights_value("model.embed_tokens.weight", i));
    dense_weights(&w);
    weights_put(&w, "lm_head.weight", "BF16", "[37,24]", head, sizeof head);
    weights_write(&w, unit_path(source, "model.safetensors"));
    for (int i = 0; i < 3; i++) {
        struct convert_options options = {.dense = FORMATS[i], .experts = FORMATS[i], .name = "tied", .producer = "test"};
        struct model *model = converted(source, "tied.moe", &options);
        assert_int_equal(model_tensor_count(model), 11);
        assert_int_equal(tensor(model, "embed")->format, EXPECTED[i]);
        check_rows(model, "embed", 0, TINY_VOCAB, "model.embed_tokens.weight");
        model_close(&model);
    }
    const struct layout tied = {.tied = true};
    const struct tensor embed = {.kind = TENSOR_MATRIX, .role = ROLE_EMBED};
    assert_int_equal(tensor_format(&tied, &embed, FORMAT_Q4, FORMAT_Q6_K), FORMAT_Q6_K);
    head[TINY_VOCAB * TINY_HIDDEN - 1] ^= 1;
    dense_weights(&w);
    weights_put(&w, "lm_head.weight", "BF16", "[37,24]", head, sizeof head);
    weights_write(&w, unit_path(source, "model.safetensors"));
    assert_int_equal(convert(source, unit_path(folder, "bad.moe"), &KEEP, &err), -1);
    assert_non_null(strstr(err.text, "lm_head.weight differs from the embedding"));
    free(source);
}

static void texts_come_along(void **state)
{
    (void)state;
    char pocket[1200];
    snprintf(pocket, sizeof pocket, "%s/pocket/model", unit_models());
    struct model *model = converted(pocket, "pocket.moe", &KEEP);
    struct err err = {0};
    struct text json = {0};
    size_t bytes = 0;
    char path[1300];
    snprintf(path, sizeof path, "%s/tokenizer.json", pocket);
    assert_int_equal(file_read(&json, path, SIZE_MAX / 2, &err), 0);
    const char *kept = model_tokenizer_json(model, &bytes);
    assert_int_equal(bytes, json.length);
    assert_memory_equal(kept, json.data, bytes + 1);
    kept = model_chat_template(model, &bytes);
    assert_non_null(kept);
    assert_int_equal(strncmp(kept, "{% for m in messages %}", 23), 0);
    assert_int_equal(strlen(kept), bytes);
    assert_non_null(strstr(model_facts(model)->tokenizer_config.data, "\"eos_token\""));
    assert_int_equal(model_hparams(model)->eos_count, 1);
    assert_int_equal(model_hparams(model)->eos[0], 2047);
    assert_int_equal(model_facts(model)->source_count, 5);
    struct sha256 digest;
    assert_int_equal(hash_sha256(json.data, json.length, &digest, &err), 0);
    for (size_t i = 0; i < 5; i++)
        if (strcmp(model_facts(model)->sources[i].name, "tokenizer.json") == 0)
            assert_memory_equal(&digest, &model_facts(model)->sources[i].digest, sizeof digest);
    text_free(&json);
    model_close(&model);
}

static void a_sentencepiece_model_comes_along_where_there_is_no_json(void **state)
{
    (void)state;
    struct err err = {0};
    struct text data = {0};
    struct tokenizer *direct = NULL, *kept = NULL;
    struct sha256 digest;
    char *source = tiny_folder(folder, "sentence", "BF16"), path[1300];
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/../golden/tokenizer/sp-bpe.model", unit_models());
    assert_int_equal(file_read(&data, path, SIZE_MAX / 2, &err), 0);
    unit_write(unit_path(source, "tokenizer.model"), data.data, data.length);
    struct model *model = converted(source, "sentence.moe", &KEEP);
    const char *stored = model_tokenizer_json(model, &bytes);
    assert_int_equal(bytes, data.length);
    assert_memory_equal(stored, data.data, bytes);
    assert_int_equal(tokenizer_new(&kept, stored, bytes, &err), 0);
    assert_int_equal(tokenizer_new(&direct, data.data, data.length, &err), 0);
    tokenizer_hash(direct, &digest);
    assert_memory_equal(&digest, &model_facts(model)->tokenizer, sizeof digest);
    assert_int_equal(tokenizer_vocab_size(kept), tokenizer_vocab_size(direct));
    model_close(&model);
    tokenizer_free(&kept);
    tokenizer_free(&direct);
    text_free(&data);
    free(source);
}

static void texts_that_cannot_be_used_are_refused(void **state)
{
    (void)state;
    struct err err = {0};
    char *source = tiny_folder(folder, "texts", "BF16"), *output = strdup(unit_path(folder, "bad.moe"));
    write_string(unit_path(source, "tokenizer.json"), "{\"model\":{\"type\":\"Unheard\"}}");
    assert_int_equal(convert(source, output, &KEEP, &err), -1);
    assert_non_null(strstr(err.text, "texts: tokenizer.json: "));
    unlink(unit_path(source, "tokenizer.json"));
    write_string(unit_path(source, "tokenizer.model"), "\n\x09\x0A\x05<un");
    assert_int_equal(convert(source, output, &KEEP, &err), -1);
    assert_non_null(strstr(err.text, "texts: tokenizer.model: "));
    unlink(unit_path(source, "tokenizer.model"));
    write_string(unit_path(source, "tokenizer_config.json"), "{\"chat_template\":\"old\"}");
    write_string(unit_path(source, "chat_template.jinja"), "{{ messages }}");
    struct model *model = converted(source, "jinja.moe", &KEEP);
    assert_string_equal(model_chat_template(model, NULL), "{{ messages }}");
    model_close(&model);
    unlink(unit_path(source, "config.json"));
    assert_int_equal(convert(source, output, &KEEP, &err), -1);
    assert_non_null(strstr(err.text, "has no config.json"));
    write_string(unit_path(source, "config.json"), "{\"model_type\":\"olmoe\",\"model_type\":\"llama\"}");
    assert_int_equal(convert(source, output, &KEEP, &err), -1);
    assert_non_null(strstr(err.text, "config.json: line 1, column"));
    no_output_is_left("bad.moe");
    free(source);
    free(output);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_land_where_they_belong),
        cmocka_unit_test(coded_rows_are_kept_as_they_are),
        cmocka_unit_test(shards_in_any_order_are_the_same_model),
        cmocka_unit_test(fused_experts_are_the_same_model),
        cmocka_unit_test(misfits_are_named),
        cmocka_unit_test(predictors_are_kept), cmocka_unit_test(predictors_are_known_by_what_joins),
        cmocka_unit_test(values_must_be_finite_and_fit),
        cmocka_unit_test(dense_models_with_biases_convert),
        cmocka_unit_test(a_tied_head_may_be_repeated),
        cmocka_unit_test(texts_come_along),
        cmocka_unit_test(a_sentencepiece_model_comes_along_where_there_is_no_json),
        cmocka_unit_test(texts_that_cannot_be_used_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
