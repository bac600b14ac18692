#include "common/model/model_show.h"

#include <stdio.h>
#include <string.h>

#include "common/base/hash.h"
#include "common/base/numeral.h"
#include "common/model/model_index.h"
#include "common/model/step.h"

static void show_string(struct show *show, const char *key, const char *value) { show_text(show, key, value, strlen(value)); }

static void show_digest(struct show *show, const char *key, const struct sha256 *digest)
{
    static const struct sha256 none = {{0}};
    char hex[65];
    sha256_hex(digest, hex);
    if (memcmp(digest, &none, sizeof none))
        show_string(show, key, hex);
    else
        show_absent(show, key);
}

static void show_shape(struct show *show, const struct hparams *shape)
{
    static const char *const norms[] = {"none", "whole", "head"};
    static const char *const places[] = {"before", "after", "both"};
    static const char *const ropes[] = {"default", "linear", "llama3", "yarn", "stretched", "dynamic"};
    static const char *const routers[] = {"softmax-topk", "sigmoid", "sparsemixer"};
    show_int(show, "layers", shape->layers);
    show_int(show, "moe_layers", hparams_moe_layers(shape));
    show_int(show, "hidden", shape->hidden);
    show_int(show, "vocab", shape->vocab);
    show_int(show, "max_positions", shape->max_positions);
    show_int(show, "heads", shape->attention.heads);
    show_int(show, "kv_heads", shape->attention.kv_heads);
    show_int(show, "head_dim", shape->attention.head_dim);
    show_int(show, "value_dim", shape->attention.value_dim);
    show_int(show, "q_rank", shape->attention.q_rank);
    show_int(show, "kv_rank", shape->attention.kv_rank);
    show_string(show, "qk_norm", norms[shape->attention.qk_norm]);
    show_string(show, "rope", ropes[shape->rope.kind]);
    show_real(show, "rope_theta", shape->rope.theta);
    const struct array epsilon = {.dtype = DTYPE_F32, .count = 1, .data = &shape->norm_epsilon};
    show_element(show, "norm_epsilon", &epsilon, 0);
    show_flag(show, "tied", shape->tied);
    show_string(show, "router", routers[shape->router.kind]);
    show_int(show, "experts", shape->router.experts);
    show_int(show, "top_k", shape->router.top_k);
    show_flag(show, "renormalise", shape->router.renormalise);
    show_int(show, "expert_inner", shape->expert_inner);
    show_int(show, "dense_inner", shape->dense_inner);
    show_int(show, "shared_inner", shape->shared_inner);
    show_flag(show, "shared_gate", shape->shared_gate);
    show_int(show, "predictors", shape->predictors);
    show_string(show, "norms", places[shape->norms]);
    show_flag(show, "parallel", shape->parallel);
    show_flag(show, "attention_gate", shape->attention.gate);
    show_int(show, "state_layers", hparams_state_layers(shape));
}

static void show_origin(struct show *show, const struct model_facts *facts)
{
    const struct array eos = {.dtype = DTYPE_I32, .rank = 1, .shape = {(uint64_t)facts->shape.eos_count},
                              .count = (size_t)facts->shape.eos_count, .data = facts->shape.eos};
    char hex[65];
    show_array(show, "eos", &eos);
    if (show_form(show) == SHOW_CSV)
        return;
    show_list_begin(show, "sources");
    for (size_t i = 0; i < facts->source_count; i++) {
        show_map_begin(show, NULL);
        show_string(show, "name", facts->sources[i].name);
        show_uint(show, "bytes", facts->sources[i].bytes);
        sha256_hex(&facts->sources[i].digest, hex);
        show_string(show, "sha256", hex);
        show_map_end(show);
    }
    show_list_end(show);
}

