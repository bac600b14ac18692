#include "common/decode/decode.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/decode/ending.h"
#include "common/draft/drafter.h"
#include "common/policy/policy.h"
#include "common/sample/sampler.h"
#include "common/verify/coupled.h"

enum { STEPS_MAX = 4 * DRAFT_LENGTH_MAX };      /* of a policy in one iteration */

struct decoder {
    struct decoder_setup setup;
    struct sampler *sampler;
    struct drafter *drafter;            /* NULL: none */
    struct policy *policy;
    struct sequence *sequence;          /* NULL before the first prompt */
    struct draft_tree tree;
    struct ending ending;
    size_t text_given;                  /* bytes of the text that the sink has */
    int prompt_tokens, vocab;
    int32_t *text;                      /* prompt and answer; the last one is the root */
    size_t text_room;
    int length;
    struct decode_result result;
    double began;                       /* clock_seconds */
    int32_t token[DECODE_ROWS_MAX], parent[DECODE_ROWS_MAX], path[DECODE_ROWS_MAX], emitted[DECODE_ROWS_MAX];
    uint8_t kept[DECODE_ROWS_MAX];
};

static int open_parts(struct decoder *decoder, struct err *err)
{
    const struct decode_settings *settings = decoder->setup.settings;
    const struct sampling sampling = {settings->temperature, settings->top_k, settings->top_p, settings->min_p, settings->seed};
    const struct drafter_setup drafting = {decoder->vocab, engine_max_positions(decoder->setup.engine), 0};
    if (ending_check(&settings->stop, decoder->setup.tokenizer, err))
        return err_at(err, "--stop");
    if (drafter_open(&decoder->drafter, settings->draft ? settings->draft : "none", &drafting, err))
        return err_at(err, "--draft");
    if (!settings->draft && settings->draft_length > 0)
        return err_set(err, ERR_INPUT, "--draft-length: there is nothing to draft with; add --draft ngram");
    const struct policy_setup policy = {decoder->drafter ? 1 : 0, settings->draft_length, DRAFT_LENGTH_MAX};
    if (policy_open(&decoder->policy, settings->policy, &policy, err))
        return err_at(err, "--policy");
    return sampler_open(&decoder->sampler, &sampling, decoder->vocab, err) ||
           draft_tree_init(&decoder->tree, DRAFT_LENGTH_MAX, err) ? -1 : 0;
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
    draft_tree_free(&d->tree);
    ending_free(&d->ending);
    mem_free(&d->text);
    mem_free(decoder);
}

void decoder_forget(struct decoder *decoder)
{
    sampler_forget(decoder->sampler);
}

int decoder_skip(struct decoder *decoder, const struct decode_prompt *prompt, struct err *err)
{
    return sampler_begin(decoder->sampler, prompt->token, prompt->tokens, prompt->sample, err);
}

