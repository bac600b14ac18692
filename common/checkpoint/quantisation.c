#include "common/checkpoint/quantisation.h"

#include <stdio.h>
#include <string.h>

#include "common/arch/config.h"

enum { GROUP_MAX = 1 << 20 };

static const char *const FP8_KEYS[] = {"quant_method", "weight_block_size", "activation_scheme", "modules_to_not_convert",
                                       "fmt", "scale_fmt", "ignored_layers", NULL};
static const char *const MXFP4_KEYS[] = {"quant_method", "modules_to_not_convert", NULL};

/* Known keys: how the codes were found, which program ran them, and names of modules. These do not change weights; the
 * tensors themselves show which modules are quantised. */
static const char *const GPTQ_KEYS[] = {
    "quant_method", "method", "bits", "group_size", "sym", "desc_act", "checkpoint_format", "format", "pack_dtype",
    "true_sequential", "static_groups", "damp_percent", "damp_auto_increment", "act_group_aware", "mse", "dataset", "tokenizer",
    "batch_size", "cache_block_outputs", "model_seqlen", "pad_token_id", "block_name_to_quantize",
    "module_name_preceding_first_block", "modules_in_block_to_quantize", "modules_to_not_convert", "lm_head", "dynamic", "meta",
    "model_name_or_path", "model_file_base_name", "use_cuda_fp16", "use_exllama", "disable_exllama", "exllama_config",
    "max_input_length", "backend", "quantizer", "version", "offload_to_disk", NULL};
static const char *const AWQ_KEYS[] = {
    "quant_method", "bits", "w_bit", "group_size", "q_group_size", "zero_point", "version", "format", "backend",
    "modules_to_not_convert", "do_fuse", "fuse_max_seq_len", "modules_to_fuse", "exllama_config", NULL};
static const char *const COMPRESSED_KEYS[] = {
    "quant_method", "format", "config_groups", "ignore", "quantization_status", "global_compression_ratio", "version",
    "kv_cache_scheme", "sparsity_config", "transform_config", "dequantize", NULL};

static const char *const MODELOPT_KEYS[] = {
    "quant_method", "quant_algo", "quant_library", "config_groups", "ignore", "exclude_modules", "group_size", "producer",
    "kv_cache_scheme", "kv_cache_quant_algo", "quantized_layers", NULL};

static int check_keys(const json_t *object, const char *const *known, struct err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        int at = 0;
        while (known[at] && strcmp(known[at], key))
            at++;
        if (!known[at] && !json_is_null(value) && !json_is_false(value))
            return config_refuse(object, key, err, "this key is not supported");
    }
    return 0;
}

static int read_pair(const json_t *object, const char *key, int out[2], struct err *err)
{
    const json_t *size = config_get(object, key);
    for (size_t i = 0; size && i < 2; i++) {
        json_int_t value = json_integer_value(json_array_get(size, i));
        if (json_array_size(size) != 2 || value < 1 || value > GROUP_MAX)
            return config_refuse(object, key, err, "expected two sizes");
        out[i] = (int)value;
    }
    return 0;
}

/* Reads a group size; -1 and null mean one group of all inputs. */
static int read_group(const json_t *object, const char *key, int *out, struct err *err)
{
    int group = -1;
    if (config_int(object, key, false, &group, err))
        return -1;
    if (group < -1 || group == 0 || group > GROUP_MAX)
        return config_refuse(object, key, err, "expected a number of inputs, or -1");
    *out = group < 0 ? 0 : group;
    return 0;
}

static int read_fp8(const json_t *object, struct quantisation *out, struct err *err)
{
    const char *format = "e4m3";
    if (check_keys(object, FP8_KEYS, err) || config_text(object, "fmt", false, &format, err))
        return -1;
    if (strcmp(format, "e4m3"))
        return config_refuse(object, "fmt", err, "only e4m3 is supported");
    return read_pair(object, "weight_block_size", out->block, err);
}

static int read_mxfp4(const json_t *object, struct quantisation *out, struct err *err)
{
    (void)out;
    return check_keys(object, MXFP4_KEYS, err);
}

static int read_bits(const json_t *object, const char *key, bool eight, struct quantisation *out, struct err *err)
{
    if (config_int(object, key, true, &out->bits, err))
        return -1;
    if (out->bits != 4 && !(eight && out->bits == 8))
        return config_refuse(object, key, err, eight ? "supported are 4 and 8" : "only 4 is supported");
    return 0;
}

