#include "common/decode/decode.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/decode/divergence.h"
#include "common/decode/ending.h"
#include "common/decode/forced.h"
#include "common/decode/reach.h"
#include "common/draft/drafter.h"
#include "common/policy/shape.h"
#include "common/sample/sampler.h"
#include "common/verify/acceptance.h"
#include "common/verify/overlap.h"
#include "kernels/plain/accept.h"

enum { STEPS_MAX = 4 * DRAFT_LENGTH_MAX, ROWS_MAX = 1 + SHAPE_NODES_MAX };      /* steps of a policy in one iteration */

struct decoder {
    struct decoder_setup setup;
    struct sampler *sampler;
    struct acceptance *acceptance;
    struct drafter *drafter;            /* NULL: none */
    struct drafter_setup drafting;
    struct shape *shape;
    struct policy *policy;
    struct sequence *sequence;          /* NULL before the first prompt */
    struct draft_tree tree;
    struct draft_leaf *leaf;            /* [tree.capacity] */
    int drafted;                        /* nodes in this iteration, also those that were dropped again */
    bool draws;                         /* the drafter draws its tokens, and does not just know them */
    struct overlap overlap;
    struct divergence *divergence;      /* NULL: not asked for */
    struct forced *forced;              /* NULL: nothing is */
    struct governor governor;           /* of an automatic budget, with the plan and its numbers [moe_layers] that it sets */
    struct expert_plan plan;
    int32_t *plan_budget;
    float *probe;                       /* [rows][vocab] logits of a probed budget, made when first needed */
    int probed;                         /* that budget; 0: no probe in this iteration */
    int64_t probe_bytes;                /* that its forward read */
    struct reach reach;
    float row_weight[ROWS_MAX];         /* by reach, for a budget that ranks by path */
    struct ending ending;
    size_t text_given;                  /* bytes of the text that the sink has */
    int prompt_tokens, vocab;
    int32_t *text;                      /* prompt and answer; the last one is the root */
    size_t text_room;
    int length;
    struct decode_result result;
    double began;                       /* clock_seconds */
    int32_t token[ROWS_MAX], parent[ROWS_MAX], path[ROWS_MAX], emitted[ROWS_MAX];
    uint8_t kept[ROWS_MAX];
};

int decode_rows(const struct decode_settings *settings, int *rows, struct err *err)
{
    struct shape *shape = NULL;
    if (shape_open(&shape, settings->tree, err))
        return err_at(err, "--tree");
    *rows = shape->nodes < DRAFT_LENGTH_MAX ? DECODE_ROWS_MAX : 1 + shape->nodes;
    shape_close(&shape);
    return 0;
}

int decode_departure(const struct decode_settings *settings, const struct budget *budget, const char **key, struct text *why,
                     struct err *err)
{
    const struct acceptance_setup setup = {.vocab = 1, .nodes = 1};
    struct acceptance *acceptance = NULL;
    bool lossy = budget && !budget->lossless, drawn = settings->temperature > 0;
    int rc = lossy ? text_puts(why, budget->label, err) : 0;
    if (acceptance_open(&acceptance, settings->accept, &setup, err))
        return err_at(err, "--accept");
    const struct acceptance_class *class = acceptance->class;
    *key = lossy || (drawn && !class->same_distribution) ? "not lossless"
         : drawn && !class->same_text ? "not the same text" : NULL;
    if (!rc && drawn && !class->same_text)
        rc = text_printf(why, err, "%s%s acceptance", lossy ? ", " : "", class->name);
    acceptance_close(&acceptance);
    if (!rc && (settings->force_routes || settings->force_accept)) {
        const char *routes = settings->force_routes, *accept = settings->force_accept;
        *key = "forced";
        text_clear(why);
        rc = text_printf(why, err, "%s%s%s%s%s", routes ? "routes of " : "", routes ? routes : "", routes && accept ? ", " : "",
                         accept ? "text and acceptance of " : "", accept ? accept : "");
    }
    return rc;
}

