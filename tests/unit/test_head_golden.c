/* Networks of draft heads compared with an independent program: all hidden states and logits of a given text, and greedy
 * chains, whose rows continue from the head's own output. Each likely mistake that can be made in a description or an
 * operation is detected. A head's ranking of the likeliest tokens agrees with its logits. */
#include "tests/unit/heads.h"

#include "common/engine/internal.h"
#include "common/head/internal.h"

enum { CHAIN = 5 };

/* A head running on its target's states, and the members that a mistake changes. */
struct work {
    const struct heads_rig *rig;
    struct head *head;
    int shift;                          /* offset of the tokens relative to the states: 1; < 0: the head reads no tokens */
    int best;                           /* likeliest tokens to return instead of logits */
    struct sequence *sequence;
    struct buffer state;                /* states of the text: [states][tokens][hidden] */
};

/* Lets the target read the text in one piece. */
static void read_states(struct work *work, const struct heads_text *text)
{
    const struct head_params *params = head_description(work->head);
    struct feature_request wanted = {.count = params->states};
    struct forward forward;
    struct err err = {0};
    for (int i = 0; i < wanted.count; i++)
        wanted.layer[i] = params->state[i];
    const struct batch options = {.features = &wanted};
    must(sequence_truncate(work->sequence, 0, &err), &err);
    must(engine_prompt(work->rig->engine, work->sequence, text->token, text->tokens, &options, NULL, NULL, &forward,
                             &err), &err);
    assert_int_equal(forward.rows, text->tokens);
    work->state = forward.features;
}

/* Runs rows first .. first + rows - 1 of the text and commits them; rows in `wanted` return logits. */
static void run_true(struct work *work, const struct heads_text *text, int first, int rows, const int32_t *wanted, int count,
                     int branches, struct head_forward *out)
{
    int32_t token[HEADS_TOKENS], state[HEADS_TOKENS], node[HEADS_TOKENS];
    struct err err = {0};
    for (int i = 0; i < rows; i++) {
        token[i] = work->shift < 0 ? 0 : text->token[first + i + work->shift];
        state[i] = first + i;
        node[i] = i;
    }
    const struct head_batch batch = {.rows = rows, .token = work->shift < 0 ? NULL : token, .state = work->state,
                                     .state_rows = text->tokens, .state_row = state, .logit_row = wanted, .logit_rows = count,
                                     .branches = branches, .best = work->best};
    must(head_run(work->head, &batch, out, &err), &err);
    must(head_commit(work->head, node, rows, &err), &err);
}

static void norm_rows(const struct head *head, float *values, int rows)
{
    const int hidden = head->shape->hidden;
    struct err err = {0};
    const float *weight = model_data(head->setup.model, model_tensor(head->setup.model, &err, "final_norm"));
    for (int row = 0; row < rows; row++, values += hidden) {
        double sum = 0;
        for (int i = 0; i < hidden; i++)
            sum += (double)values[i] * (double)values[i];
        for (int i = 0; i < hidden; i++)
            values[i] = (float)((double)weight[i] * (double)values[i] / sqrt(sum / hidden + (double)head->shape->norm_epsilon));
    }
}

/* Returns the head's output of each pending row; a head on early states gets its final norm here. */
static float *made_by(const struct head *head, int rows)
{
    const size_t bytes = (size_t)rows * (size_t)head->shape->hidden * sizeof(float);
    float *out = malloc(bytes);
    struct err err = {0};
    queue_download(head->device, out, buffer_part(head->made, (uint64_t)head->shape->hidden * sizeof(float), bytes), bytes);
    must(queue_wait(head->device, &err), &err);
    if (head->params->kind == HEAD_KANGAROO)
        norm_rows(head, out, rows);
    return out;
}

struct distance { double states, logits, log_probabilities; int chains; };    /* largest, states relative; chains other */

/* The goldens' names of a head's branches; decoding continues from the first. */
static const char *const *branches_of(const struct head *head)
{
    static const char *const one[] = {"out"}, *const jakiro[] = {"moe", "const"}, *const star[] = {"left", "right"};
    return head->params->kind == HEAD_JAKIRO ? jakiro : head->params->kind == HEAD_JAKIRO_STAR ? star : one;
}

static float *golden_logits(const struct heads_golden *golden, const struct head *head, int branch, int *rows)
{
    char name[64] = "logits_every4";
    if (head_branches(head) > 1)
        snprintf(name, sizeof name, "logits_%s_every4", branches_of(head)[branch]);
    return heads_tensor(golden, name, rows, head->params->draft_vocab);
}

