#include "common/instruments/record.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/cache/utility_rule.h"
#include "common/decode/grow.h"
#include "common/draft/drafter.h"
#include "common/engine/second.h"

static double microseconds(double seconds) { return 1e6 * seconds; }

static int put(struct decode_recorder *recorder, const struct record_kind *kind, const void *body, struct err *err)
{
    if (writer_record(recorder->writer, kind, body, err))
        return -1;
    return recorder->flush ? writer_flush(recorder->writer, err) : 0;
}

void decode_describe(struct decode_described *out, const struct session *session, const struct decoder *decoder,
                     const char *options)
{
    const struct device_info *info = device_info(session->device);
    memcpy(out->device, info->name, sizeof out->device);
    char *isa = strchr(out->device, ' ');              /* "host avx512" */
    if (isa)
        *isa++ = '\0';
    out->machine = (struct decode_machine){.threads = info->threads, .device = out->device, .isa = isa,
                                           .kv_dtype = session_cache_words[engine_config(session->engine)->cache],
                                           .loop = decoder_loop_device(decoder), .drafters = decoder_drafters(decoder),
                                           .options = options, .read_bandwidth = NAN};
}

int decode_record_machine(struct decode_recorder *recorder, const struct decode_described *described, struct err *err)
{
    return put(recorder, &decode_machine_kind, &described->machine, err);
}

int decode_record_begin(struct decode_recorder *recorder, const struct prompt *prompt, double prefill_s, struct err *err)
{
    struct decode_begin begin = {
        .sequence = recorder->sequence, .id = prompt->id, .task = prompt->task, .prompt_tokens = prompt->tokens.n,
        .prefill_us = microseconds(prefill_s), .prompt = prompt->tokens.ids};
    return put(recorder, &decode_begin_kind, &begin, err);
}

_Static_assert((int)DECODE_DRAFTERS_MAX == (int)DRAFTERS_MAX, "drafters of a record");

/* Arrays of a record with one value per node or drafter. */
struct by_drafter {
    int32_t node_drafters[ENGINE_ROWS_MAX], node_reviewers[ENGINE_ROWS_MAX];
    int32_t steps[DRAFTERS_MAX], levels[DRAFTERS_MAX], reviewed[DRAFTERS_MAX], proposed[DRAFTERS_MAX], verified[DRAFTERS_MAX],
            accepted[DRAFTERS_MAX], catch_up[DRAFTERS_MAX];
    int64_t bytes[DRAFTERS_MAX];
    double us[DRAFTERS_MAX], catch_up_us[DRAFTERS_MAX];
};

/* Sets the drafters' arrays. Element 0 of arrays by node belongs to the root, which no drafter proposed. */
static void put_drafters(struct decode_iter *iter, const struct decode_iteration *iteration, struct by_drafter *room)
{
    const struct draft_tree *tree = iteration->tree;
    room->node_drafters[0] = room->node_reviewers[0] = -1;
    for (int node = 0; node < tree->nodes; node++) {
        room->node_drafters[1 + node] = tree->drafter[node];
        room->node_reviewers[1 + node] = tree->reviewer[node];
    }
    for (int i = 0; i < iteration->drafters; i++) {
        const struct draft_share *share = &iteration->share[i];
        room->steps[i] = share->steps;
        room->levels[i] = share->levels;
        room->reviewed[i] = share->reviewed;
        room->proposed[i] = share->proposed;
        room->verified[i] = share->verified;
        room->accepted[i] = share->accepted;
        room->catch_up[i] = share->caught_up;
        room->bytes[i] = share->bytes;
        room->us[i] = microseconds(share->seconds);
        room->catch_up_us[i] = microseconds(share->caught_up_s);
    }
    iter->drafters = iteration->drafters;
    iter->node_drafters = room->node_drafters;
    iter->node_reviewers = room->node_reviewers;
    iter->drafter_steps = room->steps;
    iter->drafter_levels = room->levels;
    iter->drafter_reviewed = room->reviewed;
    iter->drafter_proposed = room->proposed;
    iter->drafter_verified = room->verified;
    iter->drafter_accepted = room->accepted;
    iter->drafter_bytes = room->bytes;
    iter->drafter_us = room->us;
    iter->drafter_catch_up = room->catch_up;
    iter->drafter_catch_up_us = room->catch_up_us;
}

/* Arrays of a record with one value per node. */
struct by_node {
    float log_probability[ENGINE_ROWS_MAX];
    int32_t match[ENGINE_ROWS_MAX];
};

