#include "common/arch/head.h"

#include "common/base/mem.h"

static const int64_t *no_dims(const void *context, const char *name, int *count)
{
    (void)context, (void)name, (void)count;
    return NULL;
}

static json_t *usual_config(const struct model *target, struct err *err)
{
    enum { WORDS = 32000, UNIT = 32 };
    const struct hparams *s = model_hparams(target);
    const int inner = (s->hidden * 11 / 4 + UNIT - 1) / UNIT * UNIT;
    const int heads = s->hidden % s->attention.heads ? 1 : s->attention.heads;
    json_t *config = json_pack("{s:i, s:i, s:i, s:i, s:f, s:f, s:b, s:i, s:i, s:i, s:i, s:i, s:i}", "hidden_size", s->hidden,
                               "intermediate_size", inner, "num_attention_heads", heads, "num_key_value_heads", heads,
                               "rms_norm_eps", (double)s->norm_epsilon, "rope_theta", s->rope.theta, "bias", 0,
                               "draft_vocab_size", s->vocab < WORDS ? s->vocab : WORDS, "medusa_num_heads", 4,
                               "medusa_num_layers", 1, "hydra_num_heads", 4, "hydra_num_layers", 1, "exit_layer",
                               s->layers > 2 ? 2 : 1);
    if (!config)
        err_memory(err);
    return config;
}

/* Spreads the draft vocabulary evenly over the target's vocabulary. */
static int spread_words(struct head_params *head, struct err *err)
{
    if (head->draft_vocab == head->target.vocab)
        return 0;
    head->target_id = mem_alloc((size_t)head->draft_vocab, sizeof *head->target_id, err);
    for (int i = 0; head->target_id && i < head->draft_vocab; i++)
        head->target_id[i] = (int32_t)((int64_t)i * head->target.vocab / head->draft_vocab);
    return head->target_id ? 0 : -1;
}

int head_invent(struct head_reading *out, enum head_kind kind, const json_t *config, const struct model *target,
                struct err *err)
{
    json_t *usual = config ? NULL : usual_config(target, err);
    const struct head_request request = {.kind = kind, .config = config ? config : usual, .tensors = {no_dims, NULL},
                                         .target = target};
    int rc = !request.config || head_read(out, &request, err) || spread_words(&out->head, err) ||
             head_check(&out->head, &out->shape, err) ? -1 : 0;
    json_decref(usual);
    return rc;
}