static int read_gptq(const json_t *object, struct quantisation *out, struct err *err)
{
    const char *key = config_get(object, "checkpoint_format") ? "checkpoint_format" : "format", *format = "gptq";
    const char *pack = "int32";
    if (check_keys(object, GPTQ_KEYS, err) || read_bits(object, "bits", true, out, err) ||
        read_group(object, "group_size", &out->group, err) || config_bool(object, "sym", false, &out->symmetric, err) ||
        config_bool(object, "desc_act", false, &out->ordered, err) || config_text(object, key, false, &format, err) ||
        config_text(object, "pack_dtype", false, &pack, err))
        return -1;
    if (strcmp(format, "gptq") && strcmp(format, "gptq_v2"))
        return config_refuse(object, key, err, "supported are gptq and gptq_v2");
    if (strcmp(pack, "int32"))
        return config_refuse(object, "pack_dtype", err, "only int32 is supported");
    out->zero_add = strcmp(format, "gptq") == 0;
    out->packed = true;
    return 0;
}

static int read_awq(const json_t *object, struct quantisation *out, struct err *err)
{
    const char *version = "gemm";
    const char *group = config_get(object, "group_size") ? "group_size" : "q_group_size";
    const char *bits = config_get(object, "bits") ? "bits" : "w_bit";
    if (check_keys(object, AWQ_KEYS, err) || read_bits(object, bits, false, out, err) ||
        read_group(object, group, &out->group, err) || config_text(object, "version", false, &version, err))
        return -1;
    if (strcmp(version, "gemm") && strcmp(version, "GEMM"))
        return config_refuse(object, "version", err, "only gemm is supported");
    out->packed = true;
    return 0;
}

/* Checks 4-bit floats, whose group size is fixed by the format. */
static int check_float_weights(const json_t *weights, const struct quantisation *out, struct err *err)
{
    const int size = out->floats == FOUR_BITS_NVFP4 ? 16 : 32;
    int group = size, bits = 4;
    bool symmetric = true;
    const char *type = "float";
    if (config_text(weights, "type", false, &type, err) || config_int(weights, "num_bits", false, &bits, err) ||
        config_int(weights, "group_size", false, &group, err) || config_bool(weights, "symmetric", false, &symmetric, err))
        return -1;
    if (strcmp(type, "float"))
        return config_refuse(weights, "type", err, "the format requires float");
    if (bits != 4)
        return config_refuse(weights, "num_bits", err, "the format requires 4");
    if (group != size)
        return config_refuse(weights, "group_size", err, "the format requires %d", size);
    return symmetric ? 0 : config_refuse(weights, "symmetric", err, "the format requires true");
}

/* ---- ModelOpt ---- */

/* Bits of a value; 0: values have different widths. */
static const struct algorithm { const char *name; int bits; } ALGORITHMS[] = {
    {"FP8", 8}, {"FP8_PER_CHANNEL_PER_TOKEN", 8}, {"NVFP4", 4}, {"W4A16_NVFP4", 4}, {"MIXED_PRECISION", 0}};

static int read_algorithm(const json_t *object, int *bits, struct err *err)
{
    const char *algorithm = "";
    if (config_text(object, "quant_algo", true, &algorithm, err))
        return -1;
    for (size_t i = 0; i < sizeof ALGORITHMS / sizeof *ALGORITHMS; i++)
        if (strcmp(ALGORITHMS[i].name, algorithm) == 0) {
            *bits = ALGORITHMS[i].bits;
            return 0;
        }
    return config_refuse(object, "quant_algo", err, "supported are FP8, FP8_PER_CHANNEL_PER_TOKEN, NVFP4, W4A16_NVFP4 and "
                         "MIXED_PRECISION");
}

/* Checks group_size: with NVFP4, 16 inputs share a scale; scales of FP8 are for whole rows, so FP8 has no groups. */
static int check_group_size(const json_t *object, int bits, struct err *err)
{
    int group = 16;
    if (!config_get(object, "group_size") || bits == 8)
        return config_get(object, "group_size") ? config_refuse(object, "group_size", err, "the algorithm has no groups") : 0;
    if (config_int(object, "group_size", false, &group, err))
        return -1;
    return group == 16 ? 0 : config_refuse(object, "group_size", err, "the algorithm requires 16");
}

