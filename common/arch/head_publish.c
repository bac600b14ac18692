/* Converts a head to the config.json that its authors' program reads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/arch/head.h"

const char *const head_program_words[] = {"none", "eagle", "speculators", "medusa", "hydra", "kangaroo", "jakiro", NULL};

static const char LAYER_IDS[] = "eagle_aux_hidden_state_layer_ids";

/* Returns the shortest decimal number that reads back as the same float. */
static json_t *float_json(float value)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        const float back = strtof(text, NULL);
        if (!memcmp(&back, &value, sizeof back))
            break;
    }
    return json_real(strtod(text, NULL));
}

/* ---- the layer ---- */

static int put_layer(json_t *config, const struct head_params *head, const struct hparams *s, struct err *err)
{
    const int inner = head->kind == HEAD_JAKIRO || head->kind == HEAD_JAKIRO_STAR ? s->expert_inner : s->dense_inner;
    int rc = json_object_set_new(config, "model_type", json_string("llama")) ||
             json_object_set_new(config, "hidden_act", json_string("silu")) ||
             json_object_set_new(config, "hidden_size", json_integer(s->hidden)) ||
             (inner && json_object_set_new(config, "intermediate_size", json_integer(inner))) ||
             json_object_set_new(config, "max_position_embeddings", json_integer(s->max_positions)) ||
             json_object_set_new(config, "num_attention_heads", json_integer(s->attention.heads)) ||
             json_object_set_new(config, "num_key_value_heads", json_integer(s->attention.kv_heads)) ||
             (s->attention.head_dim * s->attention.heads != s->hidden &&
              json_object_set_new(config, "head_dim", json_integer(s->attention.head_dim))) ||
             json_object_set_new(config, "num_hidden_layers", json_integer(1)) ||
             json_object_set_new(config, "rms_norm_eps", float_json(s->norm_epsilon)) ||
             json_object_set_new(config, "rope_theta", json_real(s->rope.theta)) ||
             json_object_set_new(config, "vocab_size", json_integer(s->vocab)) ||
             json_object_set_new(config, "tie_word_embeddings", json_false()) ||
             (s->attention.qkv_bias && json_object_set_new(config, "qkv_bias", json_true()));
    return rc ? err_memory(err) : 0;
}

static int check_layer(const struct hparams *s, struct err *err)
{
    if (s->layers && (s->rope.kind != ROPE_DEFAULT || s->rope.rotary != s->attention.head_dim))
        return err_set(err, ERR_INPUT, "scaled or partial RoPE cannot be exported");
    if (s->layers && s->layer[0].window)
        return err_set(err, ERR_INPUT, "sliding-window attention cannot be exported, because the published programs do not "
                       "support it");
    return 0;
}

/* ---- the kinds ---- */

/* Returns whether the head reads the states that EAGLE's own program reads by its rule. */
static bool by_rule(const struct head_params *head)
{
    const int layers = head->target.layers, before[] = {2, layers / 2, layers - 3};
    bool same = head->states == 3;
    for (int i = 0; i < 3 && same; i++)
        same = head->state[i] == before[i] - 1;
    return same;
}

static json_t *ids_of(const struct head_params *head, int first)
{
    json_t *ids = json_array();
    for (int i = 0; i < head->states; i++)
        json_array_append_new(ids, json_integer(head->state[i] + first));
    return ids;
}

static int publish_eagle3(json_t *config, const struct head_params *head, const struct hparams *s, struct text *note,
                          struct err *err)
{
    const char *other = head->states_norm || head->state_norms ? "normalises its states before it joins them"
                      : head->normed_residual ? "uses the normalised state as the residual"
                      : head->normed_output ? "feeds its normalised output back" : NULL;
    if (other)
        return err_set(err, ERR_INPUT, "this head %s, which EAGLE's program does not support; export it for speculators",
                       other);
    if (json_object_set_new(config, "draft_vocab_size", json_integer(head->draft_vocab)) ||
        (s->hidden != head->target.hidden &&
         json_object_set_new(config, "target_hidden_size", json_integer(head->target.hidden))))
        return err_memory(err);
    if (by_rule(head))
        return 0;
    if (json_object_set_new(config, "eagle_config", json_pack("{s:o, s:b}", LAYER_IDS, ids_of(head, 0), "use_aux_hidden_state",
                                                              1)))
        return err_memory(err);
    return text_printf(note, err, "EAGLE's own program reads the states that its rule names, whatever %s says; SpecForge and "
                       "SGLang read that\n", LAYER_IDS);
}