/* Prints the number of all weights, and of those that a token uses: of the routed experts only top_k (step.h). */
static void show_parameters(struct show *show, const struct model *model)
{
    char all[NUMERAL_ROOM], active[NUMERAL_ROOM];
    double total = 0, used = 0;
    step_parameters(model, &total, &used);
    numeral_count(all, total);
    numeral_count(active, used);
    if (model_identity(model)->moe_layers)
        show_line(show, "    %s parameters, %s of them active for a token", all, active);
    else
        show_line(show, "    %s parameters", all);
}

static void show_step_line(struct show *show, const struct model *model)
{
    struct step_bytes bytes;
    step_bytes(&bytes, model);
    const struct { const char *name; uint64_t bytes; } part[] = {
        {"attention", bytes.attention}, {"router", bytes.router}, {"experts", bytes.experts}, {"shared experts", bytes.shared},
        {"dense networks", bytes.dense}, {"head", bytes.head}};
    double all = (double)step_bytes_all(&bytes);
    char line[256];
    int length = snprintf(line, sizeof line, "    a token reads %.1f MB:", all / 1e6);
    for (size_t i = 0, shown = 0; i < sizeof part / sizeof *part; i++)
        if (part[i].bytes)
            length += snprintf(line + length, sizeof line - (size_t)length, "%s %s %.1f %%", shown++ ? "," : "", part[i].name,
                               100 * (double)part[i].bytes / all);
    show_line(show, "%s", line);
}

static void show_step(struct show *show, const struct model *model)
{
    struct step_bytes bytes;
    if (show_form(show) == SHOW_CSV)
        return;
    step_bytes(&bytes, model);
    show_map_begin(show, "step_bytes");
    show_uint(show, "attention", bytes.attention);
    show_uint(show, "router", bytes.router);
    show_uint(show, "experts", bytes.experts);
    show_uint(show, "shared", bytes.shared);
    show_uint(show, "dense", bytes.dense);
    show_uint(show, "head", bytes.head);
    show_map_end(show);
}

static void show_files(struct show *show, const struct model_facts *facts)
{
    char hex[65], size[NUMERAL_ROOM];
    for (size_t i = 0; i < facts->source_count; i++) {
        sha256_hex(&facts->sources[i].digest, hex);
        numeral_size(size, facts->sources[i].bytes);
        show_line(show, "    from %s, %s, %.12s", facts->sources[i].name, size, hex);
    }
}

/* Prints the most requested facts; --json prints all. */
static void show_lines(struct show *show, const struct model *model)
{
    const struct model_identity *identity = model_identity(model);
    const struct model_facts *facts = model_facts(model);
    const struct hparams *shape = &facts->shape;
    char hex[65];
    size_t bytes;
    show_line(show, "model %s (%s), weights in %s, by %s", identity->name, shape->family, identity->dtype, facts->producer);
    show_line(show, "    %d layer%s, hidden %d, vocabulary %d, %d positions", shape->layers, numeral_plural(shape->layers),
              shape->hidden, shape->vocab, shape->max_positions);
    show_parameters(show, model);
    show_line(show, "    %d head%s of %d, %d for keys and values", shape->attention.heads,
              numeral_plural(shape->attention.heads), shape->attention.head_dim, shape->attention.kv_heads);
    if (hparams_has_other(shape))
        show_line(show, "    in some layers heads of %d, %d for keys and values", shape->other.head_dim, shape->other.kv_heads);
    if (hparams_state_layers(shape) && shape->delta.kind == RECURRENCE_NONE)
        show_line(show, "    %d layer%s with a convolution of %d tokens in place of attention", hparams_state_layers(shape),
                  numeral_plural(hparams_state_layers(shape)), shape->delta.taps);
    else if (hparams_state_layers(shape))
        show_line(show, "    %d layer%s with a state in place of attention: %d value heads of %d x %d",
                  hparams_state_layers(shape), numeral_plural(hparams_state_layers(shape)), shape->delta.value_heads,
                  shape->delta.key_dim, shape->delta.value_dim);
    if (identity->moe_layers)
        show_line(show, "    %d layer%s with %d experts of inner width %d, %d a token", identity->moe_layers,
                  numeral_plural(identity->moe_layers), identity->experts, shape->expert_inner, identity->top_k);
    if (shape->shared_inner)
        show_line(show, "    beside them%s shared experts of inner width %d", shape->shared_gate ? " gated" : "",
                  shape->shared_inner);
    if (hparams_dense_layers(shape))
        show_line(show, "    %d layer%s with a dense network of inner width %d", hparams_dense_layers(shape),
                  numeral_plural(hparams_dense_layers(shape)), shape->dense_inner);
    if (shape->predictors)
        show_line(show, "    after the last layer %d predictor%s of further tokens", shape->predictors,
                  numeral_plural(shape->predictors));
    if (identity->inflated_from)
        show_line(show, "    inflated: %d to %d", identity->inflated_from,
                  identity->moe_layers ? shape->expert_inner : shape->dense_inner);
    show_step_line(show, model);
    if (identity->synthetic)
        show_line(show, "    synthetic: the weights are random");
    show_line(show, "    %s, %s", model_tokenizer_json(model, &bytes) ? "with a tokenizer" : "without a tokenizer",
              model_chat_template(model, &bytes) ? "with a chat template" : "without a chat template");
    sha256_hex(&identity->index, hex);
    show_line(show, "    model file %.12s", hex);
    show_files(show, facts);
}

