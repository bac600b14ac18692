/* Runs an iteration in steps, each of which leaves its results in the iteration's record or in plain arrays of the decoder:
 *
 *     propose    the policy and the drafters grow a tree; drafters may add riders, rows of their own
 *     forward    the target reads root, tree and riders, of all texts that share the forward
 *     accept     follows the target's choices through the tree; fills path and emitted
 *     check      watches may have tokens chosen again
 *     show       drafters receive the riders' logits and the kept states
 *     commit     the KV cache, the text and the drafters keep the emitted tokens
 *     decide     the policy learns the outcome
 *     record     passes the record to the caller
 *
 * Watches (watch.h) run between the steps; they measure, or change the forward. device_loop.c runs all steps but the last
 * two on a device. */
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/cache/utility.h"
#include "common/decode/forced.h"
#include "common/decode/grow.h"
#include "common/decode/internal.h"
#include "common/engine/peers.h"
#include "common/engine/second.h"

int decoder_append(struct decoder *decoder, const int32_t *token, int count, struct err *err)
{
    int emitted = 0;
    if (mem_grow(&decoder->text, &decoder->text_room, (size_t)(decoder->length + count), sizeof *decoder->text, err))
        return -1;
    while (emitted < count && !decoder->ending.ended) {
        decoder->text[decoder->length++] = token[emitted];
        if (ending_put(&decoder->ending, token[emitted++], err))
            return -1;
    }
    return emitted;
}

int decoder_emit(struct decoder *decoder, const int32_t *token, int count, struct err *err)
{
    int emitted = decoder_append(decoder, token, count, err);
    return emitted >= 0 && drafters_commit(&decoder->drafters, token, emitted, err) ? -1 : emitted;
}

int decoder_deliver_text(struct decoder *decoder, const struct decode_sink *sink, struct err *err)
{
    size_t from = decoder->text_given;
    decoder->text_given = decoder->ending.certain;
    if (!sink->text || decoder->text_given == from)
        return 0;
    return sink->text(sink->context, decoder->ending.text.data + from, decoder->text_given - from, err);
}

bool decoder_text_is_forced(const struct decoder *decoder)
{
    return decoder->forced && forced_tokens(decoder->forced) > 0;
}

static int watch_start(struct decoder *decoder, struct err *err)
{
    for (int i = 0; i < decoder->watches.count; i++) {
        struct watch *watch = decoder->watches.item[i];
        if (watch->class->start && watch->class->start(watch, decoder->text[decoder->length - 1], err))
            return -1;
    }
    return 0;
}

/* Grows the draft as the policy requests, and writes its nodes as rows of the forward. */
static int propose(struct decoder *decoder, struct decode_iteration *iteration, struct err *err)
{
    struct decode_iter *record = &iteration->record;
    struct draft_tree *tree = &decoder->tree;
    const int room = decoder->ending.limit - decoder->ending.tokens - 1;
    const struct growth growth = {tree, decoder->leaf, decoder->policy, &decoder->drafters, decoder->share,
                                  &decoder->steps};
    draft_tree_clear(tree);
    if (decoder->drafters.count && (record->drafted = draft_grow(&growth, room, err)) < 0)
        return -1;
    if (tree->nodes > decoder->shape->nodes)
        return err_set(err, ERR_INPUT, "the draft has %d tokens, more than the maximum of %d", tree->nodes,
                       decoder->shape->nodes);
    decoder->token[0] = decoder->text[decoder->length - 1];
    decoder->parent[0] = -1;
    for (int node = 0; node < tree->nodes; node++) {
        decoder->token[1 + node] = tree->token[node];
        decoder->parent[1 + node] = 1 + tree->parent[node];
    }
    record->nodes = 1 + tree->nodes;
    record->K = decoder->drafters.count ? decoder->policy->class->length(decoder->policy) : 0;
    decoder->policy->class->state(decoder->policy, &record->policy);
    if (decoder->policy->class->chances) {
        decoder->node_acceptance[0] = NAN;
        decoder->policy->class->chances(decoder->policy, tree->nodes, decoder->node_acceptance + 1);
        record->node_acceptance = decoder->node_acceptance;
    }
    return decoder_add_riders(decoder, iteration, err);
}

