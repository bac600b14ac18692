/* Medusa's and Hydra's heads compared with an independent program: each head's output on a given text, greedy chains, and
 * static trees, each level of which is one forward. Likely mistakes are detected. */
#include "tests/unit/heads.h"

#include "common/head/internal.h"

enum { LEVELS_MAX = 8, NODES_MAX = 64 };

/* A head running on its target's states, and the members that a mistake changes. */
struct work {
    const struct heads_rig *rig;
    struct head *head;
    int shift;                          /* offset of the tokens relative to the states: 1 */
    bool reversed;                      /* hydra reads the newest token first */
    struct sequence *sequence;
    struct buffer state;                /* states of the text: [tokens][hidden] */
};

/* Lets the target read the text in one piece. */
static void read_states(struct work *work, const struct heads_text *text)
{
    const struct feature_request wanted = {.count = 1, .layer = {head_description(work->head)->state[0]}};
    const struct batch options = {.features = &wanted};
    struct forward forward;
    struct err err = {0};
    must(sequence_truncate(work->sequence, 0, &err), &err);
    must(engine_prompt(work->rig->engine, work->sequence, text->token, text->tokens, &options, NULL, NULL, &forward,
                             &err), &err);
    work->state = forward.features;
}

/* Runs rows first .. first + rows - 1 of the text, which stay pending. */
static void run_rows(struct work *work, const struct heads_text *text, int first, int rows)
{
    int32_t state[HEADS_TOKENS];
    struct head_forward forward;
    struct err err = {0};
    for (int i = 0; i < rows; i++)
        state[i] = first + i;
    const struct head_batch batch = {.rows = rows, .state = work->state, .state_rows = text->tokens, .state_row = state};
    must(head_run(work->head, &batch, &forward, &err), &err);
}

static bool is_hydra(const struct work *work) { return head_description(work->head)->kind == HEAD_HYDRA; }

/* Collects the tokens that head `number` reads after state `row`, if the text has them. */
static void tokens_after(const struct work *work, const struct heads_text *text, int row, int number, int32_t *token)
{
    for (int i = 0; i <= number; i++)
        token[work->reversed ? number - i : i] = text->token[row + work->shift + i];
}

static void download(const struct head *head, struct buffer from, float *to, size_t bytes)
{
    struct err err = {0};
    queue_download(head->device, to, from, bytes);
    must(queue_wait(head->device, &err), &err);
}

struct distance { double states, logits, log_probabilities; int texts; };    /* largest, states relative; chains, trees other */

/* Compares states with a golden's tensor of the same number of rows. */
static void compare_states(const struct heads_golden *golden, const char *name, const float *made, int rows, int hidden,
                           struct distance *out)
{
    int said;
    float *states = heads_tensor(golden, name, &said, hidden);
    const size_t count = (size_t)said * (size_t)hidden;
    assert_true(said <= rows);
    out->states = fmax(out->states, heads_difference(made, states, count) / heads_largest(states, count));
    free(states);
}

/* Runs one head on the text's first rows. */
static void compare_head(struct work *work, const struct heads_golden *golden, int number, struct distance *out)
{
    enum { ROWS = 17, EVERY = 8 };
    const struct heads_text *text = &work->rig->text[0];
    const int hidden = work->head->shape->hidden, vocab = work->head->params->draft_vocab;
    int32_t node[ROWS], token[ROWS * LEVELS_MAX];
    float made[ROWS * 512];
    struct head_forward forward;
    struct err err = {0};
    char name[40];
    int rows;
    for (int row = 0; row < ROWS; row++) {
        node[row] = row;
        tokens_after(work, text, row, number, token + row * (number + 1));
    }
    const struct head_guesses ask = {.first = number, .heads = 1, .rows = ROWS, .node = node, .token = token};
    must(head_guess(work->head, &ask, &forward, &err), &err);
    assert_true(hidden <= 512);
    download(work->head, work->head->embedded, made, (size_t)ROWS * (size_t)hidden * sizeof(float));
    snprintf(name, sizeof name, "hidden.%d", number);
    compare_states(golden, name, made, ROWS, hidden, out);
    snprintf(name, sizeof name, "logits_every8.%d", number);
    float *logits = heads_tensor(golden, name, &rows, vocab);
    for (int row = 0; row < rows; row++)
        out->logits = fmax(out->logits, heads_difference(forward.logits[0] + (size_t)(row * EVERY) * (size_t)vocab,
                                                           logits + (size_t)row * (size_t)vocab, (size_t)vocab));
    free(logits);
}