/* Compares the first text, read in two pieces of different lengths. */
static void compare_rows(struct work *work, const char *name, struct distance *out)
{
    const struct heads_text *text = &work->rig->text[0];
    const int hidden = work->head->shape->hidden, vocab = work->head->params->draft_vocab;
    char path[200];
    int rows, logit_rows;
    snprintf(path, sizeof path, "%s/golden.safetensors", name);
    struct heads_golden golden = heads_golden_open(heads_path("golden/heads", path));
    const int branches = head_branches(work->head);
    float *states = heads_tensor(&golden, branches_of(work->head)[0], &rows, hidden), *logits[HEAD_BRANCHES_MAX];
    for (int b = 0; b < branches; b++)
        logits[b] = golden_logits(&golden, work->head, b, &logit_rows);
    struct err err = {0};
    must(head_begin(work->head, text->tokens, &err), &err);
    read_states(work, text);
    for (int first = 0, count; first < rows; first += count) {
        int32_t wanted[HEADS_TOKENS];
        struct head_forward forward;
        int asked = 0;
        count = first ? rows - first : 21;
        for (int i = 0; i < count; i++)
            if ((first + i) % 4 == 0)
                wanted[asked++] = i;
        run_true(work, text, first, count, wanted, asked, branches, &forward);
        assert_int_equal(forward.vocab, vocab);
        for (int i = 0; i < asked * branches; i++) {
            const int b = i / asked, at = i % asked;
            const float *here = forward.logits[b] + (size_t)at * (size_t)vocab;
            const float *there = logits[b] + (size_t)((first + wanted[at]) / 4) * (size_t)vocab;
            out->logits = fmax(out->logits, heads_difference(here, there, (size_t)vocab));
        }
        float *made = made_by(work->head, count);
        const size_t at = (size_t)first * (size_t)hidden, values = (size_t)count * (size_t)hidden;
        out->states = fmax(out->states, heads_difference(made, states + at, values));
        free(made);
    }
    out->states /= heads_largest(states, (size_t)rows * (size_t)hidden);
    free(states);
    for (int b = 0; b < branches; b++)
        free(logits[b]);
    heads_golden_close(&golden);
}

/* Takes the chain's last token from the contrast of the previous forward: Jakiro's last two tokens come from one forward. */
static void compare_contrast(const struct head_forward *forward, const json_t *chain, int at, struct distance *out)
{
    const json_t *tokens = json_object_get(chain, "parallel_tokens"), *said = json_object_get(chain, "parallel_logp");
    double log_probability;
    if (!forward->logits[1] || at + 2 != (int)json_array_size(tokens))
        return;
    const int id = heads_best(forward->logits[1], forward->vocab, &log_probability);
    out->log_probabilities = fmax(out->log_probabilities,
                                  fabs(log_probability - json_number_value(json_array_get(said, (size_t)at + 1))));
    out->chains += id != (int)json_integer_value(json_array_get(tokens, (size_t)at + 1));
}

/* Drafts a greedy chain: reads the text up to its length, then the head's own tokens. */
static void compare_chain(struct work *work, const json_t *chain, struct distance *out)
{
    const struct heads_text *text = heads_find_text(work->rig, json_string_value(json_object_get(chain, "text")));
    const int length = (int)json_integer_value(json_object_get(chain, "length"));
    const struct head_params *params = work->head->params;
    int32_t token[CHAIN];
    struct head_forward forward;
    struct err err = {0};
    const int tokens = heads_ints(json_object_get(chain, "tokens"), token, CHAIN);
    const int32_t last = length - 2;
    const int branches = params->kind == HEAD_JAKIRO ? 2 : 1;
    must(head_begin(work->head, text->tokens, &err), &err);
    run_true(work, text, 0, length - 1, &last, 1, branches, &forward);
    for (int at = 0; at < tokens; at++) {
        double log_probability;
        int32_t id = heads_best(forward.logits[0], forward.vocab, &log_probability);
        id = params->target_id ? params->target_id[id] : id;
        const double said = json_number_value(json_array_get(json_object_get(chain, "logp"), (size_t)at));
        compare_contrast(&forward, chain, at, out);
        out->log_probabilities = fmax(out->log_probabilities, fabs(log_probability - said));
        if (id != token[at]) {
            out->chains++;
            return;
        }
        const struct head_batch batch = {.rows = 1, .token = &id, .parent = at ? NULL : (const int32_t[]){-1}, .logit_rows = 1,
                                         .branches = branches};
        if (at + 1 < tokens)
            must(head_run(work->head, &batch, &forward, &err), &err);
    }
}

