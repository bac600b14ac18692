#include "common/arch/head.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ATTENTION_NAMES(layer) \
    [SLOT_Q] = layer ".self_attn.q_proj.weight", [SLOT_K] = layer ".self_attn.k_proj.weight", \
    [SLOT_V] = layer ".self_attn.v_proj.weight", [SLOT_OUT] = layer ".self_attn.o_proj.weight", \
    [SLOT_Q_BIAS] = layer ".self_attn.q_proj.bias", [SLOT_K_BIAS] = layer ".self_attn.k_proj.bias", \
    [SLOT_V_BIAS] = layer ".self_attn.v_proj.bias", [SLOT_OUT_BIAS] = layer ".self_attn.o_proj.bias"
#define MLP_NAMES(layer) \
    [SLOT_FFN_NORM] = layer ".post_attention_layernorm.weight", [SLOT_DENSE_GATE] = layer ".mlp.gate_proj.weight", \
    [SLOT_DENSE_UP] = layer ".mlp.up_proj.weight", [SLOT_DENSE_DOWN] = layer ".mlp.down_proj.weight"
#define EAGLE_NAMES \
    [SLOT_EMBED] = "embed_tokens.weight", [SLOT_JOINT] = "fc.weight", [SLOT_JOINT_BIAS] = "fc.bias"
#define EAGLE3_NAMES(layer) \
    EAGLE_NAMES, ATTENTION_NAMES(layer), MLP_NAMES(layer), [SLOT_HEAD] = "lm_head.weight", [SLOT_FINAL_NORM] = "norm.weight", \
    [SLOT_EMBED_NORM] = layer ".input_layernorm.weight", [SLOT_HIDDEN_NORM] = layer ".hidden_norm.weight", \
    [SLOT_STATES_NORM] = "input_norm.weight", [SLOT_STATE_NORM] = "fc_norm.{e}.weight"
#define MOE_NAMES \
    [SLOT_FFN_NORM] = "layers.0.post_attention_layernorm.weight", [SLOT_ROUTER] = "layers.0.mlp_moe.gate.weight"
#define PREFIX "prefix_embeding_layer"
#define HYDRA_NAMES(output) \
    ATTENTION_NAMES(PREFIX ".layers.0"), MLP_NAMES(PREFIX ".layers.0"), \
    [SLOT_ATTENTION_NORM] = PREFIX ".layers.0.input_layernorm.weight", [SLOT_FINAL_NORM] = PREFIX ".norm.weight", \
    [SLOT_BLOCK] = "hydra_mlp.{n}.{e}.linear.weight", [SLOT_BLOCK_BIAS] = "hydra_mlp.{n}.{e}.linear.bias", \
    [SLOT_RESIDUAL] = "hydra_mlp.{n}.{e}.res_connection.weight", \
    [SLOT_RESIDUAL_BIAS] = "hydra_mlp.{n}.{e}.res_connection.bias", \
    [SLOT_OUTPUT] = "hydra_lm_head.{n}" output ".weight", [SLOT_OUTPUT_BIAS] = "hydra_lm_head.{n}" output ".bias"
#define ROTARY(layer) layer ".self_attn.rotary_emb.inv_freq"

static const struct naming eagle1 = {
    .slot = {EAGLE_NAMES, ATTENTION_NAMES("layers.0"), MLP_NAMES("layers.0")}, .ignored = {ROTARY("layers.0")}};
static const struct naming eagle3 = {.slot = {EAGLE3_NAMES("midlayer")}, .ignored = {ROTARY("midlayer")}};
static const struct naming eagle3_layers = {.slot = {EAGLE3_NAMES("layers.0")}, .ignored = {ROTARY("layers.0")}};
static const struct naming kangaroo = {
    .slot = {ATTENTION_NAMES("layers.0"), [SLOT_ATTENTION_NORM] = "layers.0.input_layernorm.weight",
             [SLOT_FINAL_NORM] = "norm.weight"}, .ignored = {ROTARY("layers.0")}};