/* Compares the first text, read in two pieces of different lengths. */
static void compare_rows(struct work *work, const char *kind, struct distance *out)
{
    const struct heads_text *text = &work->rig->text[0];
    const int hidden = work->head->shape->hidden, count = text->tokens * hidden;
    char path[200];
    struct err err = {0};
    snprintf(path, sizeof path, "%s/golden.safetensors", kind);
    struct heads_golden golden = heads_golden_open(heads_path("golden/heads", path));
    read_states(work, text);
    must(head_begin(work->head, text->tokens, &err), &err);
    run_rows(work, text, 0, 21);
    run_rows(work, text, 21, text->tokens - 21);
    if (!strcmp(kind, "hydra_prefix")) {
        float *made = malloc((size_t)count * sizeof *made);
        const size_t row = (size_t)hidden * sizeof(float);
        download(work->head, buffer_part(work->head->made, row, work->head->made.bytes - row), made,
                 (size_t)count * sizeof *made);
        compare_states(&golden, "prefix", made, text->tokens, hidden, out);
        free(made);
    }
    for (int number = 0; number < work->head->params->heads; number++)
        compare_head(work, &golden, number, out);
    heads_golden_close(&golden);
}

/* Returns the tokens of a node's path from the root on; the root is the text's newest token. */
struct node { int32_t token[1 + LEVELS_MAX]; double log_probability; };

/* Runs head `number` after each of some nodes in one forward. For medusa one row is enough. */
static void guess(struct work *work, int number, struct node *const *node, int nodes, struct head_forward *out)
{
    int32_t token[NODES_MAX * LEVELS_MAX];
    struct err err = {0};
    const int rows = is_hydra(work) ? nodes : 1;
    for (int row = 0; row < rows; row++)
        for (int i = 0; i <= number; i++)
            token[row * (number + 1) + (work->reversed ? number - i : i)] = node[row]->token[i + work->shift];
    const struct head_guesses ask = {.first = number, .heads = 1, .rows = rows, .token = is_hydra(work) ? token : NULL};
    must(head_guess(work->head, &ask, out, &err), &err);
}

/* Returns the token of this rank (0: the likeliest). */
static int ranked(const float *logits, int vocab, int rank, double *log_probability)
{
    double sum = 0, limit = INFINITY;
    int best = -1;
    for (int at = 0; at <= rank; at++) {
        best = -1;
        for (int v = 0; v < vocab; v++)
            if ((double)logits[v] < limit && (best < 0 || logits[v] > logits[best]))
                best = v;
        assert_true(best >= 0);
        limit = (double)logits[best];
    }
    for (int v = 0; v < vocab; v++)
        sum += exp((double)logits[v] - limit);
    *log_probability = -log(sum);
    return best;
}

/* The likeliest tokens agree with the logits; two heads of Medusa run at once. */
static void check_ranking(struct work *work, int number, const struct node *node, const struct head_forward *logits)
{
    enum { COUNT = 5 };
    const int first = number && !is_hydra(work) ? number - 1 : number;
    const struct head_guesses ask = {.first = first, .heads = 1 + number - first, .rows = 1, .best = COUNT,
                                     .token = is_hydra(work) ? node->token + work->shift : NULL};
    float *kept = malloc((size_t)logits->vocab * sizeof *kept);
    struct head_forward forward;
    struct err err = {0};
    memcpy(kept, logits->logits[0], (size_t)logits->vocab * sizeof *kept);
    must(head_guess(work->head, &ask, &forward, &err), &err);
    assert_null(forward.logits[0]);
    for (int rank = 0; rank < COUNT; rank++) {
        const struct head_best *best = &forward.best[number - first];
        double log_probability;
        assert_int_equal(best->token[rank], ranked(kept, logits->vocab, rank, &log_probability));
        if (!rank)
            assert_true(fabs((double)best->log_probability[0] - log_probability) < 1e-5);
    }
    free(kept);
}