static bool ranks_by_path(const struct decoder *decoder)
{
    return decoder->setup.budget && decoder->setup.budget->plan.ranking == PLAN_PATH;
}

/* How a drafter should pick children. A tree that is cut for what was drawn cannot say what its tokens were drawn from. */
static void choose_drafting(const struct decoder *decoder, struct drafter_setup *setup)
{
    const struct acceptance_class *rule = decoder->acceptance->class;
    const struct budget *budget = decoder->setup.budget;
    bool whole = !decoder->shape->class->trims;
    setup->choice = rule == &acceptance_coupled || (rule->wants_proposals && whole) ? DRAFT_COUPLED : DRAFT_BEST;
    setup->proposals = whole && (rule->wants_proposals || decoder->setup.settings->overlap);
    setup->probabilities = !whole || ranks_by_path(decoder);
    setup->plan = budget && budget->drafts ? &budget->plan : NULL;
}

int decoder_open_drafter(const struct decoder *decoder, struct drafter **out, struct err *err)
{
    const char *draft = decoder->setup.settings->draft;
    if (!draft && decoder->setup.settings->force_accept)
        return forced_drafter(decoder->forced, out, err);
    return drafter_open(out, draft ? draft : "none", &decoder->drafting, err) ? err_at(err, "--draft") : 0;
}

static int open_drafting(struct decoder *decoder, const struct sample_filter *filter, struct err *err)
{
    const struct decode_settings *settings = decoder->setup.settings;
    const struct engine_setup *engine = engine_made_from(decoder->setup.engine);
    if (shape_open(&decoder->shape, settings->tree, err))
        return err_at(err, "--tree");
    if (engine->max_logit_rows < 1 + decoder->shape->nodes || engine->max_rows < 1 + decoder->shape->nodes)
        return err_set(err, ERR_INPUT, "--tree: drafts of up to %d tokens, but the engine was made for %d",
                       decoder->shape->nodes, engine->max_logit_rows - 1);
    const struct acceptance_setup accepting = {decoder->vocab, decoder->shape->nodes, *filter};
    if (acceptance_open(&decoder->acceptance, settings->accept, &accepting, err))
        return err_at(err, "--accept");
    decoder->drafting = (struct drafter_setup){
        .vocab = decoder->vocab, .positions = engine_max_positions(decoder->setup.engine), .target = decoder->setup.engine,
        .filter = *filter};
    choose_drafting(decoder, &decoder->drafting);
    if (decoder_open_drafter(decoder, &decoder->drafter, err))
        return -1;
    if (!decoder->drafter && decoder->drafting.plan)
        return err_set(err, ERR_INPUT, "--budget-phase: there is nothing to draft with; add --draft model:file=FILE");
    decoder->draws = decoder->drafter && decoder->drafter->class->draws && decoder->drafting.choice == DRAFT_COUPLED &&
        filter->temperature > 0;
    const struct hparams *shape = engine_hparams(decoder->setup.engine);
    const struct policy_setup policy = {
        .drafters = decoder->drafter ? 1 : 0, .draft_length = settings->draft_length, .max_length = DRAFT_LENGTH_MAX,
        .shape = decoder->shape, .experts = hparams_moe_layers(shape) ? shape->router.experts : 0,
        .top_k = hparams_moe_layers(shape) ? shape->router.top_k : 0};
    return policy_open(&decoder->policy, settings->policy, &policy, err) ? err_at(err, "--policy") : 0;
}

/* The plan of forwards: the budget's, or one that a governor may change. */
static int open_plan(struct decoder *decoder, struct err *err)
{
    const struct budget *budget = decoder->setup.budget;
    size_t layers = (size_t)budget->plan.moe_layers;
    decoder->plan = budget->plan;
    if (!budget->automatic)
        return 0;
    decoder->governor = budget->governor;
    decoder->plan_budget = mem_alloc(layers, sizeof *decoder->plan_budget, err);
    if (!decoder->plan_budget)
        return -1;
    memcpy(decoder->plan_budget, budget->plan.budget, layers * sizeof *decoder->plan_budget);
    decoder->plan.budget = decoder->plan_budget;
    return 0;
}