/* Prepares the forward over root and draft. Rows that drafters appended to the target's cache are dropped before, except
 * rows that stopped after some layers: the forward continues these. */
static int prepare(struct decoder *decoder, struct decode_iteration *iteration, struct err *err)
{
    const struct decoder_setup *setup = &decoder->setup;
    const int rows = iteration->record.nodes + iteration->record.riders;
    decoder->batch = (struct batch){
        .rows = rows, .token = decoder->token, .parent = decoder->parent, .logit_rows = rows,
        .want_reconstruction = setup->settings->reconstruction, .want_scores = setup->want_scores,
        .want_hidden = setup->want_hidden, .features = decoder_features(decoder), .resume = true};
    decoder->choice = (struct engine_choice){decoder->drafting.filter, *sampler_draw(decoder->sampler)};
    if (decoder->chooses && !iteration->record.riders)
        decoder->batch.choice = &decoder->choice;
    for (int i = 0; i < decoder->watches.count; i++) {
        struct watch *watch = decoder->watches.item[i];
        if (watch->class->before && watch->class->before(watch, decoder->sequence, &decoder->batch, iteration, err))
            return -1;
    }
    return 0;
}

/* Writes the accepted nodes to path[] and returns their number. */
static int follow(struct decoder *decoder, const struct decode_iteration *iteration, int32_t *path, struct err *err)
{
    const struct draft_tree *tree = &decoder->tree;
    const struct forward *forward = iteration->forward;
    const struct reject_draft drafted = {tree->nodes, tree->token, tree->parent, tree->proposal};
    struct sample_draw draw = *sampler_draw(decoder->sampler);
    draw.position = (uint32_t)iteration->position;
    if (decoder_text_is_forced(decoder))
        return forced_accept(decoder->forced, decoder->length - decoder->prompt_tokens, tree, path, decoder->emitted);
    if (forward->choice)
        return acceptance_follow(decoder->acceptance, &drafted, forward->choice, iteration->position, path, decoder->emitted,
                                 err);
    return acceptance_accept(decoder->acceptance, &drafted, forward->logits, &draw, path, decoder->emitted, err);
}

int32_t decoder_first_token(struct decoder *decoder, const struct forward *forward, struct err *err)
{
    const int last = forward->logit_rows - 1, position = decoder->prompt_tokens;
    int32_t token;
    if (decoder_text_is_forced(decoder))
        return forced_text(decoder->forced)[0];
    if (!forward->choice)
        return sampler_choose(decoder->sampler, forward->logits + (size_t)last * (size_t)forward->vocab, position, err);
    return acceptance_follow(decoder->acceptance, &(struct reject_draft){0}, forward->choice + last, position - 1,
                             decoder->path, &token, err) < 0 ? -1 : token;
}

/* Accepts the draft's nodes that the target chooses; sets path and kept. */
static int accept(struct decoder *decoder, struct decode_iteration *iteration, struct err *err)
{
    int32_t *path = decoder->path;
    const int accepted = follow(decoder, iteration, path + 1, err);
    if (accepted < 0)
        return -1;
    memset(decoder->kept, 0, sizeof decoder->kept);
    path[0] = 0;
    decoder->kept[0] = 1;
    for (int i = 1; i <= accepted; i++) {
        path[i]++;
        decoder->kept[path[i]] = 1;
    }
    iteration->record.accepted = accepted;
    return 0;
}

/* Returns the riders' logits to their drafters, and passes them the kept states. */
static int show(struct decoder *decoder, const struct decode_iteration *iteration, struct err *err)
{
    const struct target_view view = {.forward = iteration->forward, .features = &decoder->features,
                                     .position = iteration->position, .token = decoder->token,
                                     .kept = decoder->path, .kept_rows = 1 + iteration->record.accepted};
    return decoder_return_riders(decoder, iteration, err) || drafters_observe(&decoder->drafters, &view, err) ? -1 : 0;
}