/* Reads the text of a chain or tree; its root is the last token. */
static const struct heads_text *begin(struct work *work, const json_t *one, char id[32], struct node *root)
{
    const char *name = json_string_value(json_object_get(one, "text"));
    const struct heads_text *text = heads_find_text(work->rig, name);
    const int length = (int)json_integer_value(json_object_get(one, "length"));
    int32_t node[HEADS_TOKENS];
    struct err err = {0};
    if (strcmp(id, name))
        read_states(work, text);
    snprintf(id, 32, "%s", name);
    must(head_begin(work->head, text->tokens, &err), &err);
    run_rows(work, text, 0, length - 1);
    for (int i = 0; i < length - 1; i++)
        node[i] = i;
    must(head_commit(work->head, node, length - 1, &err), &err);
    *root = (struct node){.token = {text->token[length - 2], text->token[length - 1]}};
    return text;
}

static void compare_chain(struct work *work, const json_t *chain, char id[32], struct distance *out)
{
    int32_t said[LEVELS_MAX];
    struct node node, *path = &node;
    const int heads = work->head->params->heads;
    int levels = heads_ints(json_object_get(chain, "tokens"), said, LEVELS_MAX);
    begin(work, chain, id, &node);
    for (int level = 0; level < levels && level < heads; level++) {
        struct head_forward forward;
        double log_probability;
        guess(work, level, &path, 1, &forward);
        node.token[level + 2] = ranked(forward.logits[0], forward.vocab, 0, &log_probability);
        if (!work->reversed)
            check_ranking(work, level, &node, &forward);
        const double logp = json_number_value(json_array_get(json_object_get(chain, "logp"), (size_t)level));
        out->log_probabilities = fmax(out->log_probabilities, fabs(log_probability - logp));
        if (node.token[level + 2] != said[level]) {
            out->texts++;
            return;
        }
    }
}

/* Returns the number of a path of ranks among the paths, counted from 1; 0: the root. */
static int find_path(const json_t *paths, const json_t *path, size_t length)
{
    for (size_t i = 0; length && i < json_array_size(paths); i++) {
        const json_t *other = json_array_get(paths, i);
        bool same = json_array_size(other) == length;
        for (size_t at = 0; same && at < length; at++)
            same = json_integer_value(json_array_get(other, at)) == json_integer_value(json_array_get(path, at));
        if (same)
            return (int)i + 1;
    }
    assert_int_equal(length, 0);
    return 0;
}

static int compare_paths(const void *a, const void *b)
{
    const json_t *left = *(json_t *const *)a, *right = *(json_t *const *)b;
    const size_t length = json_array_size(left);
    if (length != json_array_size(right))
        return length < json_array_size(right) ? -1 : 1;
    for (size_t i = 0; i < length; i++) {
        const json_int_t l = json_integer_value(json_array_get(left, i)), r = json_integer_value(json_array_get(right, i));
        if (l != r)
            return l < r ? -1 : 1;
    }
    return 0;
}

/* Orders paths by length, then by ranks, as nodes of the trees. */
static json_t *sorted_paths(const json_t *golden)
{
    const json_t *paths = json_object_get(golden, "static_paths");
    const size_t count = json_array_size(paths);
    json_t *out = json_array(), *path[NODES_MAX];
    assert_in_range(count, 1, NODES_MAX - 1);
    for (size_t i = 0; i < count; i++)
        path[i] = json_array_get(paths, i);
    qsort(path, count, sizeof(json_t *), compare_paths);
    for (size_t i = 0; i < count; i++)
        json_array_append(out, path[i]);
    return out;
}

