#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/decode/forced.h"
#include "common/decode/internal.h"
#include "common/predict/calibration.h"

const char *decoder_loop_device(const struct decoder *decoder)
{
    return decoder->loop_device[0] ? decoder->loop_device : NULL;
}

const struct text *decoder_notes(const struct decoder *decoder) { return &decoder->notes; }

const char *decoder_drafters(const struct decoder *decoder) { return decoder->named; }

const char *decoder_drafter_detail(const struct decoder *decoder, int drafter)
{
    bool known = drafter < decoder->drafters.count && decoder->drafters.item[drafter]->detail[0];
    return known ? decoder->drafters.item[drafter]->detail : NULL;
}

void decoder_forget(struct decoder *decoder)
{
    sampler_forget(decoder->sampler);
}

void decoder_free_cache(struct decoder *decoder) { sequence_close(&decoder->sequence); }

const struct sample_draw *decoder_draw(const struct decoder *decoder) { return sampler_draw(decoder->sampler); }
const struct acceptance *decoder_acceptance(const struct decoder *decoder) { return decoder->acceptance; }
struct sequence *decoder_sequence(struct decoder *decoder) { return decoder->sequence; }
int decoder_limit(const struct decoder *decoder) { return decoder->ending.limit; }
bool decoder_drafts_chains(const struct decoder *decoder) { return decoder->shape->class == &shape_chain; }

/* Sets entry[DRAFTERS_MAX] to the policy's estimators and returns their number; -1: the policy has none. */
static int calibrated(struct decoder *decoder, struct calibration_entry *entry, struct err *err)
{
    const struct policy_class *policy = decoder->policy->class;
    int entries = 0;
    for (int i = 0; policy->estimator && i < decoder->drafters.count; i++) {
        struct estimator *estimator = policy->estimator(decoder->policy, i);
        if (estimator)
            entry[entries++] = (struct calibration_entry){decoder->setup.settings->draft.items[i], estimator};
    }
    return entries ? entries : err_set(err, ERR_INPUT, "policy %s does not estimate acceptance probabilities; choose "
                                       "cascade-cost, dytc-verify or evict", policy->name);
}

int decoder_read_calibration(struct decoder *decoder, const char *path, const char *model, struct err *err)
{
    struct calibration_entry entry[DRAFTERS_MAX];
    const int entries = calibrated(decoder, entry, err);
    return entries < 0 ? -1 : calibration_read(path, model, entry, entries, err);
}

int decoders_write_calibration(struct decoder *const *decoder, int count, const char *path, const char *model,
                               struct err *err)
{
    struct calibration_entry entry[DRAFTERS_MAX], other[DRAFTERS_MAX];
    struct estimator mean[DRAFTERS_MAX];
    struct estimator *learned[DRAFTERS_MAX][DECODERS_MAX];
    int entries = 0, all[DRAFTERS_MAX] = {0};
    for (int i = count - 1; i >= 0; i--) {
        if ((entries = calibrated(decoder[i], i ? other : entry, err)) < 0)
            return -1;
        for (int d = 0; d < entries; d++) {
            struct estimator *estimator = (i ? other : entry)[d].estimator;
            int at = 0;
            while (at < all[d] && learned[d][at] != estimator)
                at++;
            if (estimator->seen > 0 && at == all[d])            /* policies of texts of one task may share it */
                learned[d][all[d]++] = estimator;
        }
    }
    for (int d = 0; d < entries; d++)
        if (all[d] > 1) {
            estimator_average(&mean[d], learned[d], all[d]);
            entry[d].estimator = &mean[d];
        } else if (all[d])
            entry[d].estimator = learned[d][0];
    return calibration_write(path, model, entry, entries, err);
}

/* Counts the prompt as seen, in the decoder that counts prompts. A later turn of a chat keeps the count of its first turn. */
static int count_prompt(struct decoder *decoder, const struct decode_prompt *prompt, struct err *err)
{
    const struct decoder *counts = decoder->setup.counts;
    if (prompt->turn > 0) {
        sampler_go_on(decoder->sampler, prompt->token, prompt->tokens);
        return 0;
    }
    return sampler_begin_by(decoder->sampler, counts ? counts->sampler : decoder->sampler, prompt->token, prompt->tokens,
                            prompt->sample, err);
}

int decoder_skip(struct decoder *decoder, const struct decode_prompt *prompt, struct err *err)
{
    return count_prompt(decoder, prompt, err);
}

/* Returns how many tokens of the prompt can stay in the KV cache with the bits of a new computation; never all, because the
 * logits of the last token are needed. */