static void show_states(struct text *out, const struct head_params *head)
{
    for (int i = 0; i < head->states; i++)
        if (head->state[i] == head->target.layers)
            text_puts(out, "the state after the final norm", NULL);
        else
            text_printf(out, NULL, "%s%d", i ? ", " : head->states > 1 ? "the states after layers " : "the state after layer ",
                        head->state[i]);
}

/* Prints the shape of the head's own layer, if there is one. */
static void show_head_layer(struct show *show, const struct head_params *head, const struct hparams *shape)
{
    const int used = shape->router.top_k;
    if (!shape->layers)
        return;
    show_line(show, "    a layer with %d head%s of %d, %d for keys and values, rope theta %g", shape->attention.heads,
              numeral_plural(shape->attention.heads), shape->attention.head_dim, shape->attention.kv_heads, shape->rope.theta);
    if (shape->layer[0].ffn == FFN_EXPERTS)
        show_line(show, "    and %d experts of inner width %d, of which a token uses %d", shape->router.experts,
                  shape->expert_inner, used);
    else if (shape->layer[0].ffn == FFN_DENSE)
        show_line(show, "    and a dense network of inner width %d", shape->dense_inner);
    if (head->kind == HEAD_JAKIRO && head->second != HEAD_SECOND_NONE)
        show_line(show, "    a second branch, the %s of two, guesses the token %s",
                  head_second_name((enum head_second)head->second), head->second_next ? "that comes next" : "after the next");
    if (head->scaled)
        show_line(show, "    branches scaled by scores (equation 4 of the paper)");
}

static void show_head_lines(struct show *show, const struct model *model)
{
    const struct model_identity *identity = model_identity(model);
    const struct model_facts *facts = model_facts(model);
    const struct head_params *head = &facts->head;
    struct text states = {0};
    char hex[65];
    show_states(&states, head);
    sha256_hex(&head->target.source, hex);
    show_line(show, "draft head %s (%s), weights in %s, by %s", identity->name, head_kind_name(head->kind), identity->dtype,
              facts->producer);
    show_line(show, "    for %s: %d layer%s, hidden %d, vocabulary %d, source %.12s", head->target.name, head->target.layers,
              numeral_plural(head->target.layers), head->target.hidden, head->target.vocab, hex);
    show_line(show, "    hidden %d, reads %s", facts->shape.hidden, states.length ? states.data : "");
    show_head_layer(show, head, &facts->shape);
    if (head->heads)
        show_line(show, "    %d head%s of %d residual block%s%s", head->heads, numeral_plural(head->heads), head->blocks,
                  numeral_plural(head->blocks), head->prefix ? ", after the layer" : "");
    if (head->target_id)
        show_line(show, "    draft vocabulary %d, from id %d to id %d of the target's", head->draft_vocab, head->target_id[0],
                  head->target_id[head->draft_vocab - 1]);
    if (head->kind != HEAD_MEDUSA && head->kind != HEAD_KANGAROO)
        show_line(show, "    %s", head->embed ? "with an embedding of its own" : "with the target's embedding");
    sha256_hex(&identity->index, hex);
    show_line(show, "    head file %.12s", hex);
    show_files(show, facts);
    text_free(&states);
}

