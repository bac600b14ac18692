/* Goldens of all families (tests/golden/families): logits equal those of transformers, and differ as soon as one feature of
 * the family is turned off or one of its numbers is changed. The change is made in the description that the engine reads, so
 * that features count that no config.json can turn off. */
#include "tests/unit/unit.h"

#include <math.h>
#include <stddef.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/checkpoint/convert.h"
#include "common/engine/engine.h"

enum { PROMPT = 40, VOCAB = 64 };
static const double NEAR = 2e-4, APART = 5e-3;

struct golden {
    char *folder;
    int vocab;
    int32_t prompt[PROMPT];
    int rows, step;                     /* rows of logits: at every step-th position and at the last one */
    float logits[PROMPT][VOCAB];
};

static const char *golden_path(char path[1200], const char *family, const char *name)
{
    snprintf(path, 1200, "%s/../golden/families/%s/%s", unit_models(), family, name);
    return path;
}

static void golden_open(struct golden *golden, const char *family)
{
    struct err err = {0};
    struct text text = {0};
    char path[1200];
    golden->folder = unit_folder();
    must(file_read(&text, golden_path(path, family, "golden.json"), 1 << 24, &err), &err);
    json_t *root = json_loadb(text.data, text.length, 0, NULL), *rows = json_object_get(root, "logits");
    golden->rows = (int)json_array_size(rows);
    assert_true(golden->rows == PROMPT || golden->rows == PROMPT / 2 || golden->rows == PROMPT / 4);
    golden->step = PROMPT / golden->rows;
    golden->vocab = (int)json_array_size(json_array_get(rows, 0));
    assert_in_range(golden->vocab, 1, VOCAB);
    for (size_t t = 0; t < PROMPT; t++)
        golden->prompt[t] = (int32_t)json_integer_value(json_array_get(json_object_get(root, "prompt"), t));
    for (size_t t = 0; t < (size_t)golden->rows; t++) {
        assert_int_equal(json_array_size(json_array_get(rows, t)), golden->vocab);
        for (size_t v = 0; v < (size_t)golden->vocab; v++)
            golden->logits[t][v] = (float)json_number_value(json_array_get(json_array_get(rows, t), v));
    }
    json_decref(root);
    text_free(&text);

    struct checkpoint *checkpoint = NULL;
    struct conversion plan = {0};
    struct thread_pool *pool = NULL;
    const struct convert_options options = {.dense = {.keep = true}, .experts = {.keep = true}, .producer = "test"};
    const char *moe = unit_path(golden->folder, "m.moe");
    must(checkpoint_open(&checkpoint, golden_path(path, family, "model"), moe, &err), &err);
    must(conversion_plan(&plan, checkpoint, &options, &err), &err);
    must(thread_pool_new(&pool, 1, &err), &err);
    must(conversion_write(&plan, moe, pool, NULL, &err), &err);
    thread_pool_free(&pool);
    conversion_free(&plan);
    checkpoint_close(&checkpoint);
}

static void golden_close(struct golden *golden) { unit_remove(golden->folder); }

struct distance { const struct golden *golden; double max; };

static int measure(void *context, const struct forward *piece, int position, struct err *err)
{
    struct distance *distance = context;
    const struct golden *golden = distance->golden;
    (void)err;
    for (int row = 0; row < piece->logit_rows; row++)
        for (int v = 0; v < golden->vocab && (position + row + 1) % golden->step == 0; v++) {
            double off = fabs((double)piece->logits[row * golden->vocab + v] -
                              (double)golden->logits[(position + row) / golden->step][v]);
            distance->max = off > distance->max || isnan(off) ? isnan(off) ? INFINITY : off : distance->max;
        }
    return 0;
}