/* Commits the nodes of the accepted rows in the KV cache. */
static int keep_rows(struct decoder *decoder, const struct decode_iteration *iteration, struct err *err)
{
    int32_t node[ROWS_MAX];
    for (int i = 0; i <= iteration->record.accepted; i++)
        node[i] = iteration->forward->node[iteration->path[i]];
    return sequence_commit(decoder->sequence, node, 1 + iteration->record.accepted, err);
}

static int watch_check(struct decoder *decoder, struct decode_iteration *iteration, struct forward *forward, bool *changed,
                       struct err *err)
{
    *changed = false;
    for (int i = 0; i < decoder->watches.count; i++) {
        struct watch *watch = decoder->watches.item[i];
        bool by_this = false;
        if (watch->class->check && watch->class->check(watch, iteration, forward, &by_this, err))
            return -1;
        *changed |= by_this;
    }
    return 0;
}

/* Calls the watches, which may have tokens chosen again, until each chosen row was checked: every round but the last leads
 * to another branch of the draft. */
static int check(struct decoder *decoder, struct decode_iteration *iteration, struct forward *forward, struct err *err)
{
    int32_t seen[ROWS_MAX];
    bool changed, elsewhere;
    do {
        int accepted = iteration->record.accepted;
        elsewhere = false;
        memcpy(seen, decoder->path, (size_t)(1 + accepted) * sizeof *seen);
        if (watch_check(decoder, iteration, forward, &changed, err) || (changed && accept(decoder, iteration, err)))
            return -1;
        for (int i = 0; changed && i <= iteration->record.accepted; i++)
            elsewhere |= i > accepted || decoder->path[i] != seen[i];
    } while (elsewhere);
    return 0;
}

static int commit(struct decoder *decoder, struct decode_iteration *iteration, struct err *err)
{
    struct decode_iter *record = &iteration->record;
    double catch_up_s = 0;
    record->emitted = decoder_emit(decoder, decoder->emitted, record->accepted + 1, err);
    iteration->ends = decoder->ending.ended;
    drafters_collect(&decoder->drafters, decoder->share);
    draft_count_kept(&decoder->tree, decoder->kept, decoder->share);
    for (int i = 0; i < decoder->drafters.count; i++) {
        record->draft_bytes += decoder->share[i].bytes;
        record->catch_up += decoder->share[i].caught_up;
        catch_up_s += decoder->share[i].caught_up_s;
    }
    record->catch_up_us = 1e6 * catch_up_s;
    return record->emitted < 0 ? -1 : 0;
}

/* Returns the experts of the root and the kept tokens: of the forward itself if their rows are its first ones, as in a
 * chain; as a copy for a policy that learns from trees; else NULL. */
static const int32_t *experts_kept(struct decoder *decoder, const struct decode_iteration *iteration)
{
    const struct forward *forward = iteration->forward;
    const struct policy_class *policy = decoder->policy->class;
    const size_t row = (size_t)forward->moe_layers * (size_t)forward->top_k, rows = 1 + (size_t)iteration->record.accepted;
    bool first = row > 0;
    for (size_t i = 0; first && i < rows; i++)
        first = iteration->kept[i];
    if (first && (policy->learns_experts || (decoder_drafts_chains(decoder) && !policy->trees)))
        return forward->expert;
    if (!row || !policy->learns_experts ||
        mem_grow(&decoder->kept_expert, &decoder->kept_expert_room, rows * row, sizeof *decoder->kept_expert, NULL))
        return NULL;
    for (size_t i = 0; i < rows; i++)
        memcpy(decoder->kept_expert + i * row, forward->expert + (size_t)iteration->path[i] * row,
               row * sizeof *decoder->kept_expert);
    return decoder->kept_expert;
}

/* Sets the members of an outcome on a forward that texts shared. */
static void set_shared(const struct decode_iteration *iteration, struct outcome *out)
{
    const struct forward *forward = iteration->forward;
    out->shared_texts = forward->texts;
    out->shared_rows = forward->all_rows;
    out->shared_s = iteration->record.shared_us / 1e6 * (forward->all_rows - forward->rows) / forward->all_rows;
    for (int layer = 0; layer < forward->moe_layers; layer++) {
        out->shared_experts += forward->all_loaded[layer];
        out->shared_only += forward->only_loaded[layer];
    }
}