/* Returns the further keys that vLLM reads: how to draft, and for which model. */
static json_t *speculators_config(const struct head_params *head)
{
    return json_pack("{s:s, s:s, s:[{s:s, s:i, s:f, s:i}], s:{s:s, s:[]}}", "algorithm", "eagle3", "default_proposal_method",
                     "greedy", "proposal_methods", "proposal_type", "greedy", "speculative_tokens", 3, "accept_tolerance", 0.0,
                     "verifier_accept_k", 1, "verifier", "name_or_path", head->target.name, "architectures");
}

static int publish_speculators(json_t *config, const struct head_params *head, const struct hparams *s, struct err *err)
{
    json_t *layer = json_object();
    if (!layer || put_layer(layer, head, s, err)) {
        json_decref(layer);
        return -1;
    }
    const int rc = json_object_set_new(config, "architectures", json_pack("[s]", "Eagle3Speculator")) ||
                   json_object_set_new(config, "speculators_model_type", json_string("eagle3")) ||
                   json_object_set_new(config, "speculators_config", speculators_config(head)) ||
                   json_object_set_new(config, "draft_vocab_size", json_integer(head->draft_vocab)) ||
                   json_object_set_new(config, "target_hidden_size", json_integer(head->target.hidden)) ||
                   json_object_set_new(config, "norm_before_residual", json_boolean(head->normed_residual)) ||
                   (head->states_norm && json_object_set_new(config, "norm_before_fc", json_true())) ||
                   (head->state_norms && json_object_set_new(config, "fc_norm", json_true())) ||
                   (head->normed_output && json_object_set_new(config, "norm_output", json_true())) ||
                   json_object_set_new(config, LAYER_IDS, ids_of(head, 1));
    return json_object_set_new(config, "transformer_layer_config", layer) || rc ? err_memory(err) : 0;
}

static int publish_guesses(json_t *config, const struct head_params *head, const struct hparams *s, struct err *err)
{
    const bool medusa = head->kind == HEAD_MEDUSA;
    char key[2][32];
    snprintf(key[0], sizeof key[0], "%s_num_heads", head_kind_name(head->kind));
    snprintf(key[1], sizeof key[1], "%s_num_layers", head_kind_name(head->kind));
    if (json_object_set_new(config, key[0], json_integer(head->heads)) ||
        json_object_set_new(config, key[1], json_integer(head->blocks)) ||
        json_object_set_new(config, "base_model_name_or_path", json_string(head->target.name)) ||
        json_object_set_new(config, "hidden_size", json_integer(s->hidden)) ||
        json_object_set_new(config, "vocab_size", json_integer(s->vocab)) ||
        (!medusa && (json_object_set_new(config, "hydra_head_arch", json_string(head->prefix ? "prefix-mlp" : "mlp")) ||
                     json_object_set_new(config, "grounded_heads", json_true()) ||
                     json_object_set_new(config, "hidden_state_offset", json_integer(0)))))
        return err_memory(err);
    return head->prefix ? put_layer(config, head, s, err) : 0;
}

/* Writes branches that Jakiro's program lacks, under moekit's keys. */
static int publish_branches(json_t *config, const struct head_params *head, struct text *note, struct err *err)
{
    const char *second = head_second_name((enum head_second)head->second);
    if (head->second == HEAD_SECOND_CONTRAST && !head->second_next && !head->scaled)
        return 0;
    if ((head->second != HEAD_SECOND_CONTRAST && json_object_set_new(config, "second_branch", json_string(second))) ||
        (head->second_next && json_object_set_new(config, "second_ahead", json_integer(1))) ||
        (head->scaled && json_object_set_new(config, "scaled_branches", json_true())))
        return err_memory(err);
    return text_printf(note, err, "Jakiro's own program has no such branches, and would draft otherwise\n");
}