static void put_nodes(struct decode_iter *iter, const struct decode_iteration *iteration, struct by_node *room)
{
    const struct draft_tree *tree = iteration->tree;
    room->log_probability[0] = NAN;
    room->match[0] = 0;
    for (int node = 0; node < tree->nodes; node++) {
        room->log_probability[1 + node] = tree->log_probability[node];
        room->match[1 + node] = tree->match[node];
    }
    iter->node_log_probability = room->log_probability;
    iter->node_match = room->match;
}

static void put_steps(struct decode_iter *iter, const struct draft_steps *steps)
{
    iter->steps = steps->count;
    iter->step_kind = steps->kind;
    iter->step_drafter = steps->drafter;
    iter->step_leaf = steps->leaf;
    iter->step_leaves = steps->leaves;
    iter->step_tokens = steps->tokens;
    iter->step_added = steps->added;
    iter->step_dropped = steps->dropped;
    iter->dropped = steps->drops;
    iter->dropped_nodes = steps->node;
    iter->dropped_parents = steps->parent;
    iter->dropped_tokens = steps->token;
    iter->dropped_drafters = steps->by;
    iter->dropped_match = steps->match;
    iter->dropped_log_probability = steps->log_probability;
}

/* Copies the experts of the root and of the accepted tokens to *room, which the caller frees. */
static int put_experts(struct decode_iter *iter, const struct decode_iteration *iteration, int32_t **room, struct err *err)
{
    const struct forward *forward = iteration->forward;
    const size_t row = (size_t)forward->moe_layers * (size_t)forward->top_k;
    *room = mem_alloc((size_t)iter->emitted * row + 1, sizeof **room, err);
    if (!*room)
        return -1;
    for (int i = 0; i < iter->emitted; i++)
        memcpy(*room + (size_t)i * row, forward->expert + (size_t)iteration->path[i] * row, row * sizeof **room);
    iter->emitted_experts = *room;
    return 0;
}

static void put_cache(struct decode_iter *iter, const struct store_facts *stored)
{
    iter->cache_hits = stored->hits;
    iter->cache_misses = stored->misses;
    iter->cache_read_bytes = stored->bytes;
    iter->cache_prefetched_bytes = stored->prefetched;
    iter->cache_wasted_bytes = stored->wasted;
    iter->cache_stall_us = microseconds(stored->stall);
    if (stored->copies) {
        iter->cache_host_hits = stored->host_hits;
        iter->cache_copied_bytes = stored->copied;
        iter->cache_copied_early_bytes = stored->copied_early;
        iter->cache_copied_wasted_bytes = stored->copied_wasted;
        iter->cache_stall_copies_us = microseconds(stored->stall_copies);
    }
    if (!stored->forecasts)
        return;
    iter->cache_named = stored->named;
    iter->cache_right = stored->right;
    iter->cache_scored = stored->scored;
}

static void put_split(struct decode_iter *iter, const struct second_facts *split, bool routes)
{
    values_text(&iter->split, "name", split_rule_name(&split->rule));
    values_int(&iter->split, "warms_up", split->warms_up);
    values_real(&iter->split, "pair_us", 1e6 * split->pair_s);
    values_real(&iter->split, "expert_us", 1e6 * split->expert_s);
    values_real(&iter->split, "copy_us", 1e6 * split->copy_s);
    values_real(&iter->split, "draft_us", 1e6 * split->draft_s);
    iter->split_host_us = microseconds(split->host_s);
    iter->split_wait_us = microseconds(split->wait_s);
    iter->split_tau = split->tau;
    iter->split_device_experts = split->device_experts;
    iter->split_host_experts = split->host_experts;
    iter->split_device_pairs = split->device_pairs;
    iter->split_host_pairs = split->host_pairs;
    if (!routes || !split->fetches)
        return;
    iter->split_levels = split->K + 1;
    iter->split_fetches = split->fetches;
    iter->split_cold = split->cold;
    iter->split_host_share = split->cold_share;
    iter->split_device_share = split->hot_share;
}

/* Fills in the utility states (Algorithm 1 of MoE-SpAc) as arrays in *room, which the caller frees. */
static int put_utility(struct decode_iter *iter, const struct decode_iteration *iteration, void **room, struct err *err)
{
    const size_t keys = (size_t)iteration->forward->moe_layers * (size_t)iteration->forward->experts;
    double *up = mem_alloc(keys, 2 * sizeof *up + sizeof(int32_t), err);
    if (!up)
        return -1;
    double *down = up + keys;
    int32_t *level = (int32_t *)(down + keys);
    for (size_t i = 0; i < keys; i++) {
        level[i] = iteration->utility[i].level;
        up[i] = iteration->utility[i].up;
        down[i] = iteration->utility[i].down;
    }
    iter->cache_levels = level;
    iter->cache_up = up;
    iter->cache_down = down;
    *room = up;
    return 0;
}

