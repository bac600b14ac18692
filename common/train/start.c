#include "common/train/start.h"

#include <stdlib.h>

#include "common/base/json.h"
#include "common/base/mem.h"

enum { WORDS = 32000 };

const struct start_options start_defaults = {
    .kind = HEAD_EAGLE1, .theta = 10000, .epsilon = 1e-6, .exit_layer = 2, .guesses = 4, .blocks = 1, .experts = 2, .used = 2,
    .second = HEAD_SECOND_CONTRAST, .ahead = 2};

/* Returns the total inner width that a token passes in a layer of the target. */
static int usual_inner(const struct hparams *s)
{
    const int experts = s->router.top_k * s->expert_inner + s->shared_inner;
    return experts > s->dense_inner ? experts : s->dense_inner;
}

static int put(json_t *config, const char *key, json_t *value, struct err *err)
{
    return value && json_object_set_new(config, key, value) == 0 ? 0 : err_memory(err);
}

static int put_layers(json_t *config, const struct start_options *o, struct err *err)
{
    json_t *eagle, *ids;
    if (!o->layer_count)
        return 0;
    if (!(eagle = json_object()) || !(ids = json_array())) {
        json_decref(eagle);
        return err_memory(err);
    }
    for (int i = 0; i < o->layer_count; i++)
        if (json_array_append_new(ids, json_integer(o->layers[i]))) {
            json_decref(eagle);
            json_decref(ids);
            return err_memory(err);
        }
    int rc = put(eagle, "eagle_aux_hidden_state_layer_ids", ids, err);
    return rc ? (json_decref(eagle), -1) : put(config, "eagle_config", eagle, err);
}

/* Returns a config.json like those of the original programs. */
static json_t *config_of(const struct start_options *o, const struct model *target, struct err *err)
{
    const struct hparams *s = model_hparams(target);
    const int heads = o->heads ? o->heads : s->attention.heads;
    const int words = o->draft_vocab ? o->draft_vocab : s->vocab < WORDS ? s->vocab : WORDS;
    json_t *config = json_object();
    if (!config) {
        err_memory(err);
        return NULL;
    }
    if (put(config, "hidden_size", json_integer(s->hidden), err) ||
        put(config, "intermediate_size", json_integer(o->inner ? o->inner : usual_inner(s)), err) ||
        put(config, "num_attention_heads", json_integer(heads), err) ||
        put(config, "num_key_value_heads", json_integer(o->kv_heads ? o->kv_heads : heads), err) ||
        put(config, "rms_norm_eps", json_real(o->epsilon), err) || put(config, "rope_theta", json_real(o->theta), err) ||
        put(config, "bias", json_boolean(!o->no_bias), err) ||
        (o->kind == HEAD_EAGLE3 && put(config, "draft_vocab_size", json_integer(words), err)) ||
        put(config, "exit_layer", json_integer(o->exit_layer), err) ||
        put(config, "medusa_num_heads", json_integer(o->guesses), err) ||
        put(config, "medusa_num_layers", json_integer(o->blocks), err) ||
        put(config, "hydra_num_heads", json_integer(o->guesses), err) ||
        put(config, "hydra_num_layers", json_integer(o->blocks), err) ||
        put(config, "hydra_head_arch", json_string(o->prefix ? "prefix-mlp" : "mlp"), err) ||
        put(config, "num_local_experts", json_integer(o->experts), err) ||
        put(config, "num_experts_per_tok", json_integer(o->used), err) ||
        put(config, "second_branch", json_string(head_second_name((enum head_second)o->second)), err) ||
        put(config, "second_ahead", json_integer(o->ahead), err) ||
        put(config, "scaled_branches", json_boolean(o->scaled), err) || put_layers(config, o, err)) {
        json_decref(config);
        return NULL;
    }
    return config;
}

struct counted { int64_t count; int32_t id; };

/* Compares by count, descending, then by id, ascending. */
static int compare_counts(const void *a, const void *b)
{
    const struct counted *x = a, *y = b;
    return x->count != y->count ? (x->count < y->count) - (x->count > y->count) : (x->id > y->id) - (x->id < y->id);
}

static int compare_ids(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

int start_words(struct head_params *head, const int64_t *count, struct err *err)
{
    const size_t vocab = (size_t)head->target.vocab;
    struct counted *counted;
    if (!head->target_id)
        return 0;
    if (!(counted = mem_alloc(vocab, sizeof *counted, err)))
        return -1;
    for (size_t id = 0; id < vocab; id++)
        counted[id] = (struct counted){count[id], (int32_t)id};
    qsort(counted, vocab, sizeof *counted, compare_counts);
    for (int i = 0; i < head->draft_vocab; i++)
        head->target_id[i] = counted[i].id;
    qsort(head->target_id, (size_t)head->draft_vocab, sizeof *head->target_id, compare_ids);
    mem_free(&counted);
    return 0;
}

int start_head(struct head_reading *out, const struct start_options *options, const struct model *target, struct err *err)
{
    json_t *config = config_of(options, target, err);
    int rc = !config || head_invent(out, options->kind, config, target, err) ? -1 : 0;
    json_decref(config);
    return rc;
}