static const struct naming jakiro = {
    .slot = {EAGLE_NAMES, ATTENTION_NAMES("layers.0"), MOE_NAMES,
             [SLOT_EXPERT_GATE] = "layers.0.mlp_moe.experts.{e}.gate_proj.weight",
             [SLOT_EXPERT_UP] = "layers.0.mlp_moe.experts.{e}.up_proj.weight",
             [SLOT_EXPERT_DOWN] = "layers.0.mlp_moe.experts.{e}.down_proj.weight"}, .ignored = {ROTARY("layers.0")}};
static const struct naming jakiro_star = {
    .slot = {EAGLE_NAMES, ATTENTION_NAMES("layers.0"), MOE_NAMES, [SLOT_BRANCH_UP] = "layers.0.mlp_moe.experts.{e}.fc.weight",
             [SLOT_BRANCH_DOWN] = "layers.0.mlp_moe.experts.{e}.proj.weight"}, .ignored = {ROTARY("layers.0")}};
static const struct naming medusa = {
    .slot = {[SLOT_BLOCK] = "{n}.{e}.linear.weight", [SLOT_BLOCK_BIAS] = "{n}.{e}.linear.bias",
             [SLOT_OUTPUT] = "{n}.{e}.weight"}};
static const struct naming hydra[2][2] = {      /* [a Dropout before each block][one before the output] */
    {{.slot = {HYDRA_NAMES("")}}, {.slot = {HYDRA_NAMES(".1")}}},
    {{.slot = {HYDRA_NAMES("")}, .spaced = true}, {.slot = {HYDRA_NAMES(".1")}, .spaced = true}}};

/* Returns the names of a head's kind (head.h). Hydra's prefix heads are those with Dropouts. */
const struct naming *head_naming(const struct head_params *head, bool layers)
{
    static const struct naming *const names[HEAD_KINDS] = {
        [HEAD_EAGLE1] = &eagle1, [HEAD_EAGLE3] = &eagle3, [HEAD_MEDUSA] = &medusa, [HEAD_HYDRA] = &hydra[0][0],
        [HEAD_KANGAROO] = &kangaroo, [HEAD_JAKIRO] = &jakiro, [HEAD_JAKIRO_STAR] = &jakiro_star};
    return head->prefix ? &hydra[1][1] : layers && head->kind == HEAD_EAGLE3 ? &eagle3_layers : names[head->kind];
}

/* ---- tensors ---- */

static const int64_t *dims_of(const struct head_request *request, const char *name, int *count)
{
    return request->tensors.dims(request->tensors.context, name, count);
}

static bool has(const struct head_request *request, const char *name)
{
    int count;
    return dims_of(request, name, &count) != NULL;
}

/* Returns whether there is a tensor with this name, formatted from two numbers. */
static bool has_numbered(const struct head_request *request, const char *format, int first, int second)
{
    char name[128];
    snprintf(name, sizeof name, format, first, second);
    return has(request, name);
}

/* Returns one dimension of a matrix; 0 if the matrix is missing or the dimension is out of range. */
static int matrix_dim(const struct head_request *request, const char *name, int which)
{
    int count = 0;
    const int64_t *dims = dims_of(request, name, &count);
    return dims && count == 2 && dims[which] > 0 && dims[which] <= VOCAB_MAX ? (int)dims[which] : 0;
}

/* ---- config.json ---- */

/* Returns the object that contains a key: the whole config.json, or one of those that EAGLE-3's trainers nest in it. */
static const json_t *holder_of(const json_t *config, const char *key)
{
    static const char *const nested[] = {"eagle_config", "transformer_layer_config"};
    for (int i = 0; i < 2 && config && !config_get(config, key); i++)
        if (config_get(config_get(config, nested[i]), key))
            return config_get(config, nested[i]);
    return config;
}

static int read_int(const struct head_request *request, const char *key, int *out, struct err *err)
{
    return request->config ? config_int(holder_of(request->config, key), key, false, out, err) : 0;
}

static int read_bool(const struct head_request *request, const char *key, bool *out, struct err *err)
{
    return request->config ? config_bool(holder_of(request->config, key), key, false, out, err) : 0;
}

static int refuse(const struct head_request *request, const char *key, struct err *err, const char *reason)
{
    return config_refuse(holder_of(request->config, key), key, err, "%s", reason);
}