static int check_modelopt_weights(const json_t *weights, int expected, struct err *err)
{
    const struct quantisation nvfp4 = {.floats = FOUR_BITS_NVFP4};
    const char *type = "float";
    int bits = expected;
    if (config_int(weights, "num_bits", false, &bits, err) || config_text(weights, "type", false, &type, err))
        return -1;
    if (expected ? bits != expected : bits != 4 && bits != 8)
        return expected ? config_refuse(weights, "num_bits", err, "the algorithm requires %d", expected)
                        : config_refuse(weights, "num_bits", err, "supported are 4 and 8");
    if (bits == 4)
        return check_float_weights(weights, &nvfp4, err);
    if (strcmp(type, "float"))
        return config_refuse(weights, "type", err, "only float is supported");
    return check_group_size(weights, bits, err);
}

/* Checks that a value, if there is one, is an object of objects. */
static int check_objects(const json_t *object, const char *key, struct err *err)
{
    const json_t *value = config_get(object, key);
    const char *name;
    json_t *item;
    if (value && !json_is_object(value))
        return config_refuse(object, key, err, "it must be an object");
    json_object_foreach((json_t *)(uintptr_t)value, name, item)
        if (!json_is_object(item)) {
            config_refuse(value, name, err, "it must be an object");
            return err_at(err, "%s", key);
        }
    return 0;
}

/* Checks the algorithm and its numbers; the tensors themselves show what is quantised, and how. Refuses algorithms that change
 * more than weights: AWQ, which scales inputs, and low-rank corrections. */
static int read_modelopt(const json_t *object, struct quantisation *out, struct err *err)
{
    const json_t *groups = config_get(object, "config_groups"), *layers = config_get(object, "quantized_layers");
    const char *name;
    json_t *item;
    int bits = 0, own = 0;
    (void)out;
    if (check_keys(object, MODELOPT_KEYS, err) || read_algorithm(object, &bits, err) || check_group_size(object, bits, err))
        return -1;
    if (check_objects(object, "config_groups", err) || check_objects(object, "quantized_layers", err))
        return -1;
    json_object_foreach((json_t *)(uintptr_t)groups, name, item) {
        const json_t *weights = config_get(item, "weights");
        if (json_is_object(weights) && check_modelopt_weights(weights, bits, err))
            return err_at(err, "config_groups: %.100s", name);
    }
    json_object_foreach((json_t *)(uintptr_t)layers, name, item)
        if (read_algorithm(item, &own, err) || check_group_size(item, own, err))
            return err_at(err, "quantized_layers: %.100s", name);
    return 0;
}

/* ---- compressed-tensors ---- */

static bool is_empty(const json_t *value) { return !value || (json_is_object(value) && !json_object_size(value)); }

static int read_weights(const json_t *weights, bool floats, bool first, struct quantisation *out, struct err *err)
{
    struct quantisation own = *out;
    const char *type = "int", *strategy = "";
    own.symmetric = true;
    own.group = 0;
    if (config_text(weights, "type", false, &type, err) || config_text(weights, "strategy", false, &strategy, err) ||
        config_bool(weights, "symmetric", false, &own.symmetric, err) || read_bits(weights, "num_bits", true, &own, err) ||
        read_group(weights, "group_size", &own.group, err))
        return -1;
    if (strcmp(type, floats ? "float" : "int"))
        return config_refuse(weights, "type", err, "the format requires %s", floats ? "float" : "int");
    if (!own.packed && own.bits != 8)
        return config_refuse(weights, "num_bits", err, "the format requires 8");
    if (!own.packed && !own.symmetric)
        return config_refuse(weights, "symmetric", err, "asymmetric weights are supported in the format pack-quantized only");
    own.scales_of_blocks = strcmp(strategy, "block") == 0 || (strcmp(strategy, "group") == 0 && own.group && !own.packed);
    if (strcmp(strategy, "block") == 0 && read_pair(weights, "block_structure", own.block, err))
        return -1;
    if (strcmp(strategy, "group") == 0 && own.scales_of_blocks) {
        own.block[0] = 1;
        own.block[1] = own.group;
    }
    if (!first && (own.bits != out->bits || own.scales_of_blocks != out->scales_of_blocks ||
                   memcmp(own.block, out->block, sizeof own.block)))
        return config_refuse(weights, "num_bits", err, "groups of weights quantised in different ways are not supported");
    own.symmetric &= first || out->symmetric;
    own.group = first || own.group == out->group ? own.group : 0;
    *out = own;
    return 0;
}