static int open_parts(struct decoder *decoder, struct err *err)
{
    const struct decode_settings *settings = decoder->setup.settings;
    const struct sampling sampling = {settings->temperature, settings->top_k, settings->top_p, settings->min_p, settings->seed};
    const struct sample_filter filter = {settings->temperature, settings->top_p, settings->min_p, settings->top_k};
    if (ending_check(&settings->stop, decoder->setup.tokenizer, err))
        return err_at(err, "--stop");
    bool recorded = !settings->draft && settings->force_accept;
    bool length = settings->draft_length > 0 || settings->draft_length == DRAFT_LENGTH_AUTO;
    if (!settings->draft && !recorded && (length || settings->tree || settings->policy))
        return err_set(err, ERR_INPUT, "--%s: there is nothing to draft with; add --draft ngram",
                       settings->tree ? "tree" : length ? "draft-length" : "policy");
    if ((settings->force_routes || settings->force_accept) &&
        forced_open(&decoder->forced, settings->force_routes, settings->force_accept, engine_hparams(decoder->setup.engine),
                    err))
        return err_at(err, "--force-%s", settings->force_routes ? "routes" : "accept");
    if (open_drafting(decoder, &filter, err) || sampler_open(&decoder->sampler, &sampling, decoder->vocab, err) ||
        draft_tree_init(&decoder->tree, decoder->shape->room, err) ||
        (settings->overlap && overlap_init(&decoder->overlap, &filter, decoder->vocab, decoder->shape->nodes, err)))
        return -1;
    if (settings->force_accept && settings->accept)
        return err_set(err, ERR_INPUT, "--accept: what is kept follows from the text that is forced; leave one of the two out");
    if (decoder->forced && decoder->setup.budget)
        return err_set(err, ERR_INPUT, "--budget: routes or text are forced, of which a budget would change nothing");
    if (decoder->setup.budget && open_plan(decoder, err))
        return -1;
    if (settings->reference && divergence_open(&decoder->divergence, settings->reference, decoder->setup.engine,
                                               1 + decoder->shape->nodes, err))
        return err_at(err, "--reference");
    if (settings->reconstruction && (!decoder->setup.budget || !decoder->setup.budget->verifies))
        return err_set(err, ERR_INPUT, "--reconstruction: there is no budget whose error could be measured; add --budget B");
    decoder->leaf = mem_alloc((size_t)decoder->shape->room + 1, sizeof *decoder->leaf, err);
    return decoder->leaf ? 0 : -1;
}

int decoder_open(struct decoder **out, const struct decoder_setup *setup, struct err *err)
{
    const struct hparams *shape = engine_hparams(setup->engine);
    struct decoder *decoder = mem_alloc(1, sizeof *decoder, err);
    if (!decoder)
        return -1;
    decoder->setup = *setup;
    decoder->vocab = shape->vocab;
    decoder->ending.tokenizer = setup->tokenizer;
    decoder->ending.stop = &setup->settings->stop;
    decoder->ending.eos = shape->eos;
    decoder->ending.eos_count = setup->settings->ignore_eos ? 0 : shape->eos_count;
    if (open_parts(decoder, err)) {
        decoder_close(&decoder);
        return -1;
    }
    *out = decoder;
    return 0;
}

void decoder_close(struct decoder **decoder)
{
    struct decoder *d = *decoder;
    if (!d)
        return;
    sequence_close(&d->sequence);
    sampler_close(&d->sampler);
    drafter_close(&d->drafter);
    policy_close(&d->policy);
    shape_close(&d->shape);
    acceptance_close(&d->acceptance);
    overlap_free(&d->overlap);
    divergence_close(&d->divergence);
    forced_close(&d->forced);
    draft_tree_free(&d->tree);
    mem_free(&d->leaf);
    mem_free(&d->plan_budget);
    mem_free(&d->probe);
    ending_free(&d->ending);
    mem_free(&d->text);
    mem_free(decoder);
}