static int show_head(struct show *show, const struct model *model, struct err *err)
{
    const struct model_identity *identity = model_identity(model);
    const struct model_facts *facts = model_facts(model);
    const struct head_params *head = &facts->head;
    const struct array states = {.dtype = DTYPE_I32, .rank = 1, .shape = {(uint64_t)head->states},
                                 .count = (size_t)head->states, .data = head->state};
    const struct array ids = {.dtype = DTYPE_I32, .rank = 1, .shape = {(uint64_t)head->draft_vocab},
                              .count = (size_t)head->draft_vocab, .data = head->target_id};
    if (show_form(show) == SHOW_TEXT) {
        show_head_lines(show, model);
        return 0;
    }
    show_begin(show, "head", -1);
    show_string(show, "name", identity->name);
    show_string(show, "kind", head_kind_name(head->kind));
    show_string(show, "dtype", identity->dtype);
    show_string(show, "target", head->target.name);
    show_digest(show, "target_source_sha256", &head->target.source);
    show_digest(show, "target_tokenizer_sha256", &head->target.tokenizer);
    show_int(show, "target_layers", head->target.layers);
    show_int(show, "target_hidden", head->target.hidden);
    show_int(show, "target_vocab", head->target.vocab);
    show_array(show, "states", &states);
    show_flag(show, "embed", head->embed);
    show_flag(show, "joint_bias", head->joint_bias);
    show_flag(show, "states_norm", head->states_norm);
    show_flag(show, "state_norms", head->state_norms);
    show_flag(show, "normed_residual", head->normed_residual);
    show_flag(show, "normed_output", head->normed_output);
    show_int(show, "guessing_heads", head->heads);
    show_int(show, "blocks", head->blocks);
    show_flag(show, "prefix", head->prefix);
    if (head->kind == HEAD_JAKIRO) {
        show_string(show, "second", head_second_name((enum head_second)head->second));
        show_flag(show, "second_next", head->second_next);
    }
    if (head->kind == HEAD_JAKIRO_STAR)
        show_flag(show, "scaled", head->scaled);
    show_shape(show, &facts->shape);
    show_int(show, "draft_vocab", head->draft_vocab);
    if (head->target_id)
        show_array(show, "target_ids", &ids);
    else
        show_absent(show, "target_ids");
    show_digest(show, "index_sha256", &identity->index);
    show_digest(show, "source_sha256", &identity->source);
    show_string(show, "producer", facts->producer);
    show_origin(show, facts);
    return show_end(show, err);
}

static int show_whole(struct show *show, const struct model *model, struct err *err)
{
    const struct model_identity *identity = model_identity(model);
    const struct model_facts *facts = model_facts(model);
    double parameters, active;
    size_t bytes;
    if (show_form(show) == SHOW_TEXT) {
        show_lines(show, model);
        return 0;
    }
    show_begin(show, "model", -1);
    show_string(show, "name", identity->name);
    show_string(show, "family", facts->shape.family);
    show_string(show, "dtype", identity->dtype);
    show_flag(show, "synthetic", identity->synthetic);
    if (identity->inflated_from)
        show_int(show, "inflated_from", identity->inflated_from);
    else
        show_absent(show, "inflated_from");
    show_shape(show, &facts->shape);
    show_flag(show, "tokenizer", model_tokenizer_json(model, &bytes) != NULL);
    show_flag(show, "chat_template", model_chat_template(model, &bytes) != NULL);
    show_digest(show, "index_sha256", &identity->index);
    show_digest(show, "source_sha256", &identity->source);
    show_digest(show, "tokenizer_sha256", &identity->tokenizer);
    show_string(show, "producer", facts->producer);
    step_parameters(model, &parameters, &active);
    show_uint(show, "parameters", (uint64_t)parameters);
    show_uint(show, "active_parameters", (uint64_t)active);
    show_step(show, model);
    show_origin(show, facts);
    return show_end(show, err);
}