static void put_shared(struct decode_iter *iter, const struct forward *forward)
{
    if (forward->texts < 2) {
        iter->shared_us = NAN;
        return;
    }
    iter->shared_texts = forward->texts;
    iter->shared_rows = forward->all_rows;
    iter->shared_experts = iter->shared_only = 0;
    for (int layer = 0; layer < forward->moe_layers; layer++) {
        iter->shared_experts += forward->all_loaded[layer];
        iter->shared_only += forward->only_loaded[layer];
    }
}

/* Marks optional numbers that are 0 as absent. */
static void omit_zeros(struct decode_iter *iter)
{
    iter->draft_bytes = iter->draft_bytes ? iter->draft_bytes : -1;
    iter->catch_up_us = iter->catch_up ? iter->catch_up_us : NAN;
    iter->catch_up = iter->catch_up ? iter->catch_up : -1;
    iter->probe_us = iter->probe ? iter->probe_us : NAN;
    iter->probe_bytes = iter->probe ? iter->probe_bytes : -1;
    iter->probe = iter->probe ? iter->probe : -1;
    iter->restored = iter->restored ? iter->restored : -1;
    iter->riders = iter->riders ? iter->riders : -1;
}

int decode_record_iteration(struct decode_recorder *recorder, const struct decode_iteration *iteration, struct err *err)
{
    const struct forward *forward = iteration->forward;
    struct decode_iter iter = iteration->record;
    iter.sequence = recorder->sequence;
    iter.reconstruction = forward->reconstruction;
    struct by_drafter room;
    struct by_node nodes;
    void *states = NULL;
    int32_t *experts = NULL;
    omit_zeros(&iter);
    put_shared(&iter, forward);
    if (iteration->caches)
        put_cache(&iter, &iteration->stored);
    if (iteration->split)
        put_split(&iter, iteration->split, recorder->routes);
    if (iteration->drafters > 1)
        put_drafters(&iter, iteration, &room);
    const bool steps = recorder->steps && iteration->steps && iteration->drafters;
    if (steps || iter.node_acceptance)
        put_nodes(&iter, iteration, &nodes);
    if (steps)
        put_steps(&iter, iteration->steps);
    if (steps && forward->expert && put_experts(&iter, iteration, &experts, err))
        return -1;
    for (int layer = 0; layer < forward->moe_layers; layer++) {
        iter.experts_wanted += forward->distinct_wanted[layer];
        iter.experts_loaded += forward->distinct_loaded[layer];
    }
    if (recorder->routes) {
        iter.experts_wanted_layer = forward->distinct_wanted;
        iter.experts_loaded_layer = forward->distinct_loaded;
        if (iteration->utility && put_utility(&iter, iteration, &states, err)) {
            mem_free(&experts);
            return -1;
        }
    }
    int rc = put(recorder, &decode_iter_kind, &iter, err);
    mem_free(&states);
    mem_free(&experts);
    return rc;
}

int decode_record_failed(struct decode_recorder *recorder, const char *id, const char *message, struct err *err)
{
    const struct decode_failed failed = {.id = id, .message = message};
    return put(recorder, &decode_failed_kind, &failed, err);
}

int decode_record_draft(struct decode_recorder *recorder, const struct decode_draft *draft, struct err *err)
{
    struct decode_draft body = *draft;
    body.sequence = recorder->sequence;
    return put(recorder, &decode_draft_kind, &body, err);
}

int decode_record_text(const char **out, struct text *room, const struct decode_result *result, struct err *err)
{
    const char *at = result->text, *end = at ? at + result->text_bytes : NULL;
    *out = at;
    if (!at || !memchr(at, '\0', result->text_bytes))
        return 0;
    for (const char *stop; (stop = memchr(at, '\0', (size_t)(end - at))); at = stop + 1)
        if (text_put(room, at, (size_t)(stop - at), err) || text_puts(room, "\xef\xbf\xbd", err))
            return -1;
    if (text_put(room, at, (size_t)(end - at), err))
        return -1;
    *out = room->data;
    return 0;
}

int decode_record_done(struct decode_recorder *recorder, const struct prompt *prompt, const struct decode_result *result,
                       struct err *err)
{
    struct text room = {0};
    struct decode_done done = {
        .sequence = recorder->sequence, .id = prompt->id, .n = result->tokens, .tokens = result->token,
        .finish_reason = result->finish, .num_drafts = result->drafts, .num_draft_tokens = result->draft_tokens,
        .num_accepted_tokens = result->accepted_tokens};
    int rc = decode_record_text(&done.text, &room, result, err) || put(recorder, &decode_done_kind, &done, err) ? -1 : 0;
    text_free(&room);
    return rc;
}
