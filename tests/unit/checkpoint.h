/* Writes small checkpoints for tests byte by byte: a config.json and safetensors, whose values are functions of name and
 * index, so that tests can recompute them, and are exact in f32, f16 and bf16. */
#ifndef MOE_TESTS_UNIT_CHECKPOINT_H
#define MOE_TESTS_UNIT_CHECKPOINT_H

#include <sys/stat.h>

#include "common/base/float.h"
#include "common/base/hash.h"
#include "common/base/text.h"
#include "tests/unit/unit.h"

/* Tensors collected for one .safetensors file. */
struct weights {
    struct text header, data;
};

static inline float weights_value(const char *name, size_t index)
{
    struct digest128 digest = hash_xxh3(name, strlen(name));
    return (float)((int)((digest.low + index * 37 + index / 5 * 11) % 255) - 127) / 64;
}

static inline void weights_put(struct weights *w, const char *name, const char *dtype, const char *shape, const void *data,
                               size_t bytes)
{
    text_printf(&w->header, NULL, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                w->header.length ? "," : "{", name, dtype, shape, w->data.length, w->data.length + bytes);
    text_put(&w->data, data, bytes, NULL);
}

/* Adds a tensor of rows x columns (columns 0: a vector; experts > 0: that many matrices) in F32, F16 or BF16. */
static inline void weights_add(struct weights *w, const char *name, const char *dtype, int experts, int rows, int columns)
{
    char shape[64];
    size_t count = (size_t)rows * (size_t)(columns ? columns : 1) * (size_t)(experts ? experts : 1);
    if (experts)
        snprintf(shape, sizeof shape, "[%d,%d,%d]", experts, rows, columns);
    else
        snprintf(shape, sizeof shape, columns ? "[%d,%d]" : "[%d]", rows, columns);
    bool wide = strcmp(dtype, "F32") == 0, half = strcmp(dtype, "F16") == 0;
    size_t bytes = count * (wide ? 4 : 2);
    char *data = malloc(bytes);
    for (size_t i = 0; i < count; i++) {
        float value = weights_value(name, i);
        uint16_t narrow = half ? f32_to_f16(value) : f32_to_bf16(value);
        if (wide)
            memcpy(data + 4 * i, &value, 4);
        else
            memcpy(data + 2 * i, &narrow, 2);
    }
    weights_put(w, name, dtype, shape, data, bytes);
    free(data);
}

/* Writes the file and discards the tensors. */
static inline void weights_write(struct weights *w, const char *path)
{
    uint64_t length = w->header.length + 1;
    struct text file = {0};
    for (int i = 0; i < 8; i++)
        text_putc(&file, (char)(length >> 8 * i), NULL);
    text_put(&file, w->header.data, w->header.length, NULL);
    text_putc(&file, '}', NULL);
    text_put(&file, w->data.data, w->data.length, NULL);
    unit_write(path, file.data, file.length);
    text_free(&file);
    text_free(&w->header);
    text_free(&w->data);
}

static inline void write_string(const char *path, const char *text) { unit_write(path, text, strlen(text)); }

/* A tiny OLMoE: 2 layers, 3 experts, top 2, grouped-query attention; its widths are not multiples of any SIMD width. */
enum { TINY_VOCAB = 37, TINY_HIDDEN = 24, TINY_INNER = 19, TINY_LAYERS = 2, TINY_EXPERTS = 3, TINY_HEADS = 3, TINY_KV_HEADS = 1,
       TINY_HEAD_DIM = 8 };
#define TINY_OLMOE \
    "{\"model_type\":\"olmoe\",\"hidden_size\":24,\"intermediate_size\":19,\"num_hidden_layers\":2,\"num_attention_heads\":3," \
    "\"num_key_value_heads\":1,\"num_experts\":3,\"num_experts_per_tok\":2,\"norm_topk_prob\":false,\"rms_norm_eps\":1e-5," \
    "\"rope_theta\":10000.0,\"rope_scaling\":null,\"max_position_embeddings\":64,\"vocab_size\":37,\"eos_token_id\":36," \
    "\"clip_qkv\":null,\"tie_word_embeddings\":false,\"torch_dtype\":\"bfloat16\"}"

static inline void tiny_attention(struct weights *w, int layer, const char *dtype)
{
    static const struct { const char *name; int rows, columns; } parts[] = {
        {"self_attn.o_proj.weight", 24, 24}, {"self_attn.v_proj.weight", 8, 24}, {"self_attn.k_proj.weight", 8, 24},
        {"self_attn.q_proj.weight", 24, 24}, {"self_attn.q_norm.weight", 24, 0}, {"self_attn.k_norm.weight", 8, 0},
        {"input_layernorm.weight", 24, 0}, {"post_attention_layernorm.weight", 24, 0}, {"mlp.gate.weight", 3, 24}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[128];
        snprintf(name, sizeof name, "model.layers.%d.%s", layer, parts[i].name);
        weights_add(w, name, dtype, 0, parts[i].rows, parts[i].columns);
    }
}

static inline void tiny_experts(struct weights *w, int layer, const char *dtype)
{
    for (int e = 0; e < TINY_EXPERTS; e++) {
        char name[128];
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.gate_proj.weight", layer, e);
        weights_add(w, name, dtype, 0, TINY_INNER, TINY_HIDDEN);
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.up_proj.weight", layer, e);
        weights_add(w, name, dtype, 0, TINY_INNER, TINY_HIDDEN);
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.down_proj.weight", layer, e);
        weights_add(w, name, dtype, 0, TINY_HIDDEN, TINY_INNER);
    }
}

static inline void tiny_outside(struct weights *w, const char *dtype)
{
    weights_add(w, "lm_head.weight", dtype, 0, TINY_VOCAB, TINY_HIDDEN);
    weights_add(w, "model.embed_tokens.weight", dtype, 0, TINY_VOCAB, TINY_HIDDEN);
    weights_add(w, "model.norm.weight", dtype, 0, TINY_HIDDEN, 0);
}

/* Writes the checkpoint with one weight file; returns the folder's path, which the caller frees. */
static inline char *tiny_folder(const char *base, const char *name, const char *dtype)
{
    struct weights w = {0};
    char *folder = strdup(unit_path(base, name));
    assert_int_equal(mkdir(folder, 0777), 0);
    write_string(unit_path(folder, "config.json"), TINY_OLMOE);
    tiny_outside(&w, dtype);
    for (int layer = 0; layer < TINY_LAYERS; layer++) {
        tiny_experts(&w, layer, dtype);
        tiny_attention(&w, layer, dtype);
    }
    weights_write(&w, unit_path(folder, "model.safetensors"));
    return folder;
}

#endif