void decoder_forget(struct decoder *decoder)
{
    sampler_forget(decoder->sampler);
}

const struct sample_draw *decoder_draw(const struct decoder *decoder) { return sampler_draw(decoder->sampler); }
const struct acceptance *decoder_acceptance(const struct decoder *decoder) { return decoder->acceptance; }
struct sequence *decoder_sequence(struct decoder *decoder) { return decoder->sequence; }
int decoder_limit(const struct decoder *decoder) { return decoder->ending.limit; }
bool decoder_drafts_chains(const struct decoder *decoder) { return decoder->shape->class == &shape_chain; }

int decoder_skip(struct decoder *decoder, const struct decode_prompt *prompt, struct err *err)
{
    return sampler_begin(decoder->sampler, prompt->token, prompt->tokens, prompt->sample, err);
}

/* An empty sequence with room for this many tokens and the draft nodes beyond them. */
static int prepare_sequence(struct decoder *decoder, int tokens, struct err *err)
{
    int most = engine_max_positions(decoder->setup.engine), old = 0, nodes = decoder->shape->nodes;
    if (decoder->sequence) {
        old = sequence_capacity(decoder->sequence);
        if (old >= tokens + nodes)
            return sequence_truncate(decoder->sequence, 0, err);
    }
    int room = old < most / 2 ? 2 * old : most;             /* so that growing prompts do not each cost a new one */
    sequence_close(&decoder->sequence);
    return sequence_open(&decoder->sequence, decoder->setup.engine, (room < tokens ? tokens : room) + nodes, err);
}

/* Adds tokens to text and answer until it ends; returns how many. */
static int emit(struct decoder *decoder, const int32_t *token, int count, struct err *err)
{
    int emitted = 0;
    if (mem_grow(&decoder->text, &decoder->text_room, (size_t)(decoder->length + count), sizeof *decoder->text, err))
        return -1;
    while (emitted < count && !decoder->ending.ended) {
        decoder->text[decoder->length++] = token[emitted];
        if (ending_put(&decoder->ending, token[emitted++], err))
            return -1;
    }
    if (decoder->drafter && decoder->drafter->class->commit(decoder->drafter, token, emitted, err))
        return -1;
    return emitted;
}

static int give_text(struct decoder *decoder, const struct decode_sink *sink, struct err *err)
{
    size_t from = decoder->text_given;
    decoder->text_given = decoder->ending.certain;
    if (!sink->text || decoder->text_given == from)
        return 0;
    return sink->text(sink->context, decoder->ending.text.data + from, decoder->text_given - from, err);
}

static int check_prompt(const struct decoder *decoder, const struct decode_prompt *prompt, struct err *err)
{
    int most = engine_max_positions(decoder->setup.engine);
    if (prompt->tokens < 1)
        return err_set(err, ERR_INPUT, "the prompt has no tokens; give at least one");
    if (prompt->tokens >= most)
        return err_set(err, ERR_INPUT, "the prompt has %d tokens; prompt and answer together can have %d",
                       prompt->tokens, most);
    for (int i = 0; i < prompt->tokens; i++)
        if (prompt->token[i] < 0 || prompt->token[i] >= decoder->vocab)
            return err_set(err, ERR_INPUT, "token %d is not in the vocabulary of %d", (int)prompt->token[i], decoder->vocab);
    return 0;
}

static bool forces_text(const struct decoder *decoder) { return decoder->forced && forced_tokens(decoder->forced) > 0; }

/* New tokens that this prompt may get: what it or the settings say, as far as the context reaches. */
static int token_limit(const struct decoder *decoder, const struct decode_prompt *prompt)
{
    int given = decoder->setup.settings->max_tokens, room = engine_max_positions(decoder->setup.engine) - prompt->tokens;
    int limit = given >= 0 ? given : DECODE_TOKENS_DEFAULT;
    if (prompt->max_tokens && (given < 0 || prompt->max_tokens < given))
        limit = prompt->max_tokens;
    int forced = decoder->forced ? forced_tokens(decoder->forced) : -1;
    limit = forced >= 0 && forced < limit ? forced : limit;
    return limit < room ? limit : room;
}