/* Returns the largest difference of a logit after `change` has been made to the shape. */
static double golden_distance(const struct golden *golden, void (*change)(struct hparams *shape, const void *to),
                              const void *to)
{
    struct err err = {0};
    struct model *model = NULL;
    struct device *device = NULL;
    struct expert_source *experts = NULL;
    struct engine *engine = NULL;
    struct sequence *sequence = NULL;
    struct forward forward;
    struct distance distance = {golden, 0};
    const struct batch every = {.logit_rows = ENGINE_EVERY_ROW};
    must(model_open(&model, unit_path(golden->folder, "m.moe"), &err), &err);
    if (change)
        change((struct hparams *)(uintptr_t)model_hparams(model), to);
    must(device_open(&device, &(struct device_setup){"host", 1, NULL}, &err), &err);
    if (hparams_moe_layers(model_hparams(model)))
        must(expert_source_open(&experts, model, device, &err), &err);
    must(engine_open(&engine, &(struct engine_setup){model, device, experts, 64, 64, 0}, &err), &err);
    must(sequence_open(&sequence, engine, PROMPT, &err), &err);
    must(engine_prompt(engine, sequence, golden->prompt, PROMPT, &every, measure, &distance, &forward, &err), &err);
    sequence_close(&sequence);
    engine_close(&engine);
    expert_source_close(&experts);
    device_close(&device);
    model_close(&model);
    return distance.max;
}

/* Changes one member of the description, by its name. */
enum kind { FLAG, INTEGER, SINGLE, REAL, WINDOWS, NO_ROPE };
struct member { const char *name; enum kind kind; size_t offset; };
#define MEMBER(kind, member) {#member, kind, offsetof(struct hparams, member)}
static const struct member MEMBERS[] = {
    MEMBER(SINGLE, norm_epsilon), MEMBER(FLAG, layer_norm), MEMBER(FLAG, head_bias), MEMBER(INTEGER, attention.qk_norm),
    MEMBER(SINGLE, attention.clip_qkv), MEMBER(SINGLE, attention.scale), MEMBER(SINGLE, attention.latent_epsilon),
    MEMBER(FLAG, attention.sinks), MEMBER(FLAG, attention.qkv_bias), MEMBER(FLAG, attention.out_bias),
    MEMBER(INTEGER, rope.kind), MEMBER(INTEGER, rope.rotary), MEMBER(REAL, rope.theta), MEMBER(REAL, rope.factor),
    MEMBER(REAL, rope.low_factor), MEMBER(REAL, rope.high_factor), MEMBER(INTEGER, rope.original_positions),
    MEMBER(REAL, rope.beta_fast), MEMBER(REAL, rope.beta_slow), MEMBER(FLAG, rope.truncate), MEMBER(REAL, rope.amplitude),
    MEMBER(SINGLE, embed_scale), MEMBER(SINGLE, residual_scale), MEMBER(SINGLE, logit_divisor),
    MEMBER(INTEGER, router.kind), MEMBER(INTEGER, router.top_k), MEMBER(FLAG, router.renormalise), MEMBER(SINGLE, router.scale),
    MEMBER(SINGLE, router.jitter), MEMBER(FLAG, router.correction), MEMBER(FLAG, router.bias), MEMBER(INTEGER, router.groups),
    MEMBER(INTEGER, router.groups_kept), MEMBER(INTEGER, router.group_rank), MEMBER(INTEGER, shared_inner),
    MEMBER(FLAG, shared_gate), MEMBER(FLAG, expert_bias), MEMBER(SINGLE, glu_limit), MEMBER(SINGLE, glu_alpha),
    MEMBER(INTEGER, norms), MEMBER(FLAG, parallel), MEMBER(FLAG, attention.rope_before_norm), MEMBER(FLAG, attention.gate),
    MEMBER(FLAG, attention.plain_norm), MEMBER(SINGLE, attention.no_rope_scale), MEMBER(INTEGER, attention.no_rope_floor),
    MEMBER(FLAG, attention.aligned), MEMBER(FLAG, router.weigh_input),
    MEMBER(FLAG, shortcut), MEMBER(INTEGER, index.top_k), MEMBER(SINGLE, attention.latent_scale),
    MEMBER(SINGLE, shared_scale), MEMBER(SINGLE, attention.value_scale), MEMBER(FLAG, attention.value_norm),
    MEMBER(FLAG, other.sinks), MEMBER(REAL, other.rope.theta), MEMBER(INTEGER, other.rope.rotated_pairs), MEMBER(INTEGER, glu),
    MEMBER(FLAG, shared_apart), MEMBER(FLAG, router.norm), MEMBER(SINGLE, router.logit_scale),
    MEMBER(FLAG, router.expert_scale),
    MEMBER(FLAG, layer_scale), MEMBER(SINGLE, logit_cap), MEMBER(INTEGER, delta.norm_groups), MEMBER(FLAG, delta.conv_bias),
    MEMBER(SINGLE, delta.floor),
    {"windows", WINDOWS, 0}, {"still", NO_ROPE, 0},
};