static const char *const kinds[] = {"vector", "matrix", "experts"};

static void show_tensor_line(struct show *show, const struct tensor *tensor)
{
    char shape[64], format[FORMAT_TEXT], size[NUMERAL_ROOM];
    tensor_format_write(tensor, format);
    if (tensor->kind == TENSOR_EXPERTS)
        snprintf(shape, sizeof shape, "%d of [%d][%d]", tensor->count, tensor->outputs, tensor->inputs);
    else if (tensor->kind == TENSOR_MATRIX)
        snprintf(shape, sizeof shape, "[%d][%d]", tensor->outputs, tensor->inputs);
    else
        snprintf(shape, sizeof shape, "[%d]", tensor->outputs);
    numeral_size(size, tensor->bytes);
    show_line(show, "%-28s %-8s %-5s %-20s %10s at %llu", tensor->name, kinds[tensor->kind], format, shape, size,
              (unsigned long long)tensor->offset);
}

static int show_tensor(struct show *show, const struct tensor *tensor, struct err *err)
{
    char hex[33], format[FORMAT_TEXT];
    if (show_form(show) == SHOW_TEXT) {
        show_tensor_line(show, tensor);
        return 0;
    }
    tensor_format_write(tensor, format);
    show_begin(show, "tensor", -1);
    show_string(show, "name", tensor->name);
    show_string(show, "kind", kinds[tensor->kind]);
    show_string(show, "format", format);
    show_int(show, "layer", tensor->layer);
    show_int(show, "outputs", tensor->outputs);
    show_int(show, "inputs", tensor->inputs);
    show_int(show, "count", tensor->count);
    show_uint(show, "offset", tensor->offset);
    show_uint(show, "stride", tensor->stride);
    show_uint(show, "bytes", tensor->bytes);
    digest128_hex(tensor->digest, hex);
    show_string(show, "digest", hex);
    return show_end(show, err);
}

int model_show(struct show *show, const struct model *model, const char *type, int layer, struct err *err)
{
    bool csv = show_form(show) == SHOW_CSV;
    const bool head = model_head(model) != NULL;
    const char *whole = head ? "head" : "model";
    if (type && strcmp(type, whole) && strcmp(type, "tensor"))
        return err_set(err, ERR_INPUT, "--type %.40s: no such type; a %s file has the types %s and tensor", type, whole, whole);
    int last = -1;
    for (int i = 0; i < model_tensor_count(model); i++)
        last = model_tensor_at(model, i)->layer > last ? model_tensor_at(model, i)->layer : last;
    if (layer > last)
        return last < 0 ? err_set(err, ERR_INPUT, "--layer %d: this %s has no layers; leave the option out", layer, whole)
                        : err_set(err, ERR_INPUT, "--layer %d: no such layer; this %s has the layers 0 to %d", layer, whole,
                                  last);
    if (type ? !strcmp(type, whole) : !csv && layer < 0)
        if ((head ? show_head : show_whole)(show, model, err))
            return -1;
    if (type && strcmp(type, "tensor"))
        return 0;
    for (int i = 0; i < model_tensor_count(model); i++) {
        const struct tensor *tensor = model_tensor_at(model, i);
        if ((layer < 0 || tensor->layer == layer) && show_tensor(show, tensor, err))
            return -1;
    }
    return 0;
}