static int begin_draft(struct decoder *decoder, const struct decode_prompt *prompt, int limit, struct err *err)
{
    struct drafter *drafter = decoder->drafter;
    const struct draft_text text = {prompt->tokens + limit, *sampler_draw(decoder->sampler)};
    return drafter->class->begin(drafter, &text, err) ||
           drafter->class->commit(drafter, prompt->token, prompt->tokens, err) ? -1 : 0;
}

static int read_prompt(struct decoder *decoder, const struct decode_prompt *prompt, const struct decode_sink *sink,
                       struct err *err)
{
    const struct decoder_setup *setup = &decoder->setup;
    const struct batch options = {.logit_rows = setup->want_prompt_logits ? ENGINE_EVERY_ROW : 0,
                                  .want_scores = setup->want_scores, .want_hidden = setup->want_hidden};
    const struct policy_text about = {prompt->sequence, prompt->task, prompt->token, prompt->tokens};
    struct forward forward;
    if (decoder->forced && forced_begin(decoder->forced, prompt->token, prompt->tokens, err))
        return -1;
    int limit = token_limit(decoder, prompt);
    decoder->length = 0;
    decoder->text_given = 0;
    ending_begin(&decoder->ending, limit);
    if (decoder->policy->class->begin)
        decoder->policy->class->begin(decoder->policy, &about);
    reach_begin(&decoder->reach, setup->settings->temperature <= 0);
    if (mem_grow(&decoder->text, &decoder->text_room, (size_t)prompt->tokens, sizeof *decoder->text, err) ||
        (decoder->divergence &&
         divergence_begin(decoder->divergence, prompt->token, prompt->tokens, prompt->tokens + limit, err)) ||
        sampler_begin(decoder->sampler, prompt->token, prompt->tokens, prompt->sample, err) ||
        (decoder->drafter && begin_draft(decoder, prompt, limit, err)) ||
        prepare_sequence(decoder, prompt->tokens + limit, err) ||
        engine_prompt(setup->engine, decoder->sequence, prompt->token, prompt->tokens, &options, sink->prompt, sink->context,
                      &forward, err))
        return -1;
    memcpy(decoder->text, prompt->token, (size_t)prompt->tokens * sizeof *decoder->text);
    decoder->length = decoder->prompt_tokens = prompt->tokens;
    if (!decoder->ending.ended) {
        const float *logits = forward.logits + (size_t)(forward.logit_rows - 1) * (size_t)forward.vocab;
        int32_t first = forces_text(decoder) ? forced_text(decoder->forced)[0]
                                             : sampler_choose(decoder->sampler, logits, prompt->tokens, err);
        if (first < 0 || emit(decoder, &first, 1, err) < 0)
            return -1;
    }
    decoder->result.prefill_s = clock_seconds() - decoder->began;
    if (sink->begin && sink->begin(sink->context, decoder->result.prefill_s, err))
        return -1;
    return give_text(decoder, sink, err);
}

/* Lets the drafter grow the tree. A token deeper than the answer can still get would be no use. */
static int extend(struct decoder *decoder, const struct step *step, int room, struct err *err)
{
    struct draft_tree *tree = &decoder->tree;
    int leaves = 0, tokens = step->tokens;
    for (int at = 0; at < step->leaves; at++) {
        int depth = step->leaf[at].node < 0 ? 0 : tree->depth[step->leaf[at].node];
        if (depth < room && leaves <= tree->capacity) {
            decoder->leaf[leaves++] = step->leaf[at];
            tokens = tokens < room - depth ? tokens : room - depth;
        }
    }
    if (!leaves || tokens < 1)
        return 0;
    return decoder->drafter->class->propose(decoder->drafter, tree, decoder->leaf, leaves, tokens, err);
}