static void compare_chains(struct work *work, const char *name, int max, struct distance *out)
{
    char path[200], id[32] = "";
    snprintf(path, sizeof path, "%s/golden.json", name);
    json_t *golden = heads_json(heads_path("golden/heads", path)), *chains = json_object_get(golden, "chain");
    for (size_t i = 0; i < json_array_size(chains) && i < (size_t)max; i++) {
        const json_t *chain = json_array_get(chains, i);
        const char *text = json_string_value(json_object_get(chain, "text"));
        if (strcmp(id, text))
            read_states(work, heads_find_text(work->rig, text));
        snprintf(id, sizeof id, "%s", text);
        compare_chain(work, chain, out);
    }
    json_decref(golden);
}

/* A mistake: changes the description before the head is opened, or the open head. */
struct mistake {
    const char *name, *kind;            /* a golden */
    void (*describe)(struct head_params *params, struct hparams *shape);
    void (*alter)(struct work *work);
};

static struct distance measure(const char *name, const struct mistake *mistake, int chains)
{
    struct work work = {.rig = &rig, .shift = 1};
    struct distance out = {0, 0, 0, 0};
    struct err err = {0};
    struct model *model = heads_convert(&rig, heads_published(name), "head.moe");
    if (mistake && mistake->describe)
        mistake->describe((struct head_params *)(uintptr_t)model_head(model),
                          (struct hparams *)(uintptr_t)model_hparams(model));
    const struct head_setup setup = {.model = model, .target = rig.engine, .max_rows = 96, .max_logit_rows = 32};
    must(head_open(&work.head, &setup, &err), &err);
    must(sequence_open(&work.sequence, rig.engine, HEADS_TOKENS, &err), &err);
    if (model_head(model)->kind == HEAD_KANGAROO)
        work.shift = -HEADS_TOKENS;
    if (mistake && mistake->alter)
        mistake->alter(&work);
    compare_rows(&work, name, &out);
    if (work.shift >= 0)                /* drafts of such heads need early states of drafted tokens */
        compare_chains(&work, name, chains, &out);
    sequence_close(&work.sequence);
    head_close(&work.head);
    model_close(&model);
    return out;
}

static void networks_compute_what_was_published(void **state)
{
    static const char *const names[] = {"eagle1", "eagle1_nobias", "eagle3", "eagle3_default", "kangaroo", "jakiro",
                                        "jakiro_star"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct distance off = measure(names[i], NULL, 1000);
        if (!(off.states < 1e-4 && off.logits < 1e-3 && off.log_probabilities < 1e-3) || off.chains)
            fail_msg("%s: states off by %g of the largest, logits by %g, log-probabilities by %g, %d chains are others",
                     names[i], off.states, off.logits, off.log_probabilities, off.chains);
    }
}

static void prenorm_state(struct head_params *p, struct hparams *s) { (void)s; p->state[0] = p->target.layers - 1; }
static void default_epsilon(struct head_params *p, struct hparams *s) { (void)p; s->norm_epsilon = 1e-6f; }
static void default_theta(struct head_params *p, struct hparams *s) { (void)p; s->rope.theta = 10000; }
static void theta_of_target(struct head_params *p, struct hparams *s) { (void)p; s->rope.theta = 1e6; }
static void normed_residual(struct head_params *p, struct hparams *s) { (void)s; p->normed_residual = true; }
static void normed_recycling(struct head_params *p, struct hparams *s) { (void)s; p->normed_output = true; }

static void later_layers(struct head_params *p, struct hparams *s)
{
    (void)s;
    for (int i = 0; i < p->states; i++)
        p->state[i]++;
}

static void earlier_layers(struct head_params *p, struct hparams *s)
{
    (void)s;
    for (int i = 0; i < p->states; i++)
        p->state[i] -= p->state[i] > 0;
}

static void default_layers(struct head_params *p, struct hparams *s)
{
    (void)s;
    p->state[0] = 1;
    p->state[1] = p->state[2] = 2;
}

static void reversed_layers(struct head_params *p, struct hparams *s)
{
    const int first = p->state[0];
    (void)s;
    p->state[0] = p->state[2];
    p->state[2] = first;
}

static void final_state(struct head_params *p, struct hparams *s) { (void)s; p->state[2] = p->target.layers; }

/* Ids of the draft vocabulary used as the target's, and distances between the two. */
static void words_of_draft(struct head_params *p, struct hparams *s)
{
    (void)s;
    for (int i = 0; i < p->draft_vocab; i++)
        p->target_id[i] = i;
}

static void words_by_distance(struct head_params *p, struct hparams *s)
{
    (void)s;
    for (int i = 0; i < p->draft_vocab; i++)
        p->target_id[i] -= i;
}