/* Checks a number that must equal the target's if config.json states it. */
static int check_same(const struct head_request *request, const char *key, int target, struct err *err)
{
    int own = target;
    char reason[96];
    if (read_int(request, key, &own, err))
        return -1;
    snprintf(reason, sizeof reason, "the target %.40s has %d", model_identity(request->target)->name, target);
    return own == target ? 0 : refuse(request, key, err, reason);
}

static int add_note(struct head_reading *out, struct err *err, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int add_note(struct head_reading *out, struct err *err, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return text_printf(&out->notes, err, "%s%s", out->notes.length ? "; " : "", line);
}

/* ---- the kind of head ---- */

static bool calls_itself_eagle3(const json_t *config)
{
    const json_t *architecture = json_array_get(config_get(config, "architectures"), 0);
    const json_t *model = config_get(config, "speculators_model_type");
    const char *name = json_string_value(architecture), *other = json_string_value(model);
    return config_get(config, "draft_vocab_size") || (other && strcmp(other, "eagle3") == 0) ||
           (name && (strstr(name, "Eagle3") || strstr(name, "EAGLE3")));
}

enum head_kind head_recognise(const struct head_request *request)
{
    if (has(request, "0.0.linear.weight"))
        return HEAD_MEDUSA;
    if (has(request, "hydra_mlp.0.0.linear.weight") || has(request, "hydra_mlp.0.1.linear.weight"))
        return HEAD_HYDRA;
    if (has(request, "layers.0.mlp_moe.experts.0.fc.weight"))
        return HEAD_JAKIRO_STAR;
    if (has(request, "layers.0.mlp_moe.gate.weight"))
        return HEAD_JAKIRO;
    if (has(request, "midlayer.self_attn.q_proj.weight") || has(request, "layers.0.hidden_norm.weight") ||
        calls_itself_eagle3(request->config))
        return HEAD_EAGLE3;
    if (has(request, "fc.weight"))
        return HEAD_EAGLE1;
    if (has(request, "layers.0.input_layernorm.weight") && !has(request, "layers.0.mlp.gate_proj.weight"))
        return HEAD_KANGAROO;
    return HEAD_NONE;
}

/* ---- the layer ---- */

/* Keys that do not describe the layer, or repeat another source. */
static const char *const PASSED_OVER[] = {"bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings"};

static int put_default(json_t *config, const char *key, json_t *value, struct err *err)
{
    if (!value)
        return err_memory(err);
    if (!config_get(config, key))
        return json_object_set_new(config, key, value) ? err_memory(err) : 0;
    json_decref(value);
    return 0;
}

/* Fills in values that Hydra's program takes from the target if config.json does not contain them. */
static int put_target(const struct head_request *request, json_t *config, struct text *notes, struct err *err)
{
    const struct hparams *s = model_hparams(request->target);
    const struct { const char *key; int value; } keys[] = {
        {"num_attention_heads", s->attention.heads}, {"num_key_value_heads", s->attention.kv_heads},
        {"head_dim", config_get(config, "num_attention_heads") ? 0 : s->attention.head_dim},
        {"intermediate_size", s->dense_inner ? s->dense_inner : s->expert_inner}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (config_get(config, keys[i].key) || !keys[i].value)
            continue;
        if (put_default(config, keys[i].key, json_integer(keys[i].value), err) ||
            text_printf(notes, err, "%s%s", notes->length ? ", " : "", keys[i].key))
            return -1;
    }
    if (config_get(config, "rms_norm_eps"))
        return 0;
    if (put_default(config, "rms_norm_eps", json_real((double)s->norm_epsilon), err))
        return -1;
    return text_printf(notes, err, "%srms_norm_eps", notes->length ? ", " : "");
}

static bool has_rope(const json_t *config)
{
    return config_get(config, "rope_theta") || config_get(config, "rope_scaling") || config_get(config, "rope_parameters");
}

/* Reads the head's layer as one of Llama, whatever the target's family: all published heads have such a layer. */
static int read_own(const struct head_request *request, struct head_reading *out, json_t *config, struct err *err)
{
    const struct hparams *target = model_hparams(request->target);
    const bool prefix = out->head.prefix, rope = has_rope(config);
    struct text taken = {0};
    const struct arch *arch;
    int rc = -1;
    for (size_t i = 0; i < sizeof PASSED_OVER / sizeof *PASSED_OVER; i++)
        json_object_del(config, PASSED_OVER[i]);
    if (json_object_set_new(config, "model_type", json_string("llama")) ||
        json_object_set_new(config, "num_hidden_layers", json_integer(1)) ||
        (out->head.kind == HEAD_JAKIRO_STAR && json_object_set_new(config, "hidden_act", json_string("silu")))) {
        err_memory(err);
        goto done;
    }
    if ((prefix && (put_target(request, config, &taken, err) ||
                    put_default(config, "hidden_size", json_integer(target->hidden), err))) ||
        put_default(config, "rms_norm_eps", json_real(1e-6), err) ||
        put_default(config, "vocab_size", json_integer(target->vocab), err) ||
        put_default(config, "max_position_embeddings", json_integer(target->max_positions), err) ||
        (out->head.kind != HEAD_EAGLE1 && out->head.kind != HEAD_EAGLE3 && !prefix && out->head.kind != HEAD_JAKIRO_STAR &&
         put_default(config, "intermediate_size", json_integer(1), err)) ||
        arch_read(config, NULL, &out->shape, &arch, err))
        goto done;
    if (prefix && !rope && out->shape.attention.head_dim == target->attention.head_dim) {
        out->shape.rope = target->rope;
        if (text_printf(&taken, err, "%srope", taken.length ? ", " : ""))
            goto done;
    }
    rc = taken.length ? add_note(out, err, "%s of the prefix layer are the target's", taken.data) : 0;
done:
    text_free(&taken);
    return rc;
}

static int read_layer(const struct head_request *request, struct head_reading *out, struct err *err)
{
    const json_t *nested = config_get(request->config, "transformer_layer_config");
    int layers = 1;
    if (!request->config && !out->head.prefix)
        return err_set(err, ERR_INPUT, "has no config.json, which describes the shape of the head's layer; add it");
    if (read_int(request, "num_hidden_layers", &layers, err))
        return -1;
    if (layers != 1)
        return refuse(request, "num_hidden_layers", err, "only heads of one layer are supported");
    json_t *config = !request->config ? json_object() : json_deep_copy(nested ? nested : request->config);
    if (!config)
        return err_memory(err);
    int rc = read_own(request, out, config, err);
    json_decref(config);
    if (rc)
        return -1;
    struct hparams *s = &out->shape;
    char q_bias[128], out_bias[128];
    bool bias = s->attention.qkv_bias;
    if (read_bool(request, "qkv_bias", &bias, err))
        return -1;
    snprintf(q_bias, sizeof q_bias, "%s", out->naming->slot[SLOT_Q_BIAS]);
    snprintf(out_bias, sizeof out_bias, "%s", out->naming->slot[SLOT_OUT_BIAS]);
    s->attention.qkv_bias = bias || has(request, q_bias);
    s->attention.out_bias |= has(request, out_bias);
    if (out->head.kind == HEAD_KANGAROO) {
        s->layer[0].ffn = FFN_NONE;
        s->dense_inner = 0;
    }
    return 0;
}

/* Reads settings that no published head uses: a second branch other than the contrast, or none, and branches by equation 4. */
static int read_branches(const struct head_request *request, struct head_params *head, struct err *err)
{
    const char *second = head_second_name(HEAD_SECOND_CONTRAST);
    int ahead = 2;
    if (!request->config)
        return 0;
    if (head->kind == HEAD_JAKIRO_STAR)
        return read_bool(request, "scaled_branches", &head->scaled, err);
    if (config_text(request->config, "second_branch", false, &second, err) || read_int(request, "second_ahead", &ahead, err))
        return -1;
    if (!head_second_by_name(second, &head->second))
        return refuse(request, "second_branch", err, "supported are contrast, sum and none");
    if (ahead < 1 || ahead > 2)
        return refuse(request, "second_ahead", err, "the second branch guesses the token 1 or 2 ahead");
    head->second_next = ahead == 1;
    return 0;
}

/* Reads number and width of the experts; the forward computes the weights of a token's experts. */
static int read_experts(const struct head_request *request, struct head_reading *out, struct err *err)
{
    const bool star = out->head.kind == HEAD_JAKIRO_STAR;
    const int rows = matrix_dim(request, "layers.0.mlp_moe.gate.weight", 0);
    struct hparams *s = &out->shape;
    int experts = 2, used = 2;
    if (read_int(request, "num_local_experts", &experts, err) || read_int(request, "num_experts_per_tok", &used, err) ||
        read_branches(request, &out->head, err))
        return -1;
    if (star && experts != 2)
        return refuse(request, "num_local_experts", err, "only 2 is supported, because Jakiro*'s own program uses only the "
                      "first two experts");
    if (experts < 2 || experts > HEAD_EXPERTS_MAX)
        return refuse(request, "num_local_experts", err, "only numbers from 2 to 64 are supported");
    if (experts != 2 && rows == experts + 2)
        return refuse(request, "num_local_experts", err, "this router has two rows more than experts, which is supported for "
                      "2 experts only: Jakiro's own program fails for more");
    if (used < 1 || used > experts || (star && used != 2))
        return refuse(request, "num_experts_per_tok", err, star ? "only 2 is supported" : "it must be from 1 to the number of "
                      "experts");
    s->router.kind = ROUTER_SOFTMAX_TOPK;
    s->router.experts = experts;
    s->router.top_k = used;
    s->router.scale = 1;
    s->layer[0].ffn = FFN_EXPERTS;
    s->expert_inner = star ? s->dense_inner : s->hidden;       /* as in Jakiro's program */
    s->dense_inner = 0;
    return 0;
}

/* ---- the kinds ---- */

static int read_joined(const struct head_request *request, struct head_reading *out, struct err *err)
{
    struct head_params *head = &out->head;
    out->naming = head->kind == HEAD_EAGLE1 ? &eagle1 : head->kind == HEAD_JAKIRO ? &jakiro : &jakiro_star;
    head->joint_bias = true;
    head->embed = has(request, "embed_tokens.weight");
    if (read_layer(request, out, err) || read_bool(request, "bias", &head->joint_bias, err) ||
        (head->kind != HEAD_EAGLE1 && read_experts(request, out, err)))
        return -1;
    return add_note(out, err, "%soutput head %s the target's", head->embed ? "" : "embedding and ",
                       head->embed ? "is" : "are");
}

/* Reads which states the head reads: those after the listed layers; without a list, by EAGLE-3's rule, those before layers
 * 2, n / 2 and n - 3. */
static int read_states(const struct head_request *request, struct head_reading *out, struct err *err)
{
    static const char key[] = "eagle_aux_hidden_state_layer_ids";
    struct head_params *head = &out->head;
    const json_t *ids = request->config ? config_get(holder_of(request->config, key), key) : NULL;
    const int layers = head->target.layers;
    const bool inputs = request->layer_ids == LAYER_IDS_INPUT ||
                        (request->layer_ids == LAYER_IDS_AS_PUBLISHED && config_get(request->config, "speculators_model_type"));
    if (!ids) {
        const int before[] = {2, layers / 2, layers - 3};
        head->states = 3;
        for (int i = 0; i < 3; i++)
            head->state[i] = before[i] - 1;
        if (layers < 4)
            return err_set(err, ERR_INPUT, "does not list the layers whose states it reads (%s), and the default needs a "
                           "target of at least four layers, but this one has %d; add the list to config.json", key, layers);
        return add_note(out, err, "config.json lists no layer ids, so the head reads the states after layers %d, %d and %d, "
                        "EAGLE-3's default", head->state[0], head->state[1], head->state[2]);
    }
    if (!json_is_array(ids) || json_array_size(ids) < 1 || json_array_size(ids) > HEAD_STATES_MAX)
        return refuse(request, key, err, "it must list 1 to 8 layers");
    head->states = (int)json_array_size(ids);
    for (int i = 0; i < head->states; i++) {
        const json_t *id = json_array_get(ids, (size_t)i);
        const json_int_t layer = json_integer_value(id) - (inputs ? 1 : 0);
        char reason[160];
        snprintf(reason, sizeof reason, "the target has the states %s layers %d to %d; if the ids are counted differently, "
                 "give --layer-ids",
                 inputs ? "before" : "after", inputs, inputs ? layers : layers - 1);
        if (!json_is_integer(id) || layer < 0 || layer >= layers)
            return refuse(request, key, err, reason);
        head->state[i] = (int)layer;
    }
    return add_note(out, err, "layer ids are read as %s", inputs ? "inputs of layers" : "outputs of layers");
}

static int read_eagle3(const struct head_request *request, struct head_reading *out, struct err *err)
{
    struct head_params *head = &out->head;
    bool used = true, middle = has(request, "midlayer.self_attn.q_proj.weight");
    int rows = matrix_dim(request, "lm_head.weight", 0), width = head->target.hidden;
    out->naming = middle || !has(request, "layers.0.self_attn.q_proj.weight") ? &eagle3 : &eagle3_layers;
    head->embed = has(request, "embed_tokens.weight");
    head->normed_residual = config_get(request->config, "speculators_model_type") != NULL;      /* their default */
    head->states_norm = has(request, "input_norm.weight");
    head->state_norms = has(request, "fc_norm.0.weight");
    head->draft_vocab = rows ? rows : head->target.vocab;
    if (read_layer(request, out, err) || read_states(request, out, err) ||
        read_bool(request, "use_aux_hidden_state", &used, err) ||
        read_int(request, "draft_vocab_size", &head->draft_vocab, err) ||
        read_bool(request, "norm_before_fc", &head->states_norm, err) ||
        read_bool(request, "fc_norm", &head->state_norms, err) ||
        read_bool(request, "norm_before_residual", &head->normed_residual, err) ||
        read_bool(request, "norm_output", &head->normed_output, err) ||
        read_int(request, "target_hidden_size", &width, err))
        return -1;
    if (!used)
        return refuse(request, "use_aux_hidden_state", err, "only heads that read states of several layers are supported");
    if (width != head->target.hidden)
        return check_same(request, "target_hidden_size", head->target.hidden, err);
    if (head->draft_vocab < 1 || head->draft_vocab > head->target.vocab)
        return refuse(request, "draft_vocab_size", err, "it must be from 1 to the target's vocabulary");
    head->embed |= out->shape.hidden != head->target.hidden;
    return head->embed ? 0 : add_note(out, err, "the embedding is the target's");
}

static int read_kangaroo(const struct head_request *request, struct head_reading *out, struct err *err)
{
    struct head_params *head = &out->head;
    int layers = request->exit_layer;
    out->naming = &kangaroo;
    if (read_layer(request, out, err) || (!layers && read_int(request, "exit_layer", &layers, err)))
        return -1;
    if (!layers)
        return err_set(err, ERR_INPUT, "does not state the target layer whose output it reads; give --exit-layer N, the "
                       "number of layers before it (Kangaroo's authors use 2 for 7B models)");
    if (layers < 1 || layers >= head->target.layers)
        return err_set(err, ERR_INPUT, "exit layer %d: must be at least 1 and below the target's number of layers, %d; give "
                       "--exit-layer N", layers, head->target.layers);
    head->state[0] = layers - 1;
    return add_note(out, err, "the output head is the target's");
}

/* Counts the heads or blocks by the names of tensors. The number in config.json is used if it is larger, so that an error
 * names the missing tensor. */
static int count_named(const struct head_request *request, struct head_reading *out, const char *format, bool second,
                       const char *key, int largest, int *count, struct err *err)
{
    int found = 0, step = out->naming->spaced && second ? 2 : 1, notes = 0;
    const int first = out->naming->spaced;
    while (found <= largest && has_numbered(request, format, second ? 0 : found, second ? first + found * step : first))
        found++;
    if (read_int(request, key, &notes, err))
        return -1;
    *count = found > notes ? found : notes;
    *count += *count == 0;                              /* an error then names the first tensor */
    if (*count < 1 || *count > largest)
        return err_set(err, ERR_INPUT, "%s: must be from 1 to %d, not %d", key, largest, *count);
    if (notes && found > notes)
        return add_note(out, err, "%s is %d in config.json, but the file contains %d, which are used", key, notes, found);
    return 0;
}

static int read_many(const struct head_request *request, struct head_reading *out, struct err *err)
{
    struct head_params *head = &out->head;
    const bool is_hydra = head->kind == HEAD_HYDRA;
    const char *format = is_hydra ? "hydra_mlp.%d.%d.linear.weight" : "%d.%d.linear.weight", *arch = "mlp";
    bool grounded = true;
    int offset = 0;
    out->naming = &medusa;
    if (is_hydra) {
        out->naming = &hydra[!has(request, "hydra_mlp.0.0.linear.weight")][has(request, "hydra_lm_head.0.1.weight")];
        head->prefix = has(request, PREFIX ".norm.weight");
        if (request->config && config_text(request->config, "hydra_head_arch", false, &arch, err))
            return -1;
        if (strcmp(arch, "mlp") && strcmp(arch, "prefix-mlp"))
            return refuse(request, "hydra_head_arch", err, "supported are mlp and prefix-mlp");
        head->prefix |= strcmp(arch, "prefix-mlp") == 0;
        if (read_bool(request, "grounded_heads", &grounded, err) || read_int(request, "hidden_state_offset", &offset, err))
            return -1;
        if (!grounded)
            return refuse(request, "grounded_heads", err, "only true is supported: heads that see the preceding draft tokens");
        if (offset)
            return refuse(request, "hidden_state_offset", err, "only 0 is supported");
    }
    const char *heads = is_hydra ? "hydra_num_heads" : "medusa_num_heads";
    const char *blocks = is_hydra ? "hydra_num_layers" : "medusa_num_layers";
    if (count_named(request, out, format, false, heads, HEAD_HEADS_MAX, &head->heads, err) ||
        count_named(request, out, format, true, blocks, HEAD_BLOCKS_MAX, &head->blocks, err) ||
        (head->prefix && read_layer(request, out, err)))
        return -1;
    if (!head->prefix) {
        snprintf(out->shape.family, sizeof out->shape.family, "%s", head_kind_name(head->kind));
        out->shape.vocab = head->target.vocab;
        out->shape.hidden = head->target.hidden;
        out->shape.bos = out->shape.pad = -1;
    }
    return add_note(out, err, "%s", is_hydra ? "the embedding and the output head of the first token are the target's"
                                        : "the output head of the first token is the target's");
}

int head_read(struct head_reading *out, const struct head_request *request, struct err *err)
{
    const struct model_identity *target = model_identity(request->target);
    struct head_params *head = &out->head;
    enum head_kind kind = request->kind != HEAD_NONE ? request->kind : head_recognise(request);
    if (kind == HEAD_NONE)
        return err_set(err, ERR_INPUT, "its tensors match no known kind of draft head; if it is a draft head, name its kind "
                       "with --kind");
    head->kind = kind;
    head->target = (struct head_target){.source = target->source, .tokenizer = target->tokenizer, .layers = target->layers,
                                        .hidden = target->hidden, .vocab = target->vocab};
    snprintf(head->target.name, sizeof head->target.name, "%s", target->name);
    head->draft_vocab = target->vocab;
    head->states = 1;
    head->state[0] = target->layers;
    if (check_same(request, "vocab_size", target->vocab, err) ||
        (kind != HEAD_EAGLE3 && check_same(request, "hidden_size", target->hidden, err)))
        return err_at(err, "as %s", head_kind_name(kind));
    int rc = kind == HEAD_EAGLE3   ? read_eagle3(request, out, err)
           : kind == HEAD_KANGAROO ? read_kangaroo(request, out, err)
           : kind == HEAD_MEDUSA || kind == HEAD_HYDRA ? read_many(request, out, err)
                                   : read_joined(request, out, err);
    if (rc)
        return err_at(err, "as %s", head_kind_name(kind));
    snprintf(out->shape.family, sizeof out->shape.family, "%s", head_kind_name(kind));
    return 0;
}

void head_reading_free(struct head_reading *reading)
{
    head_free(&reading->head);
    text_free(&reading->notes);
}