static int publish_joined(json_t *config, const struct head_params *head, const struct hparams *s, struct text *note,
                          struct err *err)
{
    const bool experts = head->kind != HEAD_EAGLE1;
    if (head->kind == HEAD_JAKIRO && s->expert_inner != s->hidden)
        return err_set(err, ERR_INPUT, "its experts have an inner width of %d, but Jakiro's program supports only the hidden "
                       "width, %d",
                       s->expert_inner, s->hidden);
    if (json_object_set_new(config, "bias", json_boolean(head->joint_bias)) ||
        (experts && (json_object_set_new(config, "num_local_experts", json_integer(s->router.experts)) ||
                     json_object_set_new(config, "num_experts_per_tok", json_integer(s->router.top_k)))))
        return err_memory(err);
    return experts ? publish_branches(config, head, note, err) : 0;
}

/* Notes settings that the program's code fixes and its config.json cannot change. */
static int note_fixed(const struct head_params *head, const struct hparams *s, enum head_program program, struct text *note,
                      struct err *err)
{
    enum { BASE = 10000, MEDUSA_HEADS = 5 };
    const bool unread = head->kind == HEAD_JAKIRO_STAR || head->kind == HEAD_KANGAROO || head->kind == HEAD_HYDRA;
    if (program == PROGRAM_SPECULATORS)
        return 0;
    if (s->layers && s->attention.head_dim * s->attention.heads != s->hidden &&
        text_printf(note, err, "its own program refuses heads of attention of %d numbers each, where %d of them have a width "
                    "of %d\n", s->attention.head_dim, s->attention.heads, s->hidden))
        return -1;
    if (s->layers && unread && (s->rope.theta < BASE || s->rope.theta > BASE) &&
        text_printf(note, err, "its own program turns positions with a base of %d, whatever rope_theta says, and would draft "
                    "otherwise\n", BASE))
        return -1;
    if (head->kind != HEAD_MEDUSA || head->heads == MEDUSA_HEADS)
        return 0;
    return text_printf(note, err, "Medusa's own program makes %d heads, whatever config.json says; here are %d\n",
                       MEDUSA_HEADS, head->heads);
}

static const unsigned HOLDS[PROGRAMS] = {       /* kinds, as bits */
    [PROGRAM_EAGLE] = 1u << HEAD_EAGLE1 | 1u << HEAD_EAGLE3, [PROGRAM_SPECULATORS] = 1u << HEAD_EAGLE3,
    [PROGRAM_MEDUSA] = 1u << HEAD_MEDUSA, [PROGRAM_HYDRA] = 1u << HEAD_HYDRA, [PROGRAM_KANGAROO] = 1u << HEAD_KANGAROO,
    [PROGRAM_JAKIRO] = 1u << HEAD_JAKIRO | 1u << HEAD_JAKIRO_STAR};

static int refuse_program(const struct head_params *head, enum head_program program, struct err *err)
{
    int other = 0;
    while (!(HOLDS[other] >> head->kind & 1))
        other++;
    return err_set(err, ERR_INPUT, "is a %s head, which the format %s does not support; export it for %s%s",
                   head_kind_name(head->kind), head_program_words[program], head_program_words[other],
                   head->kind == HEAD_EAGLE3 ? " or speculators" : "");
}

int head_publish(const struct naming **naming, json_t **config, const struct head_params *head, const struct hparams *shape,
                 enum head_program program, struct text *note, struct err *err)
{
    json_t *made = NULL;
    int rc = -1;
    if (!(HOLDS[program] >> head->kind & 1))
        return refuse_program(head, program, err);
    if (check_layer(shape, err))
        return -1;
    if (note_fixed(head, shape, program, note, err))
        return -1;
    if (!(made = json_object()))
        return err_memory(err);
    if (head->kind == HEAD_MEDUSA || head->kind == HEAD_HYDRA) {
        rc = publish_guesses(made, head, shape, err);
    } else if (program == PROGRAM_SPECULATORS) {
        rc = publish_speculators(made, head, shape, err);
    } else {
        rc = json_object_set_new(made, "architectures", json_pack("[s]", "LlamaForCausalLM")) ? err_memory(err)
                                                                                            : put_layer(made, head, shape, err);
        rc = rc ? rc : head->kind == HEAD_EAGLE3 ? publish_eagle3(made, head, shape, note, err)
           : head->kind != HEAD_KANGAROO ? publish_joined(made, head, shape, note, err)
           : json_object_set_new(made, "exit_layer", json_integer(head->state[0] + 1)) ? err_memory(err) : 0;
    }
    if (rc) {
        json_decref(made);
        return -1;
    }
    *naming = head_naming(head, program == PROGRAM_SPECULATORS);
    *config = made;
    return 0;
}