static void same_token(struct work *work) { work->shift = 0; }
static void no_bias(struct work *work) { work->head->weights.joint_bias = (struct buffer){0, 0}; }
static void norm_before_logits(struct work *work) { work->head->weights.final_norm = work->rig->engine->weights->final_norm; }
static void no_final_norm(struct work *work) { work->head->weights.final_norm = (struct buffer){0, 0}; }

/* Mistakes in the inputs of the head's layer: the head's class is a copy with another beginning. */
static void enter_by(struct work *work, int (*enter)(struct head_pass *pass, struct err *err))
{
    static struct head_class class;
    class = *work->head->class;
    class.enter = enter;
    work->head->class = &class;
}

/* Attention reads x instead of its norm. */
static int enter_alone(struct head_pass *pass, struct err *err)
{
    pass->reads = pass->head->space.x;
    return head_kangaroo.enter(pass, err);
}

/* x is replaced by its norm. */
static int enter_normed(struct head_pass *pass, struct err *err)
{
    struct head *head = pass->head;
    const int hidden = head->shape->hidden;
    const int rc = head_kangaroo.enter(pass, err);
    head_norm(pass, head->space.x, hidden, head->weights.layer.attention_norm, head->space.x, hidden, hidden);
    pass->reads = head->space.x;
    return rc;
}

/* A norm that EAGLE-1 does not have, with the weights of the other one. */
static int enter_pair_normed(struct head_pass *pass, struct err *err)
{
    struct head *head = pass->head;
    const int hidden = head->shape->hidden, rc = head_enter_pair(pass, err);
    head_norm(pass, head->space.x, hidden, head->weights.layer.ffn_norm, head->space.normed, hidden, hidden);
    pass->reads = head->space.normed;
    return rc;
}

static void no_input_norm(struct work *work) { enter_by(work, enter_alone); }
static void normed_state(struct work *work) { enter_by(work, enter_normed); }
static void input_norm(struct work *work) { enter_by(work, enter_pair_normed); }

static void norms_swapped(struct work *work)
{
    struct head_weights *w = &work->head->weights;
    const struct buffer first = w->embed_norm;
    w->embed_norm = w->hidden_norm;
    w->hidden_norm = first;
}

/* Mistakes in an operation: the operations of the head and its layer are replaced by a changed copy. */
static struct device_ops other_ops;
static const struct device_ops *real_ops;
static const struct head *wrong_head;

static void take_ops(struct work *work)
{
    wrong_head = work->head;
    real_ops = work->head->ops;
    other_ops = *real_ops;
    other_ops.qkv = NULL;               /* rotations are an operation of their own */
    work->head->ops = work->head->space.ops = &other_ops;
}

static float *floats(struct buffer buffer) { return (float *)(uintptr_t)buffer.address; }

static struct buffer moved(struct buffer buffer, int by)
{
    buffer.address += (uint64_t)(int64_t)(by * (int)sizeof(float));
    return buffer;
}

/* Exchanges the rows of contrast and sum. */
static void weights_of_other_rows(struct queue *queue, const struct blend_weights_args *args)
{
    struct blend_weights_args wrong = *args;
    wrong.logits = moved(args->logits, args->rule == BLEND_CONTRAST ? -2 : 2);
    real_ops->blend_weights(queue, &wrong);
}

static void weights_of_one_softmax(struct queue *queue, const struct blend_weights_args *args)
{
    const int first = args->rule == BLEND_CONTRAST ? 2 : 0;
    (void)queue;
    for (int r = 0; r < args->rows; r++) {
        const float *logit = floats(args->logits) + r * args->logits_stride - first;
        const double all = exp((double)logit[0]) + exp((double)logit[1]) + exp((double)logit[2]) + exp((double)logit[3]);
        const bool second = logit[first + 1] >= logit[first];
        for (int s = 0; s < 2; s++) {
            const float weight = (float)(exp((double)logit[first + s]) / all);
            floats(args->weight)[2 * r + s] = first && s != second ? -weight : weight;
        }
    }
}

/* Chooses the expert of the contrast's positive term by the rows of the sum. */
static void order_of_the_sum(struct queue *queue, const struct blend_weights_args *args)
{
    real_ops->blend_weights(queue, args);
    for (int r = 0; args->rule == BLEND_CONTRAST && r < args->rows; r++) {
        const float *logit = floats(args->logits) + r * args->logits_stride - 2;
        float *weight = floats(args->weight) + 2 * r;
        const int leads = logit[1] >= logit[0];
        weight[leads] = fabsf(weight[leads]);
        weight[1 - leads] = -fabsf(weight[1 - leads]);
    }
}

static enum blend_rule rule_from, rule_to;