/* Reports the iteration to the policy, without the time and bytes of a probe: probes do not depend on what was drafted, so a
 * policy that counted them would learn wrong costs. */
static void decide(struct decoder *decoder, const struct decode_iteration *iteration)
{
    const struct decode_iter *record = &iteration->record;
    const struct forward *forward = iteration->forward;
    struct draft_share share[DRAFTERS_MAX];
    for (int i = 0; i < iteration->drafters; i++) {
        share[i] = iteration->share[i];
        const bool only = iteration->drafters == 1;             /* rounds as the record does, in microseconds */
        share[i].seconds = (only ? record->draft_us : 1e6 * share[i].seconds) / 1e6;
        share[i].caught_up_s = 1e6 * share[i].caught_up_s / 1e6;
    }
    struct outcome outcome = {
        .drafted = iteration->tree->nodes, .accepted = record->accepted, .emitted = record->emitted,
        .token = record->tokens, .draft_s = record->draft_us / 1e6, .verify_s = record->verify_us / 1e6,
        .expert = experts_kept(decoder, iteration),
        .moe_layers = forward->moe_layers, .top_k = forward->top_k,
        .bytes = record->bytes - record->probe_bytes, .draft_bytes = record->draft_bytes,
        .iteration_s = (record->draft_us + record->verify_us + record->accept_us + record->other_us - record->probe_us) / 1e6,
        .tree = iteration->tree, .kept = iteration->kept, .share = share};
    for (int layer = 0; layer < forward->moe_layers; layer++)
        outcome.experts_loaded += forward->distinct_loaded[layer];
    if (forward->texts > 1)
        set_shared(iteration, &outcome);
    double start = clock_seconds();
    if (decoder->policy->class->observe)
        decoder->policy->class->observe(decoder->policy, &outcome);
    decoder->learning_s = clock_seconds() - start;
}

static int record(struct decoder *decoder, const struct decode_iteration *iteration, const struct decode_sink *sink,
                  struct err *err)
{
    struct decode_result *result = &decoder->result;
    result->iterations++;
    result->drafts += iteration->tree->nodes > 0;
    result->draft_tokens += iteration->tree->nodes;
    result->accepted_tokens += iteration->record.accepted;
    result->total_s = iteration->record.t_us / 1e6;
    if (decoder_deliver_text(decoder, sink, err))
        return -1;
    return sink->iteration ? sink->iteration(sink->context, iteration, err) : 0;
}

int decoder_conclude(struct decoder *decoder, const struct decode_iteration *iteration, const struct decode_sink *sink,
                     struct err *err)
{
    decide(decoder, iteration);
    return record(decoder, iteration, sink, err);
}

static int watch_after(struct decoder *decoder, struct decode_iteration *iteration, struct err *err)
{
    for (int i = 0; i < decoder->watches.count; i++) {
        struct watch *watch = decoder->watches.item[i];
        if (watch->class->after && watch->class->after(watch, iteration, err))
            return -1;
    }
    return 0;
}

/* Calls the watches after the iteration. The clocks of all texts are stopped meanwhile. */
static int watch_after_untimed(struct decoder *decoder, const struct step_texts *texts, struct decode_iteration *iteration,
                               struct err *err)
{
    double start = clock_seconds();
    for (int i = 0; i < decoder->watches.count; i++) {
        struct watch *watch = decoder->watches.item[i];
        if (watch->class->after_untimed && watch->class->after_untimed(watch, iteration, err))
            return -1;
    }
    const double seconds = clock_seconds() - start;
    for (int i = 0; i < texts->count; i++)
        texts->decoder[i]->began += seconds;
    return 0;
}