static int read_groups(const json_t *object, const char *format, struct quantisation *out, struct err *err)
{
    const json_t *groups = config_get(object, "config_groups");
    const char *name;
    json_t *group;
    bool first = true;
    if (!json_is_object(groups))
        return config_refuse(object, "config_groups", err, "expected an object with groups of modules");
    json_object_foreach((json_t *)(uintptr_t)groups, name, group) {
        const json_t *weights = json_is_object(group) ? config_get(group, "weights") : NULL;
        const char *own = format;
        if (!json_is_object(group))
            return config_refuse(groups, name, err, "expected an object");
        if (!weights)
            continue;
        if (config_text(group, "format", false, &own, err))
            return err_at(err, "config_groups: %.100s", name);
        bool floats = strcmp(format, "float-quantized") == 0 ||
                      (strcmp(format, "naive-quantized") == 0 && json_is_string(config_get(weights, "type")) &&
                       strcmp(json_string_value(config_get(weights, "type")), "float") == 0);
        if (strcmp(own, format))
            config_refuse(group, "format", err, "groups must have the format of the whole configuration");
        else if (!json_is_object(weights))
            config_refuse(group, "weights", err, "expected an object");
        else if (out->floats ? check_float_weights(weights, out, err) == 0
                             : read_weights(weights, floats, first, out, err) == 0) {
            first = false;
            continue;
        }
        return err_at(err, "config_groups: %.100s", name);
    }
    return 0;
}

static int read_compressed(const json_t *object, struct quantisation *out, struct err *err)
{
    static const char *const FORMATS[] = {"pack-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized",
                                          "float-quantized", "int-quantized", "naive-quantized"};
    const char *format = "";
    size_t at = 0;
    if (check_keys(object, COMPRESSED_KEYS, err) || config_text(object, "format", true, &format, err))
        return -1;
    while (at < sizeof FORMATS / sizeof *FORMATS && strcmp(FORMATS[at], format))
        at++;
    if (at == sizeof FORMATS / sizeof *FORMATS)
        return config_refuse(object, "format", err, "supported are pack-quantized, nvfp4-pack-quantized, "
                             "mxfp4-pack-quantized, float-quantized, int-quantized and naive-quantized");
    const json_t *sparsity = config_get(object, "sparsity_config");
    const json_t *sparse = json_is_object(sparsity) ? config_get(sparsity, "format") : NULL;
    if (!is_empty(sparsity) && !(json_is_string(sparse) && strcmp(json_string_value(sparse), "dense") == 0))
        return config_refuse(object, "sparsity_config", err, "sparse weights are not supported");
    if (!is_empty(config_get(object, "transform_config")))
        return config_refuse(object, "transform_config", err, "transforms are not supported");
    out->packed = at == 0;
    out->floats = at == 1 ? FOUR_BITS_NVFP4 : at == 2 ? FOUR_BITS_MXFP4 : FOUR_BITS_NONE;
    return read_groups(object, format, out, err);
}

/* ---- */

static const struct {
    const char *name;
    int method;
    int (*read)(const json_t *object, struct quantisation *out, struct err *err);
} METHODS[] = {
    {"fp8", QUANTISED_FP8, read_fp8}, {"mxfp4", QUANTISED_MXFP4, read_mxfp4}, {"gptq", QUANTISED_GPTQ, read_gptq},
    {"awq", QUANTISED_AWQ, read_awq}, {"compressed-tensors", QUANTISED_COMPRESSED, read_compressed},
    {"modelopt", QUANTISED_MODELOPT, read_modelopt},
};

static int read_method(const json_t *object, struct quantisation *out, struct err *err)
{
    const char *method = "";
    if (!json_is_object(object))
        return err_set(err, ERR_INPUT, "must be an object");
    if (config_text(object, "quant_method", true, &method, err))
        return -1;
    for (size_t i = 0; i < sizeof METHODS / sizeof *METHODS; i++)
        if (strcmp(METHODS[i].name, method) == 0) {
            out->method = METHODS[i].method;
            return METHODS[i].read(object, out, err);
        }
    return config_refuse(object, "quant_method", err, "supported are fp8, mxfp4, gptq, awq, compressed-tensors and modelopt");
}

int quantisation_read(const struct checkpoint *cp, struct quantisation *out, struct err *err)
{
    const struct text *text = &cp->texts[TEXT_CONFIG];
    json_t *config = NULL;
    int rc = 0;
    *out = (struct quantisation){.block = {128, 128}};
    if (!text->length)
        return 0;
    if (config_parse(&config, text->data, text->length, err))
        return err_at(err, "config.json");
    const char *key = config_get(config, "quantization_config") ? "quantization_config" : "compression_config";
    const json_t *object = config_get(config, key);
    if (object && read_method(object, out, err)) {
        err_at(err, "%s", key);
        rc = err_at(err, "config.json");
    }
    json_decref(config);
    return rc;
}