/* Computes blend weights by rule_to instead of rule_from. */
static void weights_of_other_rule(struct queue *queue, const struct blend_weights_args *args)
{
    struct blend_weights_args wrong = *args;
    wrong.rule = args->rule == rule_from ? rule_to : args->rule;
    real_ops->blend_weights(queue, &wrong);
}

/* Expert 0 is always left, whatever the router chooses. */
static void weights_in_order(struct queue *queue, const struct blend_weights_args *args)
{
    real_ops->blend_weights(queue, args);
    for (int i = 0; i < 2 * args->rows; i++)
        floats(args->weight)[i] = (args->rule == BLEND_LARGEST) == (i % 2 == 0);
}

/* Multiplies the weights of left and right by their scores. */
static void weights_scored(struct queue *queue, const struct blend_weights_args *args)
{
    struct blend_weights_args softmax = *args;
    float kept[2 * HEADS_TOKENS];
    real_ops->blend_weights(queue, args);
    memcpy(kept, floats(args->weight), 2 * (size_t)args->rows * sizeof *kept);
    softmax.rule = BLEND_SOFTMAX;
    real_ops->blend_weights(queue, &softmax);
    for (int i = 0; i < 2 * args->rows; i++)
        floats(args->weight)[i] *= kept[i];
}

/* Drops x from the contrast, which is the blend from x into x. */
static void blend_without_x(struct queue *queue, const struct blend_args *args)
{
    if (args->in.address == args->out.address)
        memset(floats(args->in), 0, (size_t)args->rows * (size_t)args->width * sizeof(float));
    real_ops->blend(queue, args);
}

static void activate_by_silu(struct queue *queue, const struct activate_args *args)
{
    struct activate_args wrong = *args;
    wrong.activation = ACTIVATION_SILU;
    real_ops->activate(queue, &wrong);
}

static void activate_by_tanh(struct queue *queue, const struct activate_args *args)
{
    (void)queue;
    for (int i = 0; i < args->rows * args->width; i++) {
        const double x = (double)floats(args->in)[i];
        floats(args->out)[i] = (float)(0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))));
    }
}

/* Routes by u instead of its norm. */
static void route_before_norm(struct queue *queue, const struct linear_args *args)
{
    struct linear_args wrong = *args;
    if (args->weight.address == wrong_head->weights.layer.router.data.address)
        wrong.in = wrong_head->space.x;
    real_ops->linear(queue, &wrong);
}

/* Applies SiLU to the output of the first product, bias included. */
static void join_and_activate(struct queue *queue, const struct linear_args *args)
{
    real_ops->linear(queue, args);
    if (args->weight.address == wrong_head->weights.joint.data.address)
        real_ops->activate(queue, &(struct activate_args){
            .in = args->out, .out = args->out, .activation = ACTIVATION_SILU, .rows = args->rows, .width = args->outputs,
            .in_stride = args->out_stride, .out_stride = args->out_stride});
}

/* Joins [f; E] instead of [E; f]. */
static void join_state_first(struct queue *queue, const struct linear_args *args)
{
    const int half = args->inputs / 2;
    for (int r = 0; args->weight.address == wrong_head->weights.joint.data.address && r < args->rows; r++)
        for (int i = 0; i < half; i++) {
            float *at = floats(args->in) + r * args->in_stride + i, first = at[0];
            at[0] = at[half];
            at[half] = first;
        }
    real_ops->linear(queue, args);
}

/* Leaves the embedding without its norm. */
static void norm_but_embedding(struct queue *queue, const struct norm_args *args)
{
    if (args->weight.address != wrong_head->weights.embed_norm.address) {
        real_ops->norm(queue, args);
        return;
    }
    for (int r = 0; r < args->rows; r++)
        memcpy(floats(args->out) + r * args->out_stride, floats(args->in) + r * args->in_stride,
               (size_t)args->width * sizeof(float));
}

static void rotate_nothing(struct queue *queue, const struct rope_args *args) { (void)queue, (void)args; }

/* Rotates drafted rows, which come one by one, one position too far, or all by the first one's position. */
static bool fixed_position;

static void rotate_drafted(struct queue *queue, const struct rope_args *args)
{
    static int32_t first;
    struct rope_args wrong = *args;
    const int32_t here = *(const int32_t *)(uintptr_t)args->position.address;
    int32_t position = here + 1;
    if (args->rows > 1)
        first = here + args->rows;
    if (fixed_position)
        position = first;
    if (args->rows == 1)
        wrong.position = (struct buffer){(uint64_t)(uintptr_t)&position, sizeof position};
    real_ops->rope(queue, &wrong);
}