/* Computes each level of the paths by one forward over their parents. */
static void compare_tree(struct work *work, const json_t *tree, const json_t *paths, char id[32], struct distance *out)
{
    struct node node[NODES_MAX], *wanted[NODES_MAX];
    const size_t count = json_array_size(paths);
    int32_t token[NODES_MAX], parent[NODES_MAX];
    assert_int_equal(heads_ints(json_object_get(tree, "tokens"), token, NODES_MAX), count);
    assert_int_equal(heads_ints(json_object_get(tree, "parents"), parent, NODES_MAX), count);
    begin(work, tree, id, &node[0]);
    for (size_t level = 1, at = 0; at < count && (int)level <= work->head->params->heads; level++) {
        struct head_forward forward;
        size_t from = at;
        for (; at < count && json_array_size(json_array_get(paths, at)) == level; at++)
            wanted[at - from] = &node[find_path(paths, json_array_get(paths, at), level - 1)];
        guess(work, (int)level - 1, wanted, (int)(at - from), &forward);
        for (size_t i = from; i < at; i++) {
            const json_t *path = json_array_get(paths, i);
            const size_t row = is_hydra(work) ? i - from : 0;
            double log_probability;
            node[i + 1] = *wanted[i - from];
            const int word = ranked(forward.logits[0] + row * (size_t)forward.vocab, forward.vocab,
                                    (int)json_integer_value(json_array_get(path, level - 1)), &log_probability);
            node[i + 1].token[level + 1] = word;
            node[i + 1].log_probability += log_probability;
            assert_ptr_equal(wanted[i - from], &node[parent[i]]);
            if (word != token[i]) {
                out->texts++;
                return;
            }
            const double logp = json_number_value(json_array_get(json_object_get(tree, "logp"), i));
            out->log_probabilities = fmax(out->log_probabilities, fabs(node[i + 1].log_probability - logp));
        }
    }
}

/* Compares up to `max` chains and as many trees. */
static void compare_drafts(struct work *work, const char *kind, size_t max, struct distance *out)
{
    char path[200], id[32] = "";
    snprintf(path, sizeof path, "%s/golden.json", kind);
    json_t *golden = heads_json(heads_path("golden/heads", path)), *paths = sorted_paths(golden);
    const json_t *chains = json_object_get(golden, "chain"), *trees = json_object_get(golden, "tree");
    assert_true(json_array_size(chains) > 8 && json_array_size(trees) > 4);
    for (size_t i = 0; i < json_array_size(chains) && i < max; i++)
        compare_chain(work, json_array_get(chains, i), id, out);
    for (size_t i = 0; i < json_array_size(trees) && i < max; i++)
        compare_tree(work, json_array_get(trees, i), paths, id, out);
    json_decref(paths);
    json_decref(golden);
}

/* A mistake: changes the description before the head is opened, or the open head. */
struct mistake {
    const char *name, *kind;            /* a golden */
    void (*describe)(struct head_params *params);
    void (*alter)(struct work *work);
};

static void work_open(struct work *work, const char *kind, const struct mistake *mistake, struct model **model)
{
    char path[200];
    struct err err = {0};
    snprintf(path, sizeof path, "%s/head.tar.xz", kind);
    *work = (struct work){.rig = &rig, .shift = 1};
    *model = heads_convert(&rig, heads_path("golden/heads", path), "head.moe");
    if (mistake && mistake->describe)
        mistake->describe((struct head_params *)(uintptr_t)model_head(*model));
    const struct head_setup setup = {.model = *model, .target = rig.engine, .max_rows = 96, .max_logit_rows = 32};
    must(head_open(&work->head, &setup, &err), &err);
    must(sequence_open(&work->sequence, rig.engine, HEADS_TOKENS, &err), &err);
    if (mistake && mistake->alter)
        mistake->alter(work);
}

static void work_close(struct work *work, struct model **model)
{
    sequence_close(&work->sequence);
    head_close(&work->head);
    model_close(model);
}