/* Returns the counts of the expert source since the last call, for the iteration or the forward that caused them. */
static struct store_facts take_counts(struct step_texts *texts)
{
    struct store_facts now = {0};
    expert_source_facts(engine_config(texts->decoder[0]->setup.engine)->experts, &now);
    const struct store_facts taken = store_facts_since(&now, &texts->counted);
    texts->counted = now;
    return taken;
}

void decoder_start(struct decoder *decoder, struct decode_iteration *iteration)
{
    *iteration = (struct decode_iteration){
        .number = decoder->result.iterations, .position = decoder->length - 1, .tree = &decoder->tree,
        .drafters = decoder->drafters.count, .share = decoder->share, .kept = decoder->kept, .path = decoder->path};
    struct decode_iter *record = &iteration->record;
    record_kind_absent(&decode_iter_kind, record);
    record->draft_bytes = record->probe_bytes = 0;
    record->catch_up = record->probe = record->restored = record->riders = 0;
    record->catch_up_us = record->probe_us = 0;
    record->node_tokens = decoder->token;
    record->node_parents = decoder->parent;
    record->tokens = decoder->emitted;
}

/* Runs the steps before the forward. */
static int draft(struct decoder *decoder, struct step_texts *texts, struct err *err)
{
    struct started_iteration *step = &decoder->step;
    *step = (struct started_iteration){0};
    decoder_start(decoder, &step->iteration);
    step->iteration.steps = &decoder->steps;
    const double start = clock_seconds();
    if (watch_start(decoder, err) || propose(decoder, &step->iteration, err))
        return -1;
    step->draft_s = clock_seconds() - start;
    const double prepared = clock_seconds();
    if (prepare(decoder, &step->iteration, err))
        return -1;
    step->verify_s = clock_seconds() - prepared;
    step->iteration.stored = take_counts(texts);
    return 0;
}

/* Replaces an iteration's times by those of process 0 if several processes share the model, so that policies decide alike in
 * all. */
static int agree_on_times(struct decoder *decoder, struct decode_iteration *iteration, struct err *err)
{
    struct decode_iter *record = &iteration->record;
    enum { TIMES = 7, DRAFTER_TIMES = 2, TIMES_MAX = TIMES + DRAFTER_TIMES * DRAFTERS_MAX };
    double *own[TIMES_MAX] = {&record->draft_us, &record->verify_us, &record->accept_us, &record->other_us, &record->probe_us,
                              &record->t_us, &record->shared_us}, time[TIMES_MAX];
    struct peers *peers = engine_config(decoder->setup.engine)->peers;
    int count = TIMES;
    if (!peers)
        return 0;
    for (int i = 0; i < iteration->drafters; i++) {
        own[count++] = &decoder->share[i].seconds;
        own[count++] = &decoder->share[i].caught_up_s;
    }
    for (int i = 0; i < count; i++)
        time[i] = *own[i];
    if (peers_times(peers, time, count, err))
        return -1;
    for (int i = 0; i < count; i++)
        *own[i] = time[i];
    return 0;
}

static void note_cache(struct decode_iteration *iteration, const struct cache *cache)
{
    int K;
    if (!cache)
        return;
    iteration->utility = cache_utility_states(cache, &K);
    cache_state(cache, &iteration->record.cache);
}