/* Attends to the first two KV heads (a cache stores heads one after the other), each for three query heads. */
static void attend_to_two(struct queue *queue, const struct attention_args *args)
{
    struct attention_args wrong = *args;
    wrong.kv_heads = 2;
    real_ops->attention(queue, &wrong);
}

static void router_unnormed(struct work *w) { take_ops(w); other_ops.linear = route_before_norm; }
static void act_after_fc(struct work *w) { take_ops(w); other_ops.linear = join_and_activate; }
static void feature_first(struct work *w) { take_ops(w); other_ops.linear = join_state_first; }
static void embedding_not_normed(struct work *w) { take_ops(w); other_ops.norm = norm_but_embedding; }
static void no_rope(struct work *w) { take_ops(w); other_ops.rope = rotate_nothing; }
static void kv_heads_of_target(struct work *w) { take_ops(w); other_ops.attention = attend_to_two; }

static void other_position(struct work *work, bool fixed)
{
    take_ops(work);
    fixed_position = fixed;
    other_ops.rope = rotate_drafted;
}

static void one_position_on(struct work *w) { other_position(w, false); }
static void one_position(struct work *w) { other_position(w, true); }
static void rows_swapped(struct work *w) { take_ops(w); other_ops.blend_weights = weights_of_other_rows; }
static void one_softmax(struct work *w) { take_ops(w); other_ops.blend_weights = weights_of_one_softmax; }
static void order_of_moe(struct work *w) { take_ops(w); other_ops.blend_weights = order_of_the_sum; }
static void order_fixed(struct work *w) { take_ops(w); other_ops.blend_weights = weights_in_order; }
static void weighted(struct work *w) { take_ops(w); other_ops.blend_weights = weights_scored; }
static void no_residual(struct work *w) { take_ops(w); other_ops.blend = blend_without_x; }
static void silu(struct work *w) { take_ops(w); other_ops.activate = activate_by_silu; }
static void tanh_gelu(struct work *w) { take_ops(w); other_ops.activate = activate_by_tanh; }

static void other_rule(struct work *work, enum blend_rule from, enum blend_rule to)
{
    take_ops(work);
    rule_from = from;
    rule_to = to;
    other_ops.blend_weights = weights_of_other_rule;
}

static void plus(struct work *w) { other_rule(w, BLEND_CONTRAST, BLEND_SOFTMAX); }
static void larger_alone(struct work *w) { other_rule(w, BLEND_SOFTMAX, BLEND_LARGEST); }
static void next_is_sum(struct work *w) { other_rule(w, BLEND_LARGEST, BLEND_SOFTMAX); }