static struct distance measure(const char *kind, const struct mistake *mistake, size_t max)
{
    struct work work;
    struct model *model;
    struct distance out = {0, 0, 0, 0};
    work_open(&work, kind, mistake, &model);
    compare_rows(&work, kind, &out);
    compare_drafts(&work, kind, max, &out);
    work_close(&work, &model);
    return out;
}

static void heads_guess_as_published(void **state)
{
    static const char *const kinds[] = {"medusa", "hydra", "hydra_prefix"};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct distance off = measure(kinds[i], NULL, 1000);
        if (!(off.states < 1e-4 && off.logits < 1e-3 && off.log_probabilities < 1e-3) || off.texts)
            fail_msg("%s: states off by %g of the largest, logits by %g, log-probabilities by %g, %d chains and trees are "
                     "others", kinds[i], off.states, off.logits, off.log_probabilities, off.texts);
    }
}

static void prenorm_state(struct head_params *params) { params->state[0] = params->target.layers - 1; }
static void same_token(struct work *work) { work->shift = 0; }
static void newest_first(struct work *work) { work->reversed = true; }

static void no_bias(struct work *work)
{
    for (int i = 0; i < work->head->params->heads; i++)
        for (int block = 0; block < work->head->params->blocks; block++)
            work->head->weights.guess[i].block_bias[block] = (struct buffer){0, 0};
}

static void no_output_bias(struct work *work)
{
    for (int i = 0; i < work->head->params->heads; i++)
        work->head->weights.guess[i].output_bias = (struct buffer){0, 0};
}

static void no_residual_bias(struct work *work)
{
    for (int i = 0; i < work->head->params->heads; i++)
        work->head->weights.guess[i].residual_bias = (struct buffer){0, 0};
}

static void next_head(struct work *work)
{
    struct head_guess *guess = work->head->weights.guess;
    const struct head_guess first = guess[0];
    for (int i = 0; i + 1 < work->head->params->heads; i++)
        guess[i] = guess[i + 1];
    guess[work->head->params->heads - 1] = first;
}

/* Mistakes in an operation: the head's operations are replaced by a changed copy. */
static struct device_ops other_ops;
static const struct device_ops *real_ops;
static const struct head *wrong_head;

static void take_ops(struct work *work)
{
    wrong_head = work->head;
    real_ops = work->head->ops;
    other_ops = *real_ops;
    work->head->ops = &other_ops;
}

static float *row_at(struct buffer buffer, int row, int stride) { return (float *)(uintptr_t)buffer.address + row * stride; }

static void activate_by_gelu(struct queue *queue, const struct activate_args *args)
{
    struct activate_args wrong = *args;
    wrong.activation = ACTIVATION_GELU;
    real_ops->activate(queue, &wrong);
}

static void activate_alone(struct queue *queue, const struct activate_args *args)
{
    struct activate_args wrong = *args;
    wrong.add = (struct buffer){0, 0};
    real_ops->activate(queue, &wrong);
}

/* Joins [E(t) ..; f] instead of [f; E(t) ..]. */
static void join_state_last(struct queue *queue, const struct linear_args *args)
{
    const int hidden = wrong_head->shape->hidden;
    float *wrong = malloc((size_t)(args->rows * args->inputs) * sizeof *wrong);
    struct linear_args moved = *args;
    for (int r = 0; r < args->rows; r++) {
        const float *in = row_at(args->in, r, args->in_stride);
        float *out = wrong + r * args->inputs;
        memcpy(out, in + hidden, (size_t)(args->inputs - hidden) * sizeof *out);
        memcpy(out + args->inputs - hidden, in, (size_t)hidden * sizeof *out);
    }
    moved.in = (struct buffer){(uint64_t)(uintptr_t)wrong, (uint64_t)(args->rows * args->inputs) * sizeof *wrong};
    moved.in_stride = args->inputs;
    real_ops->linear(queue, args->inputs > hidden ? &moved : args);
    free(wrong);
}