/* Runs the steps after the forward. The clocks of all texts are stopped while a watch measures. */
static int finish_iteration(struct decoder *decoder, struct step_texts *texts, struct err *err)
{
    struct started_iteration *step = &decoder->step;
    struct decode_iteration *iteration = &step->iteration;
    struct decode_iter *record = &iteration->record;
    const struct expert_source *source = engine_config(decoder->setup.engine)->experts;
    struct second *second = engine_config(decoder->setup.engine)->second;
    double verified = clock_seconds(), chosen, checked, accepted, end;
    if (accept(decoder, iteration, err))
        return -1;
    chosen = clock_seconds();
    if (check(decoder, iteration, &step->forward, err))
        return -1;
    checked = clock_seconds();
    if (show(decoder, iteration, err) || keep_rows(decoder, iteration, err))
        return -1;
    accepted = clock_seconds();
    if (commit(decoder, iteration, err) || watch_after(decoder, iteration, err))
        return -1;
    end = clock_seconds();
    const struct store_facts stored = take_counts(texts);
    store_facts_add(&iteration->stored, &stored);
    note_cache(iteration, expert_source_cache(source));
    if (second) {
        second_drafted(second, step->draft_s, record->drafted);
        iteration->split = second_facts(second);
    }
    record->t_us = 1e6 * (end - decoder->began);
    record->draft_us = 1e6 * step->draft_s;
    record->verify_us = 1e6 * step->verify_s;
    record->accept_us = 1e6 * (chosen - verified + accepted - checked);
    /* learning_s: the policy learned from the previous iteration after that had ended */
    record->other_us = 1e6 * (checked - chosen + end - accepted + decoder->learning_s);
    if (watch_after_untimed(decoder, texts, iteration, err) || agree_on_times(decoder, iteration, err))
        return -1;
    return decoder_conclude(decoder, iteration, &decoder->sink, err);
}

/* Runs one forward for `count` texts from `first` on. Each text is charged its rows' share of the time and of reads of
 * experts. */
static int forward(struct step_texts *texts, int first, int count, struct err *err)
{
    struct decoder *const *decoder = texts->decoder + first;
    struct sequence *sequence[DECODERS_MAX];
    struct batch batch[DECODERS_MAX];
    struct forward out[DECODERS_MAX];
    const double start = clock_seconds();
    int rows = 0;
    for (int i = 0; i < count; i++) {
        sequence[i] = decoder[i]->sequence;
        batch[i] = decoder[i]->batch;
        rows += batch[i].rows;
    }
    if (engine_forward_texts(decoder[0]->setup.engine, sequence, batch, count, out, err))
        return -1;
    const double seconds = clock_seconds() - start;
    const struct store_facts stored = take_counts(texts);
    for (int i = 0, row = 0; i < count; row += batch[i++].rows) {
        struct started_iteration *step = &decoder[i]->step;
        const struct store_facts share = store_facts_share(&stored, row, batch[i].rows, rows);
        store_facts_add(&step->iteration.stored, &share);
        step->forward = out[i];
        step->verify_s += count == 1 ? seconds : seconds * batch[i].rows / rows;
        step->iteration.forward = &step->forward;
        step->iteration.record.bytes = out[i].bytes;
        step->iteration.record.shared_us = 1e6 * seconds;
    }
    return 0;
}

/* Runs all texts in order, as many per forward as can share it. */
static int forwards(struct step_texts *texts, struct err *err)
{
    struct decoder *const *decoder = texts->decoder;
    const int count = texts->count;
    const struct engine_setup *engine = engine_config(decoder[0]->setup.engine);
    for (int first = 0, next; first < count; first = next) {
        int rows = decoder[first]->batch.rows;
        for (next = first + 1; next < count; next++) {
            const struct batch *batch = &decoder[next]->batch;
            if (rows + batch->rows > engine->max_rows || rows + batch->rows > engine->max_logit_rows ||
                !engine_shares(&decoder[first]->batch, batch))
                break;
            rows += batch->rows;
        }
        if (forward(texts, first, next - first, err))
            return -1;
        /* before the next forward overwrites the results of this one */
        for (int i = first; i < next; i++) {
            decoder[i]->step.failed = true;
            if (finish_iteration(decoder[i], texts, err))
                return -1;
            decoder[i]->step.failed = false;
        }
    }
    return 0;
}

int decoders_iterate(struct decoder *const *decoder, int count, struct err *err)
{
    struct step_texts texts = {.decoder = decoder, .count = count};
    const bool caches = expert_source_facts(engine_config(decoder[0]->setup.engine)->experts, &texts.counted);
    for (int i = 0; i < count; i++)
        decoder[i]->step.failed = false;
    for (int i = 0; i < count; i++) {
        if (!draft(decoder[i], &texts, err)) {
            decoder[i]->step.iteration.caches = caches;
            continue;
        }
        decoder[i]->step.failed = true;
        return -1;
    }
    return forwards(&texts, err);
}