static int kept_tokens(const struct decoder *decoder, const struct decode_prompt *prompt)
{
    const struct decoder_setup *setup = &decoder->setup;
    if (!setup->keep || setup->want_drafts || decoder->forced || decoder->features.count || !decoder->sequence)
        return 0;
    int max = sequence_length(decoder->sequence), same = 0;
    max = decoder->computed < max ? decoder->computed : max;
    max = prompt->tokens - 1 < max ? prompt->tokens - 1 : max;
    while (same < max && decoder->text[same] == prompt->token[same])
        same++;
    return sequence_keeps(decoder->sequence,
                          engine_prompt_keeps(setup->engine, same, decoder->prompt_tokens, prompt->tokens));
}

/* Returns the maximum number of pending nodes after the text. */
static int pending_nodes(const struct decoder *decoder)
{
    const int drafted = decoder->shape->room > decoder->nodes ? decoder->shape->room : decoder->nodes;
    int nodes = decoder->nodes + decoder->riders;
    for (int i = 0; i < decoder->drafters.count; i++)           /* nodes of this drafter may stay while the target verifies */
        nodes += decoder->drafters.item[i]->class->pends ? 1 + drafted : 0;
    return nodes;
}

/* Prepares a sequence that contains the first `kept` tokens of the previous one, with room for `tokens` tokens and the draft
 * nodes after them. */
static int prepare_sequence(struct decoder *decoder, int tokens, int kept, struct err *err)
{
    int max = engine_max_positions(decoder->setup.engine), old = 0, nodes = pending_nodes(decoder);
    struct sequence *before = decoder->sequence;
    if (before) {
        old = sequence_capacity(before);
        if (old >= tokens + nodes)
            return sequence_truncate(before, kept, err);
    }
    int room = old < max / 2 ? 2 * old : max;             /* so that a growing conversation rarely needs a new sequence */
    decoder->sequence = NULL;
    if (!kept)
        sequence_close(&before);
    int rc = sequence_open(&decoder->sequence, decoder->setup.engine, (room < tokens ? tokens : room) + nodes, err) ||
             (kept && sequence_copy(decoder->sequence, before, kept, err)) ? -1 : 0;
    sequence_close(&before);
    return rc;
}

/* Returns the number of new tokens that the prompt or the settings request. */
static int tokens_wanted(const struct decoder *decoder, const struct decode_prompt *prompt)
{
    int given = decoder->setup.settings->max_tokens;
    if (prompt->max_tokens && (given < 0 || prompt->max_tokens < given))
        return prompt->max_tokens;
    return given >= 0 ? given : DECODE_TOKENS_DEFAULT;
}

int decoder_check(const struct decoder *decoder, const struct decode_prompt *prompt, struct err *err)
{
    int max = engine_max_positions(decoder->setup.engine);
    if (prompt->tokens < 1)
        return err_set(err, ERR_INPUT, "the prompt has no tokens; give at least one");
    if (prompt->tokens > max || (prompt->tokens == max && tokens_wanted(decoder, prompt)))
        return err_set(err, ERR_INPUT, "the prompt has %d tokens, but the context is %d for prompt and answer together; "
                       "shorten the prompt, or give a larger --context if the model supports it", prompt->tokens, max);
    for (int i = 0; i < prompt->tokens; i++)
        if (prompt->token[i] < 0 || prompt->token[i] >= decoder->vocab)
            return err_set(err, ERR_INPUT, "token %d is outside the vocabulary of %d tokens, so the tokenizer belongs to "
                           "another model; convert the checkpoint with its own tokenizer", (int)prompt->token[i],
                           decoder->vocab);
    return decoder->forced ? forced_find(decoder->forced, prompt->token, prompt->tokens, err) : 0;
}

/* Returns the maximum number of new tokens for this prompt: the requested number, limited by a forced answer and by the
 * context. */
static int token_limit(const struct decoder *decoder, const struct decode_prompt *prompt)
{
    int room = engine_max_positions(decoder->setup.engine) - prompt->tokens, limit = tokens_wanted(decoder, prompt);
    int forced = decoder->forced ? forced_tokens(decoder->forced) : -1;
    limit = forced >= 0 && forced < limit ? forced : limit;
    return limit < room ? limit : room;
}

int decoder_room(const struct decoder *decoder, const struct decode_prompt *prompt)
{
    return prompt->tokens + token_limit(decoder, prompt) + pending_nodes(decoder);
}