/* Uses the state itself as residual, without its product. */
static void keep_the_state(struct queue *queue, const struct linear_args *args)
{
    const int hidden = wrong_head->shape->hidden;
    bool residual = false;
    for (int i = 0; i < wrong_head->params->heads; i++)
        residual |= args->weight.address == wrong_head->weights.guess[i].residual.data.address;
    if (!residual)
        real_ops->linear(queue, args);
    for (int r = 0; residual && r < args->rows; r++)
        memcpy(row_at(args->out, r, args->out_stride), row_at(args->in, r, args->in_stride), (size_t)hidden * sizeof(float));
}

static void norm_nothing(struct queue *queue, const struct norm_args *args) { (void)queue, (void)args; }

static int leave_as_it_is(struct head_pass *pass, const struct layer *layer, struct err *err)
{
    (void)layer, (void)err;
    pass->branch[0] = pass->head->space.x;
    return 0;
}

static void gelu(struct work *w) { take_ops(w); other_ops.activate = activate_by_gelu; }
static void no_residual(struct work *w) { take_ops(w); other_ops.activate = activate_alone; }
static void state_last(struct work *w) { take_ops(w); other_ops.linear = join_state_last; }
static void state_as_residual(struct work *w) { take_ops(w); other_ops.linear = keep_the_state; }
static void no_prefix_norm(struct work *w) { take_ops(w); other_ops.norm = norm_nothing; }

static void no_prefix(struct work *work)
{
    static struct head_class class;
    class = *work->head->class;
    class.leave = leave_as_it_is;
    work->head->class = &class;
    work->head->layers = 0;
}

static const struct mistake MISTAKES[] = {
    {"no residual", "medusa", NULL, no_residual}, {"no residual", "hydra", NULL, no_residual},
    {"no residual", "hydra_prefix", NULL, no_residual}, {"GELU", "medusa", NULL, gelu}, {"GELU", "hydra", NULL, gelu},
    {"GELU", "hydra_prefix", NULL, gelu}, {"the state last", "hydra", NULL, state_last},
    {"the state last", "hydra_prefix", NULL, state_last}, {"the state as residual", "hydra", NULL, state_as_residual},
    {"the state as residual", "hydra_prefix", NULL, state_as_residual}, {"no prefix layer", "hydra_prefix", NULL, no_prefix},
    {"the prefix without its norm", "hydra_prefix", NULL, no_prefix_norm},
    {"the state before the final norm", "medusa", prenorm_state, NULL}, {"no bias", "medusa", NULL, no_bias},
    {"the next head", "medusa", NULL, next_head},
    {"the state before the final norm", "hydra", prenorm_state, NULL}, {"no bias", "hydra", NULL, no_bias},
    {"no bias of the residual", "hydra", NULL, no_residual_bias}, {"no bias of the output", "hydra", NULL, no_output_bias},
    {"the newest token first", "hydra", NULL, newest_first}, {"tokens one too early", "hydra", NULL, same_token},
    {"the state before the final norm", "hydra_prefix", prenorm_state, NULL}, {"no bias", "hydra_prefix", NULL, no_bias},
    {"no bias of the output", "hydra_prefix", NULL, no_output_bias},
    {"tokens one too early", "hydra_prefix", NULL, same_token},
};

static void likely_mistakes_are_seen(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof MISTAKES / sizeof *MISTAKES; i += unit_brief() ? 5 : 1) {
        const struct distance off = measure(MISTAKES[i].kind, &MISTAKES[i], 1);
        if (off.states < 1e-2 && off.logits < 1e-1)
            fail_msg("%s: %s: not seen", MISTAKES[i].kind, MISTAKES[i].name);
    }
}