struct change { const char *family, *member; double to; };

static const struct change CHANGES[] = {
    {"olmoe", "attention.qk_norm", QK_NORM_NONE}, {"olmoe", "attention.clip_qkv", 0}, {"olmoe", "attention.clip_qkv", 0.9},
    {"olmoe", "router.renormalise", 0}, {"olmoe", "router.top_k", 2}, {"olmoe", "norm_epsilon", 1e-5},
    {"olmoe", "rope.theta", 20000}, {"olmoe", "attention.scale", 0.3},
    {"llama", "rope.kind", ROPE_DEFAULT}, {"llama", "rope.factor", 4}, {"llama", "rope.low_factor", 2},
    {"llama", "rope.high_factor", 8}, {"llama", "rope.original_positions", 64}, {"llama", "attention.qkv_bias", 0},
    {"llama", "attention.out_bias", 0}, {"llama", "norm_epsilon", 1e-5},
    {"mistral", "windows", 0}, {"mistral", "windows", 12}, {"mistral", "windows", 14},
    {"mixtral", "windows", 0}, {"mixtral", "windows", 12}, {"mixtral", "router.renormalise", 0}, {"mixtral", "router.top_k", 1},
    {"qwen2", "attention.qkv_bias", 0}, {"qwen2", "windows", 0}, {"qwen2", "windows", 9}, {"qwen2", "rope.theta", 20000},
    {"qwen3", "attention.qk_norm", QK_NORM_NONE}, {"qwen3", "windows", 0}, {"qwen3", "windows", 9},
    {"qwen3", "rope.kind", ROPE_DEFAULT}, {"qwen3", "rope.factor", 2},
    {"qwen2_moe", "router.renormalise", 1}, {"qwen2_moe", "shared_gate", 0}, {"qwen2_moe", "shared_inner", 0},
    {"qwen2_moe", "attention.qkv_bias", 0}, {"qwen2_moe", "router.top_k", 2},
    {"qwen3_moe", "attention.qk_norm", QK_NORM_NONE}, {"qwen3_moe", "router.renormalise", 0}, {"qwen3_moe", "router.top_k", 2},
    {"deepseek", "shared_inner", 0}, {"deepseek", "router.renormalise", 0}, {"deepseek", "router.top_k", 2},
    {"deepseek", "rope.theta", 20000},
    {"deepseek_v2", "attention.scale", 0.25}, {"deepseek_v2", "attention.latent_epsilon", 1e-3},
    {"deepseek_v2", "rope.kind", ROPE_DEFAULT}, {"deepseek_v2", "rope.amplitude", 1}, {"deepseek_v2", "rope.factor", 8},
    {"deepseek_v2", "rope.beta_fast", 0.5}, {"deepseek_v2", "rope.beta_slow", 0.3}, {"deepseek_v2", "router.groups", 0},
    {"deepseek_v2", "router.groups_kept", 3}, {"deepseek_v2", "router.group_rank", 2}, {"deepseek_v2", "router.scale", 1},
    {"deepseek_v2", "router.renormalise", 1}, {"deepseek_v2", "shared_inner", 0},
    {"deepseek_v2-ranked", "attention.latent_epsilon", 0.1}, {"deepseek_v2-ranked", "attention.qkv_bias", 0},
    {"deepseek_v2-ranked", "attention.out_bias", 0}, {"deepseek_v2-ranked", "attention.scale", 0.3},
    {"deepseek_v2-ranked", "rope.amplitude", 1}, {"deepseek_v2-ranked", "router.scale", 1},
    {"deepseek_v2-ranked", "router.renormalise", 1}, {"deepseek_v2-ranked", "router.top_k", 2},
    {"deepseek_v3", "attention.scale", 0.25}, {"deepseek_v3", "attention.latent_epsilon", 1e-3},
    {"deepseek_v3", "attention.qkv_bias", 0}, {"deepseek_v3", "attention.out_bias", 0},
    {"deepseek_v3", "rope.kind", ROPE_DEFAULT},
    {"deepseek_v3", "router.correction", 0}, {"deepseek_v3", "router.groups", 0}, {"deepseek_v3", "router.groups_kept", 3},
    {"deepseek_v3", "router.group_rank", 1}, {"deepseek_v3", "router.scale", 1}, {"deepseek_v3", "router.renormalise", 0},
    {"deepseek_v3", "router.kind", ROUTER_SOFTMAX_TOPK}, {"deepseek_v3", "shared_inner", 0},
    {"glm4_moe", "attention.qk_norm", QK_NORM_NONE}, {"glm4_moe", "attention.qkv_bias", 0}, {"glm4_moe", "rope.rotary", 16},
    {"glm4_moe", "rope.rotary", 4}, {"glm4_moe", "router.correction", 0}, {"glm4_moe", "router.groups", 0},
    {"glm4_moe", "router.group_rank", 1}, {"glm4_moe", "router.scale", 1}, {"glm4_moe", "router.renormalise", 0},
    {"glm4_moe", "shared_inner", 0},
    {"minimax_m2", "attention.qk_norm", QK_NORM_NONE}, {"minimax_m2", "rope.rotary", 16},
    {"minimax_m2", "router.correction", 0},
    {"minimax_m2", "router.renormalise", 0}, {"minimax_m2", "router.kind", ROUTER_SOFTMAX_TOPK},
    {"glm4_moe_lite", "attention.latent_epsilon", 1e-3}, {"glm4_moe_lite", "router.correction", 0},
    {"glm4_moe_lite", "router.scale", 1}, {"glm4_moe_lite", "shared_inner", 0},
    {"dots1", "attention.qk_norm", QK_NORM_NONE}, {"dots1", "windows", 0}, {"dots1", "router.correction", 0},
    {"dots1", "router.groups", 0}, {"dots1", "router.scale", 1}, {"dots1", "shared_inner", 0},
    {"ernie4_5_moe", "router.correction", 0}, {"ernie4_5_moe", "router.renormalise", 0},
    {"ernie4_5_moe", "router.kind", ROUTER_SIGMOID}, {"ernie4_5_moe", "shared_inner", 0}, {"ernie4_5_moe", "rope.theta", 20000},
    {"exaone_moe", "still", 0}, {"exaone_moe", "still", 1}, {"exaone_moe", "windows", 0}, {"exaone_moe", "windows", 9},
    {"exaone_moe", "attention.qk_norm", QK_NORM_NONE}, {"exaone_moe", "router.correction", 0},
    {"exaone_moe", "router.groups", 0}, {"exaone_moe", "router.scale", 1}, {"exaone_moe", "shared_inner", 0},
    {"hunyuan_v1_moe", "attention.rope_before_norm", 0}, {"hunyuan_v1_moe", "rope.theta", 100},
    {"hunyuan_v1_moe", "shared_inner", 0}, {"hunyuan_v1_moe", "router.renormalise", 0},
    {"flex_olmo", "attention.qk_norm", QK_NORM_NONE}, {"flex_olmo", "router.top_k", 2},
    {"flex_olmo", "rope.theta", 20000},
    {"afmoe", "attention.gate", 0}, {"afmoe", "still", 0}, {"afmoe", "still", 1}, {"afmoe", "windows", 0},
    {"afmoe", "embed_scale", 0}, {"afmoe", "router.correction", 0}, {"afmoe", "router.scale", 1}, {"afmoe", "shared_inner", 0},
    {"cohere2_moe", "layer_norm", 0}, {"cohere2_moe", "still", 0}, {"cohere2_moe", "still", 1},
    {"cohere2_moe", "shared_scale", 0},
    {"cohere2_moe", "router.scale", 1}, {"cohere2_moe", "logit_divisor", 0},
    {"cohere2_moe", "router.kind", ROUTER_SOFTMAX_TOPK},
    {"cohere2_moe-rms", "router.renormalise", 0}, {"cohere2_moe-rms", "still", 0},
    {"cohere2_moe-rms", "shared_inner", 0},
    {"mimo_v2_flash", "attention.value_scale", 0}, {"mimo_v2_flash", "other.sinks", 0}, {"mimo_v2_flash", "windows", 0},
    {"mimo_v2_flash", "other.rope.theta", 10000}, {"mimo_v2_flash", "rope.theta", 100},
    {"mimo_v2_flash", "router.correction", 0},
    {"mimo_v2_flash", "router.groups", 0}, {"mimo_v2_flash", "router.scale", 1},
    {"gemma4_text", "glu", GLU_SILU}, {"gemma4_text", "attention.value_norm", 0}, {"gemma4_text", "attention.scale", 0.35},
    {"gemma4_text", "other.rope.rotated_pairs", 0}, {"gemma4_text", "other.rope.theta", 100}, {"gemma4_text", "windows", 0},
    {"gemma4_text", "router.norm", 0}, {"gemma4_text", "router.logit_scale", 0}, {"gemma4_text", "router.expert_scale", 0},
    {"gemma4_text", "shared_apart", 0}, {"gemma4_text", "layer_scale", 0}, {"gemma4_text", "logit_cap", 0},
    {"gemma4_text", "embed_scale", 0},
    {"qwen3_next", "attention.gate", 0}, {"qwen3_next", "rope.rotary", 16}, {"qwen3_next", "router.renormalise", 0},
    {"qwen3_next", "shared_gate", 0}, {"qwen3_next", "attention.qk_norm", QK_NORM_NONE},
    {"qwen3_5_moe", "attention.gate", 0}, {"qwen3_5_moe", "rope.rotary", 16}, {"qwen3_5_moe", "router.renormalise", 0},
    {"qwen3_5_moe", "shared_gate", 0}, {"qwen3_5_moe", "norm_epsilon", 1e-5},
    {"granitemoehybrid", "still", 0}, {"granitemoehybrid", "shared_inner", 0}, {"granitemoehybrid", "delta.norm_groups", 1},
    {"granitemoehybrid", "delta.conv_bias", 0}, {"granitemoehybrid", "attention.scale", 0.35},
    {"granitemoehybrid", "embed_scale", 0}, {"granitemoehybrid", "residual_scale", 0}, {"granitemoehybrid", "logit_divisor", 0},
    {"granitemoehybrid", "router.renormalise", 0}, {"granitemoehybrid", "norm_epsilon", 1e-5},
    {"granitemoehybrid-dense", "still", 1}, {"granitemoehybrid-dense", "rope.theta", 100},
    {"kimi_linear", "still", 0}, {"kimi_linear", "shared_inner", 0}, {"kimi_linear", "attention.latent_epsilon", 0.1},
    {"kimi_linear", "attention.scale", 0.2}, {"kimi_linear", "router.correction", 0}, {"kimi_linear", "router.groups", 0},
    {"kimi_linear", "router.scale", 1}, {"kimi_linear", "router.renormalise", 0}, {"kimi_linear", "norm_epsilon", 1e-5},
    {"lfm2_moe", "attention.qk_norm", QK_NORM_NONE}, {"lfm2_moe", "router.correction", 0}, {"lfm2_moe", "router.scale", 1},
    {"lfm2_moe", "router.renormalise", 0}, {"lfm2_moe", "rope.theta", 100}, {"lfm2_moe", "norm_epsilon", 1e-5},
    {"nemotron_h", "still", 0}, {"nemotron_h", "shared_inner", 0}, {"nemotron_h", "delta.norm_groups", 1},
    {"nemotron_h", "delta.conv_bias", 0}, {"nemotron_h", "attention.scale", 0.2}, {"nemotron_h", "router.correction", 0},
    {"nemotron_h", "router.groups", 0}, {"nemotron_h", "router.group_rank", 1}, {"nemotron_h", "router.scale", 1},
    {"nemotron_h", "router.renormalise", 0}, {"nemotron_h", "router.kind", ROUTER_SOFTMAX_TOPK},
    {"nemotron_h", "norm_epsilon", 1e-5},
    {"bailing_hybrid", "attention.gate", 0}, {"bailing_hybrid", "still", 1}, {"bailing_hybrid", "rope.theta", 100},
    {"bailing_hybrid", "delta.floor", 0}, {"bailing_hybrid", "delta.floor", -5}, {"bailing_hybrid", "shared_inner", 0},
    {"bailing_hybrid", "attention.latent_epsilon", 0.1}, {"bailing_hybrid", "attention.scale", 0.2},
    {"bailing_hybrid", "router.correction", 0}, {"bailing_hybrid", "router.groups", 0}, {"bailing_hybrid", "router.scale", 1},
    {"bailing_hybrid", "router.renormalise", 0}, {"bailing_hybrid", "norm_epsilon", 1e-5},
    {"jamba", "still", 0}, {"jamba", "router.renormalise", 1}, {"jamba", "router.top_k", 1}, {"jamba", "delta.conv_bias", 0},
    {"jamba", "attention.scale", 0.2}, {"jamba", "norm_epsilon", 1e-5},
    {"solar_open", "attention.qkv_bias", 0}, {"solar_open", "rope.kind", ROPE_DEFAULT}, {"solar_open", "router.correction", 0},
    {"solar_open", "router.groups", 0}, {"solar_open", "router.scale", 1}, {"solar_open", "router.renormalise", 0},
    {"solar_open", "shared_inner", 0}, {"solar_open", "norm_epsilon", 1e-5},
    {"gpt_oss", "attention.sinks", 0}, {"gpt_oss", "windows", 0}, {"gpt_oss", "windows", 9},
    {"gpt_oss", "attention.qkv_bias", 0},
    {"gpt_oss", "attention.out_bias", 0}, {"gpt_oss", "rope.truncate", 1}, {"gpt_oss", "rope.amplitude", 0},
    {"gpt_oss", "rope.kind", ROPE_DEFAULT}, {"gpt_oss", "router.bias", 0}, {"gpt_oss", "router.renormalise", 0},
    {"gpt_oss", "expert_bias", 0}, {"gpt_oss", "glu_limit", 0}, {"gpt_oss", "glu_limit", 70}, {"gpt_oss", "glu_alpha", 1},
    {"granitemoe", "embed_scale", 0}, {"granitemoe", "residual_scale", 0}, {"granitemoe", "logit_divisor", 0},
    {"granitemoe", "attention.scale", 0.35}, {"granitemoe", "router.renormalise", 0},
    {"llama4_text", "attention.aligned", 0}, {"llama4_text", "windows", 0}, {"llama4_text", "windows", 10},
    {"llama4_text", "still", 0}, {"llama4_text", "still", 1},
    {"llama4_text", "attention.rope_before_norm", 0},
    {"llama4_text", "attention.no_rope_scale", 0.2}, {"llama4_text", "attention.no_rope_floor", 8},
    {"llama4_text", "router.weigh_input", 0}, {"llama4_text", "router.kind", ROUTER_SOFTMAX_TOPK},
    {"llama4_text", "shared_inner", 0}, {"llama4_text", "rope.high_factor", 6},
    {"deepseek_v32", "attention.scale", 0.25}, {"deepseek_v32", "router.groups", 0}, {"deepseek_v32", "router.correction", 0},
    {"deepseek_v32", "rope.kind", ROPE_DEFAULT}, {"deepseek_v32", "shared_inner", 0}, {"deepseek_v32", "index.top_k", 11},
    {"deepseek_v32", "index.top_k", 64}, {"glm_moe_dsa", "index.top_k", 11}, {"glm_moe_dsa", "index.top_k", 64},
    {"glm_moe_dsa", "attention.latent_epsilon", 1e-3}, {"glm_moe_dsa", "router.scale", 1},
    {"glm_moe_dsa", "router.correction", 0},
    {"longcat_flash", "shortcut", 0}, {"longcat_flash", "attention.latent_scale", 0},
    {"longcat_flash", "attention.scale", 0.25},
    {"longcat_flash", "router.correction", 0}, {"longcat_flash", "router.scale", 1}, {"longcat_flash", "router.top_k", 3},
    {"longcat_flash", "shared_inner", 0}, {"longcat_flash", "router.kind", ROUTER_SIGMOID},
    {"phimoe", "router.jitter", 0.01}, {"phimoe", "router.kind", ROUTER_SOFTMAX_TOPK}, {"phimoe", "layer_norm", 0},
    {"phimoe", "head_bias", 0}, {"phimoe", "attention.qkv_bias", 0}, {"phimoe", "attention.out_bias", 0},
    {"phimoe", "rope.kind", ROPE_DEFAULT}, {"phimoe", "rope.amplitude", 0}, {"phimoe", "windows", 0}, {"phimoe", "windows", 10},
};