static const struct mistake MISTAKES[] = {
    {"the state before the final norm", "eagle1", prenorm_state, NULL}, {"an epsilon of 1e-6", "eagle1", default_epsilon, NULL},
    {"the token that goes with the state", "eagle1", NULL, same_token}, {"no bias", "eagle1", NULL, no_bias},
    {"the target's final norm", "eagle1", NULL, norm_before_logits}, {"theta 1e6", "eagle1", theta_of_target, NULL},
    {"theta 10000", "eagle1_nobias", default_theta, NULL}, {"theta 10000", "eagle3", default_theta, NULL},
    {"theta 1e6", "eagle3_default", theta_of_target, NULL}, {"an epsilon of 1e-6", "eagle3", default_epsilon, NULL},
    {"an epsilon of 1e-6", "eagle3_default", default_epsilon, NULL},
    {"the token that goes with the state", "eagle3", NULL, same_token},
    {"the normed state as residual", "eagle3", normed_residual, NULL}, {"norms swapped", "eagle3", NULL, norms_swapped},
    {"layers one too late", "eagle3", later_layers, NULL}, {"layers one too early", "eagle3", earlier_layers, NULL},
    {"layers by default", "eagle3", default_layers, NULL}, {"layers reversed", "eagle3", reversed_layers, NULL},
    {"the final state for the third", "eagle3", final_state, NULL}, {"no norm before logits", "eagle3", NULL, no_final_norm},
    {"layers one too late", "eagle3_default", later_layers, NULL},
    {"the layer after", "kangaroo", later_layers, NULL}, {"the layer before", "kangaroo", earlier_layers, NULL},
    {"an epsilon of 1e-6", "kangaroo", default_epsilon, NULL}, {"theta 1e6", "kangaroo", theta_of_target, NULL},
    {"no norm before logits", "kangaroo", NULL, no_final_norm}, {"no norm before attention", "kangaroo", NULL, no_input_norm},
    {"what the norm makes goes on", "eagle3", normed_recycling, NULL},
    {"the state before the final norm", "jakiro", prenorm_state, NULL}, {"no bias", "jakiro", NULL, no_bias},
    {"theta 1e6", "jakiro", theta_of_target, NULL}, {"the router's rows swapped", "jakiro", NULL, rows_swapped},
    {"one softmax over four rows", "jakiro", NULL, one_softmax}, {"the sum's order", "jakiro", NULL, order_of_moe},
    {"a sum for the contrast", "jakiro", NULL, plus}, {"the contrast alone", "jakiro", NULL, no_residual},
    {"the larger expert alone", "jakiro", NULL, larger_alone},
    {"the state before the final norm", "jakiro_star", prenorm_state, NULL},
    {"theta 10000", "jakiro_star", default_theta, NULL}, {"branches times their scores", "jakiro_star", NULL, weighted},
    {"left is expert 0", "jakiro_star", NULL, order_fixed}, {"the sum goes on", "jakiro_star", NULL, next_is_sum},
    {"no rotation", "eagle1", NULL, no_rope}, {"no rotation", "eagle1_nobias", NULL, no_rope},
    {"SiLU after the first product", "eagle1", NULL, act_after_fc},
    {"SiLU after the first product", "eagle1_nobias", NULL, act_after_fc},
    {"the target's number of KV heads", "eagle1", NULL, kv_heads_of_target},
    {"the target's number of KV heads", "jakiro", NULL, kv_heads_of_target},
    {"the target's number of KV heads", "kangaroo", NULL, kv_heads_of_target},
    {"the router before the norm", "jakiro", NULL, router_unnormed},
    {"the state first", "eagle1", NULL, feature_first}, {"the state first", "jakiro", NULL, feature_first},
    {"the state first", "jakiro_star", NULL, feature_first}, {"a norm before attention", "eagle1", NULL, input_norm},
    {"a norm before attention", "jakiro", NULL, input_norm}, {"the target's final norm", "jakiro", NULL, norm_before_logits},
    {"the embedding without its norm", "eagle3", NULL, embedding_not_normed},
    {"the draft's words as the target's", "eagle3", words_of_draft, NULL},
    {"the distance of words as the word", "eagle3", words_by_distance, NULL},
    {"the normed state as residual", "kangaroo", NULL, normed_state},
    {"drafted rows one position on", "eagle1", NULL, one_position_on},
    {"drafted rows one position on", "eagle3", NULL, one_position_on},
    {"drafted rows one position on", "jakiro", NULL, one_position_on},
    {"drafted rows one position on", "jakiro_star", NULL, one_position_on},
    {"drafted rows at one position", "eagle1", NULL, one_position},
    {"SiLU", "jakiro_star", NULL, silu}, {"GELU by tanh", "jakiro_star", NULL, tanh_gelu},
};

/* Most mistakes change states or logits of the text; mistakes in drafted rows and in vocabularies show only in chains. */
static void likely_mistakes_are_seen(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof MISTAKES / sizeof *MISTAKES; i += unit_brief() ? 12 : 1) {
        const struct distance off = measure(MISTAKES[i].kind, &MISTAKES[i], 4);
        if (off.states < 1e-4 && off.logits < 1e-3 && off.log_probabilities < 1e-3 && !off.chains)
            fail_msg("%s: %s: not seen", MISTAKES[i].kind, MISTAKES[i].name);
    }
}

/* Returns the token that follows `last` in a row's order (-1: the first): the next smaller logit, or an equal one with a
 * higher id. */
static int next_likeliest(const float *logits, int vocab, int last)
{
    int next = -1;
    for (int v = 0; v < vocab; v++)
        if ((last < 0 || logits[v] < logits[last] || (logits[v] == logits[last] && v > last)) &&
            (next < 0 || logits[v] > logits[next]))
            next = v;
    return next;
}

static void check_row_best(const float *logits, const struct head_params *params, const int32_t *token, const float *said,
                           int count)
{
    double first;
    const int max = heads_best(logits, params->draft_vocab, &first);
    for (int i = 0, last = -1; i < count; i++) {
        last = next_likeliest(logits, params->draft_vocab, last);
        assert_int_equal(token[i], params->target_id ? params->target_id[last] : last);
        const double right = first + (double)logits[last] - (double)logits[max];
        assert_true(fabs((double)said[i] - right) < 1e-5 * fmax(1, fabs(right)));
    }
}