/* Medusa's heads run at once equal those run one by one, bit for bit; a row of Hydra's alone equals the row among others. */
static void one_forward_is_many(void **state)
{
    const struct heads_text *text = &rig.text[0];
    struct work work;
    struct model *model;
    struct head_forward forward;
    struct err err = {0};
    int32_t token[2][2] = {{3, 4}, {5, 6}};
    const int32_t both[2] = {20, 9};
    (void)state;
    work_open(&work, "medusa", NULL, &model);
    const size_t row = (size_t)work.head->params->draft_vocab * sizeof(float);
    float *all = malloc(2 * row);
    read_states(&work, text);
    must(head_begin(work.head, text->tokens, &err), &err);
    run_rows(&work, text, 0, 21);
    must(head_guess(work.head, &(struct head_guesses){.heads = 2, .rows = 1, .node = both}, &forward, &err), &err);
    for (int i = 0; i < 2; i++)
        memcpy(all + (size_t)i * row / sizeof *all, forward.logits[i], row);
    const int64_t bytes = forward.bytes;
    for (int i = 0; i < 2; i++) {
        must(head_guess(work.head, &(struct head_guesses){.first = i, .heads = 1, .rows = 2, .node = both}, &forward,
                              &err), &err);
        assert_memory_equal(forward.logits[0], all + (size_t)i * row / sizeof *all, row);
        assert_int_equal(2 * forward.bytes, bytes);
    }
    work_close(&work, &model);
    work_open(&work, "hydra", NULL, &model);
    read_states(&work, text);
    must(head_begin(work.head, text->tokens, &err), &err);
    run_rows(&work, text, 0, 21);
    must(head_guess(work.head, &(struct head_guesses){.first = 1, .heads = 1, .rows = 2, .node = both, .token = token[0]},
                          &forward, &err), &err);
    memcpy(all, forward.logits[0], 2 * row);
    for (int i = 0; i < 2; i++) {
        const struct head_guesses ask = {.first = 1, .heads = 1, .rows = 1, .node = &both[i], .token = token[i]};
        must(head_guess(work.head, &ask, &forward, &err), &err);
        assert_memory_equal(forward.logits[0], all + (size_t)i * row / sizeof *all, row);
    }
    work_close(&work, &model);
    free(all);
}

static void refuse(struct work *work, struct head_guesses ask, const char *says)
{
    struct head_forward forward;
    struct err err = {0};
    assert_int_equal(head_guess(work->head, &ask, &forward, &err), -1);
    if (!strstr(err.text, says))
        fail_msg("'%s' does not say '%s'", err.text, says);
}

static void what_makes_no_sense_is_refused(void **state)
{
    const struct heads_text *text = &rig.text[0];
    const int32_t row = 0, later = 1, token[2] = {3, 2048};
    struct work work;
    struct model *model;
    struct head_forward forward;
    struct err err = {0};
    (void)state;
    work_open(&work, "hydra", NULL, &model);
    read_states(&work, text);
    must(head_begin(work.head, text->tokens, &err), &err);
    refuse(&work, (struct head_guesses){.heads = 1, .rows = 1, .token = token}, "node -1 has not been computed yet");
    run_rows(&work, text, 0, 1);
    refuse(&work, (struct head_guesses){.heads = 1, .rows = 1, .node = &later, .token = token}, "node 1 has not been computed "
           "yet");
    refuse(&work, (struct head_guesses){.heads = 2, .rows = 1, .node = &row, .token = token}, "1 of the 2 heads at once");
    refuse(&work, (struct head_guesses){.first = 2, .heads = 1, .rows = 1, .node = &row, .token = token}, "heads 2 to 2");
    refuse(&work, (struct head_guesses){.heads = 1, .rows = 33, .node = &row, .token = token}, "the limit is 32 rows");
    refuse(&work, (struct head_guesses){.first = 1, .heads = 1, .rows = 1, .node = &row, .token = token}, "token 2048");
    const struct head_batch drafted = {.rows = 1, .token = token};
    assert_int_equal(head_run(work.head, &drafted, &forward, &err), -1);
    assert_non_null(strstr(err.text, "not rows of drafted tokens"));
    err_clear(&err);
    const struct head_batch asked = {.rows = 1, .state = work.state, .state_rows = 1, .state_row = &row, .logit_rows = 1};
    assert_int_equal(head_run(work.head, &asked, &forward, &err), -1);
    assert_non_null(strstr(err.text, "call head_guess"));
    work_close(&work, &model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_guess_as_published),
        cmocka_unit_test(likely_mistakes_are_seen),
        cmocka_unit_test(one_forward_is_many),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, heads_make_rig, heads_drop_rig);
}