static const struct member *find_member(const char *name)
{
    for (size_t i = 0; i < sizeof MEMBERS / sizeof *MEMBERS; i++)
        if (strcmp(MEMBERS[i].name, name) == 0)
            return &MEMBERS[i];
    fail_msg("no member %s", name);
    return NULL;
}

static void apply(struct hparams *shape, const void *to)
{
    const struct change *change = to;
    const struct member *member = find_member(change->member);
    char *at = (char *)shape + member->offset;
    switch (member->kind) {
    case FLAG:    *(bool *)at = change->to != 0; break;
    case INTEGER: memcpy(at, &(int){(int)change->to}, sizeof(int)); break;
    case SINGLE:  memcpy(at, &(float){(float)change->to}, sizeof(float)); break;
    case REAL:    memcpy(at, &change->to, sizeof change->to); break;
    case WINDOWS:
        for (int i = 0; i < shape->layers; i++)
            shape->layer[i].window = (int)change->to;
        break;
    case NO_ROPE:
        for (int i = 0; i < shape->layers; i++)
            shape->layer[i].no_rope = change->to != 0;
        break;
    }
}

static void every_feature_of_every_family_shows(void **state)
{
    const char *family = "";
    struct golden golden = {0};
    int families = 0, missed = 0;
    (void)state;
    for (size_t i = 0; i < sizeof CHANGES / sizeof *CHANGES; i++) {
        const struct change *change = &CHANGES[i];
        if (strcmp(family, change->family)) {
            if (families++)
                golden_close(&golden);
            family = change->family;
            golden_open(&golden, family);
            double distance = golden_distance(&golden, NULL, NULL);
            if (distance > NEAR) {
                print_error("%s: a logit is off by %g\n", family, distance);
                missed++;
            }
        }
        double distance = golden_distance(&golden, apply, change);
        if (distance < APART) {
            print_error("%s: %s = %g moves a logit by %g only\n", family, change->member, change->to, distance);
            missed++;
        }
    }
    golden_close(&golden);
    assert_int_equal(families, 42);
    assert_int_equal(missed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_feature_of_every_family_shows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