/* An empty sequence with room for this many tokens and the draft nodes beyond them. */
static int prepare_sequence(struct decoder *decoder, int tokens, struct err *err)
{
    int most = engine_max_positions(decoder->setup.engine), old = 0;
    if (decoder->sequence) {
        old = sequence_capacity(decoder->sequence);
        if (old >= tokens + DRAFT_LENGTH_MAX)
            return sequence_truncate(decoder->sequence, 0, err);
    }
    int room = old < most / 2 ? 2 * old : most;             /* so that growing prompts do not each cost a new one */
    sequence_close(&decoder->sequence);
    return sequence_open(&decoder->sequence, decoder->setup.engine, (room < tokens ? tokens : room) + DRAFT_LENGTH_MAX, err);
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
    return decoder->drafter ? decoder->drafter->class->commit(decoder->drafter, token, emitted, err) ? -1 : emitted : emitted;
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

/* New tokens that this prompt may get: what it or the settings say, as far as the context reaches. */
static int token_limit(const struct decoder *decoder, const struct decode_prompt *prompt)
{
    int given = decoder->setup.settings->max_tokens, room = engine_max_positions(decoder->setup.engine) - prompt->tokens;
    int limit = given >= 0 ? given : DECODE_TOKENS_DEFAULT;
    if (prompt->max_tokens && (given < 0 || prompt->max_tokens < given))
        limit = prompt->max_tokens;
    return limit < room ? limit : room;
}

static int read_prompt(struct decoder *decoder, const struct decode_prompt *prompt, const struct decode_sink *sink,
                       struct err *err)
{
    const struct decoder_setup *setup = &decoder->setup;
    const struct batch options = {.logit_rows = setup->want_prompt_logits ? ENGINE_EVERY_ROW : 0,
                                  .want_scores = setup->want_scores, .want_hidden = setup->want_hidden};
    struct forward forward;
    int limit = token_limit(decoder, prompt);
    decoder->length = 0;
    decoder->text_given = 0;
    ending_begin(&decoder->ending, limit);
    if (decoder->policy->class->begin)
        decoder->policy->class->begin(decoder->policy);
    if (decoder->drafter)
        decoder->drafter->class->reset(decoder->drafter);
    if (mem_grow(&decoder->text, &decoder->text_room, (size_t)prompt->tokens, sizeof *decoder->text, err) ||
        (decoder->drafter && decoder->drafter->class->commit(decoder->drafter, prompt->token, prompt->tokens, err)) ||
        sampler_begin(decoder->sampler, prompt->token, prompt->tokens, prompt->sample, err) ||
        prepare_sequence(decoder, prompt->tokens + limit, err) ||
        engine_prompt(setup->engine, decoder->sequence, prompt->token, prompt->tokens, &options, sink->prompt, sink->context,
                      &forward, err))
        return -1;
    memcpy(decoder->text, prompt->token, (size_t)prompt->tokens * sizeof *decoder->text);
    decoder->length = decoder->prompt_tokens = prompt->tokens;
    if (!decoder->ending.ended) {
        const float *logits = forward.logits + (size_t)(forward.logit_rows - 1) * (size_t)forward.vocab;
        int32_t first = sampler_choose(decoder->sampler, logits, prompt->tokens, err);
        if (first < 0 || emit(decoder, &first, 1, err) < 0)
            return -1;
    }
    decoder->result.prefill_s = clock_seconds() - decoder->began;
    if (sink->begin && sink->begin(sink->context, decoder->result.prefill_s, err))
        return -1;
    return give_text(decoder, sink, err);
}

/* Grows the draft as the policy says. A token deeper than the answer can still get would be no use. */
static int draft(struct decoder *decoder, struct err *err)
{
    struct draft_tree *tree = &decoder->tree;
    struct draft_view view = {.tree = tree, .room = decoder->ending.limit - decoder->ending.tokens - 1};
    draft_tree_clear(tree);
    for (; view.steps < STEPS_MAX; view.steps++) {
        struct step step = decoder->policy->class->next(decoder->policy, &view);
        if (step.kind == STEP_STOP)
            break;
        int room = view.room - (step.leaf < 0 ? 0 : tree->depth[step.leaf]);
        int tokens = step.tokens < room ? step.tokens : room;
        view.added = 0;
        if (tokens > 0)
            view.added = decoder->drafter->class->propose(decoder->drafter, tree, step.leaf, tokens, step.siblings, err);
        if (view.added < 0)
            return -1;
    }
    return 0;
}

/* The forward over root and draft. */
static int verify(struct decoder *decoder, struct forward *forward, struct err *err)
{
    const struct decoder_setup *setup = &decoder->setup;
    const struct draft_tree *tree = &decoder->tree;
    struct batch batch = {.rows = 1 + tree->nodes, .token = decoder->token, .parent = decoder->parent,
                          .logit_rows = 1 + tree->nodes, .plan = setup->plan,
                          .want_scores = setup->want_scores, .want_hidden = setup->want_hidden};
    decoder->token[0] = decoder->text[decoder->length - 1];
    decoder->parent[0] = -1;
    for (int node = 0; node < tree->nodes; node++) {
        decoder->token[1 + node] = tree->token[node];
        decoder->parent[1 + node] = 1 + tree->parent[node];
    }
    return engine_forward(setup->engine, decoder->sequence, &batch, forward, err);
}

/* Follows the target through the draft, and keeps root and accepted nodes; returns how many were accepted. */
static int accept(struct decoder *decoder, const struct forward *forward, struct err *err)
{
    int32_t *path = decoder->path;
    int accepted = coupled_accept(decoder->sampler, &decoder->tree, forward->logits, forward->vocab, decoder->length - 1,
                                  path + 1, decoder->emitted, err);
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

static void observe(struct decoder *decoder, const struct decode_iteration *iteration)
{
    const struct forward *forward = iteration->forward;
    struct outcome outcome = {
        .drafted = iteration->tree->nodes, .accepted = iteration->accepted, .emitted = iteration->n_emitted,
        .draft_s = iteration->draft_s, .verify_s = iteration->verify_s, .bytes = forward->bytes,
        .iteration_s = iteration->draft_s + iteration->verify_s + iteration->accept_s + iteration->other_s};
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
        .parent = decoder->parent, .kept = decoder->kept, .emitted = decoder->emitted, .forward = &forward};
    double start = clock_seconds(), drafted, verified, accepted, end;

    if (draft(decoder, err))
        return -1;
    iteration.K = decoder->policy->class->length(decoder->policy);
    decoder->policy->class->state(decoder->policy, &iteration.policy);
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
    end = clock_seconds();

    iteration.rows = 1 + decoder->tree.nodes;
    iteration.end_s = end - decoder->began;
    iteration.draft_s = drafted - start;
    iteration.verify_s = verified - drafted;
    iteration.accept_s = accepted - verified;
    iteration.other_s = end - accepted;
    observe(decoder, &iteration);
    result->iterations++;
    result->drafts += decoder->tree.nodes > 0;
    result->draft_tokens += decoder->tree.nodes;
    result->accepted_tokens += iteration.accepted;
    result->total_s = iteration.end_s;
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