/* Begins the text in all watches. This time is not counted. */
static int begin_watches(struct decoder *decoder, const struct decode_prompt *prompt, int limit, struct err *err)
{
    double start = clock_seconds();
    for (int i = 0; i < decoder->watches.count; i++) {
        struct watch *watch = decoder->watches.item[i];
        if (watch->class->begin && watch->class->begin(watch, prompt, limit, err))
            return -1;
    }
    decoder->began += clock_seconds() - start;
    return 0;
}

/* Context of on_piece, which is called after each piece of a prompt. */
struct piece_seen {
    struct decoder *decoder;
    const struct decode_prompt *prompt;
    const struct decode_sink *sink;
    int32_t row[ENGINE_SLAB_MAX];       /* 0, 1, ... */
};

_Static_assert((int)ENGINE_SLAB_MAX >= (int)ENGINE_ROWS_MAX, "rows of a piece");

static int on_piece(void *context, const struct forward *piece, int position, struct err *err)
{
    struct piece_seen *seen = context;
    const struct target_view view = {.forward = piece, .features = &seen->decoder->features, .position = position,
                                     .token = seen->prompt->token + position,
                                     .kept = seen->row, .kept_rows = piece->rows, .prompt = true};
    for (int row = 0; row < piece->rows; row++)
        seen->row[row] = row;
    if ((seen->sink->prompt && seen->sink->prompt(seen->sink->context, piece, position, err)) ||
        drafters_observe(&seen->decoder->drafters, &view, err))
        return -1;
    return stop_asked(seen->decoder->setup.stop) ? err_set(err, ERR_SIGNAL, "interrupted") : 0;
}

/* Begins the text in all drafters, before the target reads the prompt; they then see each piece as it is read. */
static int begin_drafters(struct decoder *decoder, const struct decode_prompt *prompt, int limit, struct err *err)
{
    const struct draft_text text = {decoder->sequence, prompt->tokens + limit, *sampler_draw(decoder->sampler)};
    return drafters_begin(&decoder->drafters, &text, prompt->token, prompt->tokens, err);
}

const struct feature_request *decoder_features(const struct decoder *decoder)
{
    return decoder->features.count ? &decoder->features : NULL;
}

static int read_prompt(struct decoder *decoder, const struct decode_prompt *prompt, const struct decode_sink *sink,
                       struct err *err)
{
    const struct decoder_setup *setup = &decoder->setup;
    const struct batch options = {.logit_rows = setup->want_prompt_logits ? ENGINE_EVERY_ROW : 0,
                                  .want_scores = setup->want_scores, .want_hidden = setup->want_hidden,
                                  .features = decoder_features(decoder),
                                  .choice = decoder->chooses && !setup->want_prompt_logits ? &decoder->choice : NULL};
    const struct policy_text about = {prompt->sequence, prompt->task, prompt->token, prompt->tokens};
    struct piece_seen seen = {.decoder = decoder, .prompt = prompt, .sink = sink};
    struct forward forward;
    if (decoder->forced && forced_begin(decoder->forced, prompt->token, prompt->tokens, err))
        return -1;
    const int limit = token_limit(decoder, prompt), kept = kept_tokens(decoder, prompt);
    decoder->result.kept = kept;
    decoder->length = decoder->computed = 0;
    decoder->text_given = 0;
    ending_begin(&decoder->ending, limit);
    if (decoder->policy->class->begin)
        decoder->policy->class->begin(decoder->policy, &about);
    if (mem_grow(&decoder->text, &decoder->text_room, (size_t)prompt->tokens, sizeof *decoder->text, err) ||
        begin_watches(decoder, prompt, limit, err) ||
        count_prompt(decoder, prompt, err) ||
        prepare_sequence(decoder, prompt->tokens + limit, kept, err) || begin_drafters(decoder, prompt, limit, err))
        return -1;
    memcpy(decoder->text, prompt->token, (size_t)prompt->tokens * sizeof *decoder->text);
    decoder->computed = decoder->prompt_tokens = prompt->tokens;
    decoder->choice = (struct engine_choice){decoder->drafting.filter, *sampler_draw(decoder->sampler)};
    if (engine_prompt(setup->engine, decoder->sequence, prompt->token + kept, prompt->tokens - kept, &options, on_piece, &seen,
                      &forward, err))
        return -1;
    decoder->length = prompt->tokens;
    if (!decoder->ending.ended) {
        const int32_t first = decoder_first_token(decoder, &forward, err);
        if (first < 0 || decoder_emit(decoder, &first, 1, err) < 0)
            return -1;
    }
    decoder->result.prefill_s = clock_seconds() - decoder->began;
    if (sink->begin && sink->begin(sink->context, decoder->result.prefill_s, err))
        return -1;
    return decoder_deliver_text(decoder, sink, err);
}