/* Runs the same rows with logits of `branches` branches, and with as many of the likeliest tokens. */
static void check_best(struct work *work, int count, int branches)
{
    static const int32_t wanted[] = {0, 3, 17, 39};
    enum { ROWS = 40, WANTED = sizeof wanted / sizeof *wanted };
    const struct head_params *params = head_description(work->head);
    const struct heads_text *text = &work->rig->text[0];
    const int vocab = params->draft_vocab;
    float *logits = malloc((size_t)(branches * WANTED * vocab) * sizeof *logits);
    struct head_forward forward;
    struct err err = {0};
    read_states(work, text);
    for (work->best = 0; ; work->best = count) {
        must(head_begin(work->head, text->tokens, &err), &err);
        run_true(work, text, 0, ROWS, wanted, WANTED, branches, &forward);
        if (work->best)
            break;
        for (int b = 0; b < branches; b++)
            memcpy(logits + b * WANTED * vocab, forward.logits[b], (size_t)(WANTED * vocab) * sizeof *logits);
    }
    for (int i = 0; i < branches * WANTED; i++) {
        const struct head_best *of = &forward.best[i / WANTED];
        assert_null(forward.logits[i / WANTED]);
        check_row_best(logits + i * vocab, params, of->token + i % WANTED * count, of->log_probability + i % WANTED * count,
                       count);
    }
    free(logits);
}

static void swap_words(struct head_params *params)
{
    const int32_t first = params->target_id[0];
    params->target_id[0] = params->target_id[1];
    params->target_id[1] = first;
}

/* One row on the first state; state_row LOST: on the head's output of its parent. */
enum { LOST = 99 };
static void refuse_rows(struct work *work)
{
    static const struct { int32_t token, parent, state_row; const char *says; } rows[] = {
        {2048, -1, 0, "token 2048 is outside the vocabulary"}, {-1, -1, 0, "token -1 is outside the vocabulary"},
        {1, -2, 0, "its parent, node -2, is not an earlier node"}, {1, 0, 0, "its parent, node 0, is not an earlier node"},
        {1, -1, 1, "reads state 1, but there are 1"}, {1, -1, -1, "reads state -1, but there are 1"}, {1, -1, LOST,
                                                                                                       "its parent has not "
                                                                                                       "been "
                                                                                     "computed yet"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err err = {0};
        struct head_forward forward;
        const struct buffer state = rows[i].state_row == LOST ? (struct buffer){0, 0} : work->state;
        const struct head_batch batch = {.rows = 1, .token = &rows[i].token, .parent = &rows[i].parent, .state = state,
                                         .state_rows = 1, .state_row = &rows[i].state_row};
        assert_int_equal(head_run(work->head, &batch, &forward, &err), -1);
        assert_non_null(strstr(err.text, rows[i].says));
    }
}

/* Returns whether the head can return the likeliest tokens instead of logits; if so, compares them. */
static bool ranks(const char *name, bool swapped)
{
    struct work work = {.rig = &rig, .shift = 1};
    struct err err = {0};
    struct model *model = heads_convert(&rig, heads_published(name), "head.moe");
    if (swapped)
        swap_words((struct head_params *)(uintptr_t)model_head(model));
    const struct head_setup setup = {.model = model, .target = rig.engine, .max_rows = 96, .max_logit_rows = 32};
    must(head_open(&work.head, &setup, &err), &err);
    must(sequence_open(&work.sequence, rig.engine, HEADS_TOKENS, &err), &err);
    if (model_head(model)->kind == HEAD_KANGAROO)
        work.shift = -HEADS_TOKENS;
    const bool does = head_ranks(work.head);
    if (does) {
        check_best(&work, 1, 1);
        check_best(&work, 10, head_branches(work.head));
        check_best(&work, HEAD_BEST_MAX, 1);
    }
    read_states(&work, &rig.text[0]);
    struct head_forward forward;
    const struct head_batch batch = {.rows = 1, .token = &rig.text[0].token[1], .state = work.state, .state_rows = 1,
                                     .state_row = (const int32_t[]){0}, .logit_rows = 1,
                                     .best = does ? HEAD_BEST_MAX + 1 : 1};
    must(head_begin(work.head, 8, &err), &err);
    assert_int_equal(head_run(work.head, &batch, &forward, &err), -1);
    assert_non_null(strstr(err.text, "most likely"));
    refuse_rows(&work);
    sequence_close(&work.sequence);
    head_close(&work.head);
    model_close(&model);
    return does;
}

/* If the head's vocabulary has another order than the target's, ties would be ranked differently: then it must not. */
static void the_likeliest_tokens_are_those_of_the_logits(void **state)
{
    static const char *const names[] = {"eagle1", "eagle3", "kangaroo", "jakiro", "jakiro_star"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_true(ranks(names[i], false));
    assert_false(ranks("eagle3", true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_compute_what_was_published),
        cmocka_unit_test(likely_mistakes_are_seen),
        cmocka_unit_test(the_likeliest_tokens_are_those_of_the_logits),
    };
    return cmocka_run_group_tests(tests, heads_make_rig, heads_drop_rig);
}