/* Grows the draft as the policy says. */
static int draft(struct decoder *decoder, struct err *err)
{
    struct draft_tree *tree = &decoder->tree;
    struct draft_view view = {.tree = tree, .room = decoder->ending.limit - decoder->ending.tokens - 1};
    draft_tree_clear(tree);
    decoder->drafted = 0;
    if (decoder->drafter)
        decoder->drafter->bytes = 0;
    for (; decoder->drafter && view.steps < STEPS_MAX; view.steps++) {
        struct step step = decoder->policy->class->next(decoder->policy, &view);
        view.added = 0;
        if (step.kind == STEP_STOP)
            break;
        if (step.kind == STEP_KEEP) {
            if (draft_tree_keep(tree, step.keep, step.kept))
                return err_set(err, ERR_INPUT, "the policy keeps nodes without their parents");
            continue;
        }
        view.added = extend(decoder, &step, view.room, err);
        if (view.added < 0)
            return -1;
        decoder->drafted += view.added;
    }
    if (tree->nodes > decoder->shape->nodes)
        return err_set(err, ERR_INPUT, "a draft of %d tokens, of at most %d", tree->nodes, decoder->shape->nodes);
    return 0;
}

/* Sets the numbers of an automatic budget. A probe keeps the logits that the budget gives, and leaves the batch without one. */
static int govern(struct decoder *decoder, struct batch *batch, struct forward *forward, struct err *err)
{
    bool probe;
    int budget = governor_next(&decoder->governor, &probe);
    for (int layer = 0; layer < decoder->plan.moe_layers; layer++)
        decoder->plan_budget[layer] = budget;
    decoder->probed = probe ? budget : 0;
    if (!probe)
        return 0;
    size_t vocab = (size_t)decoder->vocab, rows = 1 + (size_t)decoder->shape->nodes;
    if (!decoder->probe && !(decoder->probe = mem_alloc(rows * vocab, sizeof *decoder->probe, err)))
        return -1;
    if (engine_forward(decoder->setup.engine, decoder->sequence, batch, forward, err))
        return -1;
    memcpy(decoder->probe, forward->logits, (size_t)batch->rows * vocab * sizeof *decoder->probe);
    sequence_rollback(decoder->sequence);
    batch->plan = NULL;
    return 0;
}

/* Tells the governor what the probe has shown of the tokens that were emitted. */
static void judge(struct decoder *decoder, const struct forward *forward, int emitted)
{
    size_t vocab = (size_t)forward->vocab;
    double sum = 0, loaded = 0;
    for (int i = 0; i < emitted; i++) {
        size_t row = (size_t)decoder->path[i];
        sum += divergence_between(forward->logits + row * vocab, decoder->probe + row * vocab, forward->vocab);
    }
    for (int layer = 0; layer < forward->moe_layers; layer++)
        loaded += forward->distinct_wanted[layer];
    double expert = (double)forward->expert_bytes;
    governor_observe(&decoder->governor, decoder->probed, sum / emitted, forward->distinct_wanted, forward->moe_layers, expert,
                     (double)forward->bytes - loaded * expert);
}

/* The forward over root and draft. */
static int verify(struct decoder *decoder, struct forward *forward, struct err *err)
{
    const struct decoder_setup *setup = &decoder->setup;
    const struct draft_tree *tree = &decoder->tree;
    const struct budget *budget = setup->budget;
    bool limited = budget && (tree->nodes ? budget->verifies : budget->decodes);
    decoder->probed = 0;
    decoder->probe_bytes = 0;
    struct batch batch = {.rows = 1 + tree->nodes, .token = decoder->token, .parent = decoder->parent,
                          .logit_rows = 1 + tree->nodes, .plan = limited ? &decoder->plan : NULL,
                          .row_weight = decoder->row_weight, .want_reconstruction = setup->settings->reconstruction,
                          .want_scores = setup->want_scores, .want_hidden = setup->want_hidden};
    if (decoder->forced &&
        forced_routes(decoder->forced, decoder->length - decoder->prompt_tokens - 1, tree, &batch.forced, err))
        return -1;
    if (limited && ranks_by_path(decoder))
        reach_weights(&decoder->reach, tree, decoder->row_weight);
    decoder->token[0] = decoder->text[decoder->length - 1];
    decoder->parent[0] = -1;
    for (int node = 0; node < tree->nodes; node++) {
        decoder->token[1 + node] = tree->token[node];
        decoder->parent[1 + node] = 1 + tree->parent[node];
    }
    if (limited && budget->automatic && govern(decoder, &batch, forward, err))
        return -1;
    decoder->probe_bytes = decoder->probed ? forward->bytes : 0;
    return engine_forward(setup->engine, decoder->sequence, &batch, forward, err);
}