/* Fills the result with the text decoded so far. */
static void answer(struct decoder *decoder)
{
    struct decode_result *result = &decoder->result;
    struct ending *ending = &decoder->ending;
    if (!ending->ended && ending->text.data) {                  /* exactly the bytes that the sink has received */
        ending->text.length = ending->certain;
        ending->text.data[ending->certain] = '\0';
    }
    result->token = decoder->text + decoder->prompt_tokens;
    result->tokens = decoder->length - decoder->prompt_tokens;
    result->text = !decoder->setup.tokenizer ? NULL : ending->text.data ? ending->text.data : "";
    result->text_bytes = ending->text.length;
    result->finish = ending->ended ? ending->reason : FINISH_ABORT;
}

int decoder_replay(struct decoder *decoder, const struct decode_prompt *prompt, const int32_t *token, int tokens,
                   struct decode_result *out, struct err *err)
{
    decoder->result = (struct decode_result){0};
    if (decoder_check(decoder, prompt, err) ||
        (decoder->forced && forced_begin(decoder->forced, prompt->token, prompt->tokens, err)) ||
        count_prompt(decoder, prompt, err) ||
        mem_grow(&decoder->text, &decoder->text_room, (size_t)prompt->tokens, sizeof *decoder->text, err))
        return -1;
    for (int i = 0; i < tokens; i++)
        if (token[i] < 0 || token[i] >= decoder->vocab)
            return err_set(err, ERR_INPUT, "its token %d is outside the vocabulary of %d tokens", (int)token[i],
                           decoder->vocab);
    memcpy(decoder->text, prompt->token, (size_t)prompt->tokens * sizeof *decoder->text);
    decoder->computed = 0;                                  /* the KV cache contains another text */
    decoder->length = decoder->prompt_tokens = prompt->tokens;
    ending_begin(&decoder->ending, token_limit(decoder, prompt));
    int put = decoder_append(decoder, token, tokens, err);
    if (put < 0)
        return -1;
    if (put != tokens || !decoder->ending.ended)
        return err_set(err, ERR_INPUT, "the earlier run ended this text after %d tokens, but with these settings it ends %s",
                       tokens,
                       decoder->ending.ended ? "sooner" : "later");
    answer(decoder);
    *out = decoder->result;
    return 0;
}

int decoder_begin(struct decoder *decoder, const struct decode_prompt *prompt, const struct decode_sink *sink, struct err *err)
{
    struct decode_result *result = &decoder->result;
    decoder->began = clock_seconds();
    decoder->sink = *sink;
    *result = (struct decode_result){0};
    decoder->learning_s = 0;
    if (decoder_check(decoder, prompt, err) || read_prompt(decoder, prompt, sink, err))
        return -1;
    result->total_s = result->prefill_s;
    return 0;
}

bool decoder_ends(const struct decoder *decoder) { return decoder->ending.ended || stop_asked(decoder->setup.stop); }

void decoder_end(struct decoder *decoder, struct decode_result *out)
{
    if (!decoder->setup.budget || !decoder->setup.budget->verifies)
        decoder->computed = decoder->length;
    answer(decoder);
    *out = decoder->result;
}

/* Runs a step of each text. If a stop interrupts a forward, texts end before this iteration. */
int decoders_step(struct decoder *const *decoder, int count, int *failed, struct err *err)
{
    int64_t before = 0, after = 0;
    *failed = count == 1 ? 0 : -1;
    if (count == 1 && decoder[0]->by_device)
        return decoder_iterate_on_device(decoder[0], &decoder[0]->sink, err);
    for (int i = 0; i < count; i++)
        before += decoder[i]->length;
    if (!decoders_iterate(decoder, count, err))
        return 0;
    for (int i = 0; i < count; i++) {
        after += decoder[i]->length;
        *failed = decoder[i]->step.failed ? i : *failed;
    }
    if (!err || err->code != ERR_SIGNAL || before != after)
        return -1;
    err_clear(err);
    for (int i = 0; i < count; i++)
        sequence_rollback(decoder[i]->sequence);
    return 0;
}

int decoder_run(struct decoder *decoder, const struct decode_prompt *prompt, const struct decode_sink *sink,
                struct decode_result *out, struct err *err)
{
    int failed;
    if (decoder_begin(decoder, prompt, sink, err))
        return -1;
    while (!decoder_ends(decoder))
        if (decoders_step(&decoder, 1, &failed, err))
            return -1;
    decoder_end(decoder, out);
    return 0;
}