/* Follows the text that is forced through the draft, as coupled acceptance follows the target's choices. */
static int accept_forced(struct decoder *decoder)
{
    const struct draft_tree *tree = &decoder->tree;
    int from = decoder->length - decoder->prompt_tokens, left = forced_tokens(decoder->forced) - from, accepted = 0;
    const int32_t *text = forced_text(decoder->forced) + from;
    for (int at = -1;; accepted++) {
        decoder->emitted[accepted] = text[accepted];
        at = accept_child(tree->token, tree->parent, tree->nodes, at, text[accepted]);
        if (at < 0 || accepted + 1 == left)
            return accepted;
        decoder->path[1 + accepted] = at;
    }
}

/* Follows the target through the draft, and keeps root and accepted nodes; returns how many were accepted. */
static int accept(struct decoder *decoder, const struct forward *forward, struct err *err)
{
    const struct draft_tree *tree = &decoder->tree;
    const struct reject_draft drafted = {tree->nodes, tree->token, tree->parent, tree->proposal};
    struct sample_draw draw = *sampler_draw(decoder->sampler);
    int32_t *path = decoder->path;
    draw.position = (uint32_t)decoder->length - 1;
    int accepted = forces_text(decoder) ? accept_forced(decoder)
                 : acceptance_accept(decoder->acceptance, &drafted, forward->logits, &draw, path + 1, decoder->emitted, err);
    if (accepted < 0)
        return -1;
    memset(decoder->kept, 0, sizeof decoder->kept);
    path[0] = 0;
    decoder->kept[0] = 1;
    for (int i = 1; i <= accepted; i++) {
        path[i]++;
        decoder->kept[path[i]] = 1;
    }
    return sequence_commit(decoder->sequence, path, 1 + accepted, err) ? -1 : accepted;
}

/* Sets the emitted tokens against the reference. The clock stands still meanwhile. */
static int diverge(struct decoder *decoder, struct decode_iteration *iteration, struct err *err)
{
    const struct forward *forward = iteration->forward;
    const float *logits[ROWS_MAX];
    int32_t token[ROWS_MAX];
    double start = clock_seconds();
    for (int i = 0; i < iteration->n_emitted; i++) {
        int32_t row = decoder->path[i];
        token[i] = decoder->token[row];
        logits[i] = forward->logits + (size_t)row * (size_t)forward->vocab;
    }
    if (divergence_measure(decoder->divergence, token, logits, iteration->n_emitted, &iteration->divergence, &iteration->flips,
                           err))
        return err_at(err, "--reference");
    decoder->began += clock_seconds() - start;
    return 0;
}

static void observe(struct decoder *decoder, const struct decode_iteration *iteration)
{
    const struct forward *forward = iteration->forward;
    struct outcome outcome = {
        .drafted = iteration->tree->nodes, .accepted = iteration->accepted, .emitted = iteration->n_emitted,
        .token = iteration->emitted, .draft_s = iteration->draft_us / 1e6, .verify_s = iteration->verify_us / 1e6,
        .expert = forward->moe_layers && decoder_drafts_chains(decoder) ? forward->expert : NULL,
        .moe_layers = forward->moe_layers, .top_k = forward->top_k,
        .bytes = forward->bytes, .draft_bytes = iteration->draft_bytes,
        .iteration_s = (iteration->draft_us + iteration->verify_us + iteration->accept_us + iteration->other_us) / 1e6};
    for (int layer = 0; layer < forward->moe_layers; layer++)
        outcome.experts_loaded += forward->distinct_loaded[layer];
    if (decoder->policy->class->observe)
        decoder->policy->class->observe(decoder->policy, &outcome);
}

static int iterate(struct decoder *decoder, const struct decode_sink *sink, struct err *err)
{
    struct decode_result *result = &decoder->result;
    struct forward forward;
    struct decode_iteration iteration = {
        .number = result->iterations, .position = decoder->length - 1, .tree = &decoder->tree, .token = decoder->token,
        .parent = decoder->parent, .kept = decoder->kept, .emitted = decoder->emitted, .flips = -1, .forward = &forward};
    double start = clock_seconds(), drafted, verified, accepted, end;

    if (draft(decoder, err))
        return -1;
    iteration.K = decoder->drafter ? decoder->policy->class->length(decoder->policy) : 0;
    decoder->policy->class->state(decoder->policy, &iteration.policy);
    if (decoder->plan_budget)
        governor_state(&decoder->governor, &iteration.policy);
    drafted = clock_seconds();
    if (verify(decoder, &forward, err))
        return -1;
    verified = clock_seconds();
    iteration.accepted = accept(decoder, &forward, err);
    if (iteration.accepted < 0)
        return -1;
    accepted = clock_seconds();
    iteration.n_emitted = emit(decoder, decoder->emitted, iteration.accepted + 1, err);
    if (iteration.n_emitted < 0)
        return -1;
    if (decoder->setup.settings->overlap)
        iteration.overlap = overlap_measure(&decoder->overlap, &decoder->tree, decoder->kept, decoder->draws, forward.logits);
    if (ranks_by_path(decoder))
        reach_observe(&decoder->reach, &decoder->tree, decoder->kept);
    if (decoder->probed && iteration.n_emitted)
        judge(decoder, &forward, iteration.n_emitted);
    forward.bytes += decoder->probe_bytes;
    end = clock_seconds();

    iteration.rows = 1 + decoder->tree.nodes;
    iteration.drafted = decoder->drafted;
    iteration.draft_bytes = decoder->drafter ? decoder->drafter->bytes : 0;
    iteration.end_us = 1e6 * (end - decoder->began);
    iteration.draft_us = 1e6 * (drafted - start);
    iteration.verify_us = 1e6 * (verified - drafted);
    iteration.accept_us = 1e6 * (accepted - verified);
    iteration.other_us = 1e6 * (end - accepted);
    if (decoder->divergence && diverge(decoder, &iteration, err))
        return -1;
    observe(decoder, &iteration);
    result->iterations++;
    result->drafts += decoder->tree.nodes > 0;
    result->draft_tokens += decoder->tree.nodes;
    result->accepted_tokens += iteration.accepted;
    result->total_s = iteration.end_us / 1e6;
    if (give_text(decoder, sink, err))
        return -1;
    return sink->iteration ? sink->iteration(sink->context, &iteration, err) : 0;
}

int decoder_run(struct decoder *decoder, const struct decode_prompt *prompt, const struct decode_sink *sink,
                struct decode_result *out, struct err *err)
{
    struct decode_result *result = &decoder->result;
    decoder->began = clock_seconds();
    *result = (struct decode_result){0};
    if (check_prompt(decoder, prompt, err) || read_prompt(decoder, prompt, sink, err))
        return -1;
    result->total_s = result->prefill_s;
    while (!decoder->ending.ended)
        if (iterate(decoder, sink, err))
            return -1;
    result->token = decoder->text + decoder->prompt_tokens;
    result->tokens = decoder->length - decoder->prompt_tokens;
    result->text = !decoder->setup.tokenizer ? NULL : decoder->ending.text.data ? decoder->ending.text.data : "";
    result->text_bytes = decoder->ending.text.length;
    result->finish = decoder->ending.reason;
    *out = *result;
    return 0;
}
