#include "common/stream/decode.h"

#include <math.h>

static const char *const reasons[] = {"stop", "length", "abort", NULL};

static const struct field machine_fields[] = {
    FIELD(decode_machine, threads, false, "threads used"),
    FIELD(decode_machine, device, false, "where the model ran: host, ref, cuda:0"),
    FIELD(decode_machine, isa, true, "instruction set used on the host, and whether activations are rounded"),
    FIELD(decode_machine, gpu, true, "name of the GPU"),
    FIELD(decode_machine, kv_dtype, true, "format of keys and values: f32, f16, bf16, q8"),
    FIELD(decode_machine, loop, true, "where iterations ran: device; or host: and the reason"),
    FIELD(decode_machine, drafters, true, "the drafters in use, best first, as a list in JSON"),
    FIELD(decode_machine, options, true, "options on which the texts depend, as JSON"),
    FIELD(decode_machine, read_bandwidth, true, "measured read bandwidth of memory in bytes per second"),
};

static const struct field begin_fields[] = {
    FIELD(decode_begin, sequence, false, "number of the text within the stream"),
    FIELD(decode_begin, id, true, "the prompt's id"),
    FIELD(decode_begin, task, true, "the prompt's task"),
    FIELD(decode_begin, prompt_tokens, false, "tokens in the prompt"),
    FIELD(decode_begin, prefill_us, false, "time to read the prompt and choose the first token"),
    FIELD_ARRAY_OF(decode_begin, prompt, "[prompt_tokens]", true, "the prompt's token ids"),
};

static const struct field iter_fields[] = {
    FIELD(decode_iter, sequence, false, "the text this iteration worked on"),
    FIELD(decode_iter, t_us, false, "end of the iteration, counted from the sequence's begin"),
    FIELD(decode_iter, K, false, "draft length that the policy requested"),
    FIELD(decode_iter, nodes, false, "tokens of the verification: the root, which is the text's last token, and the draft"),
    FIELD(decode_iter, drafted, false, "tokens that drafters proposed, including those that were dropped before verification"),
    FIELD(decode_iter, accepted, false, "drafted tokens that were accepted"),
    FIELD(decode_iter, emitted, false, "tokens added to the text: the accepted tokens and the bonus token, up to the end of "
          "the text"),
    FIELD(decode_iter, draft_us, false, "time of drafting"),
    FIELD(decode_iter, verify_us, false, "time of the target's forward"),
    FIELD(decode_iter, accept_us, false, "time of sampling and accepting"),
    FIELD(decode_iter, other_us, false, "time of the rest of the iteration, including a probe, and of the policy's update "
          "after the previous iteration"),
    FIELD(decode_iter, experts_wanted, false, "distinct experts that routers selected, summed over layers"),
    FIELD(decode_iter, experts_loaded, false, "distinct experts that were computed, summed over layers"),
    FIELD(decode_iter, bytes, false, "nominal bytes read: distinct experts, dense weights, and the keys and values that "
          "attention covers"),
    FIELD(decode_iter, draft_bytes, true, "nominal bytes that the drafters' forwards read"),
    FIELD(decode_iter, shared_texts, true, "texts that shared the target's forward; absent: the forward was for this text "
          "alone"),
    FIELD(decode_iter, shared_rows, true, "rows of all these texts"),
    FIELD(decode_iter, shared_us, true, "time of the shared forward; verify_us has an equal part for each row of this text"),
    FIELD(decode_iter, shared_experts, true, "distinct experts that ran for the rows of all these texts, summed over layers"),
    FIELD(decode_iter, shared_only, true, "the part of experts_loaded that was computed for no other text, summed over layers"),
    FIELD(decode_iter, catch_up, true, "tokens of the text that a drafter with its own KV cache or state had to compute "
          "before it drafted; more than one after iterations without a draft"),
    FIELD(decode_iter, catch_up_us, true, "time of this, part of draft_us"),
    FIELD(decode_iter, probe, true, "tokens computed by a probe, the model without a budget, to check an automatic budget: "
          "all tokens since the last probe"),
    FIELD(decode_iter, probe_us, true, "time of the probe, part of other_us"),
    FIELD(decode_iter, probe_bytes, true, "bytes that the probe read, part of bytes"),
    FIELD(decode_iter, restored, true, "emitted tokens that the model without a budget chose, because the automatic budget "
          "did not allow their divergence"),
    FIELD(decode_iter, cache_hits, true, "with cached experts: requested experts that were in memory or already being read, "
          "in the whole iteration, drafting included"),
    FIELD(decode_iter, cache_misses, true, "with cached experts: requested experts that were neither in memory nor being read"),
    FIELD(decode_iter, cache_read_bytes, true, "bytes read from the model file"),
    FIELD(decode_iter, cache_stall_us, true, "time in which the computation waited for experts"),
    FIELD(decode_iter, cache_prefetched_bytes, true, "bytes that were prefetched, part of cache_read_bytes"),
    FIELD(decode_iter, cache_wasted_bytes, true, "prefetched bytes of experts that were evicted in this iteration before any "
          "request"),
    FIELD(decode_iter, cache_host_hits, true, "on a device with its own memory: misses whose expert was in the host's memory, "
          "or already being read into it"),
    FIELD(decode_iter, cache_copied_bytes, true, "bytes copied from the host's memory to the device"),
    FIELD(decode_iter, cache_copied_early_bytes, true, "bytes copied before any request, part of cache_copied_bytes"),
    FIELD(decode_iter, cache_copied_wasted_bytes, true, "bytes of experts that were copied before any request, and evicted in "
          "this iteration without one"),
    FIELD(decode_iter, cache_stall_copies_us, true, "time in which nothing was read, and the host waited for a copy to "
          "release host memory, part of cache_stall_us"),
    FIELD(decode_iter, cache_named, true, "experts that were forecast for the verification, summed over layers"),
    FIELD(decode_iter, cache_right, true, "forecast experts that the verification requested"),
    FIELD(decode_iter, cache_scored, true, "all experts that the verification requested"),
    FIELD(decode_iter, cache, true, "the policy of the cache, and the values on which its decisions are based after this "
          "iteration"),
    FIELD_ARRAY_OF(decode_iter, cache_levels, "[moe_layers][experts]", true, "under utility: the level of each expert after "
                   "this iteration"),
    FIELD_ARRAY_OF(decode_iter, cache_up, "[moe_layers][experts]", true, "under utility: the value that a change must reach "
                   "to raise the level"),
    FIELD_ARRAY_OF(decode_iter, cache_down, "[moe_layers][experts]", true, "under utility: the value that a change must reach "
                   "to lower the level"),
    FIELD(decode_iter, split, true, "with --split: the rule, and the times that it uses: of the host for a pair of token and "
          "expert, of the device for an expert, of a copy of an expert, of a drafted token"),
    FIELD(decode_iter, split_host_us, true, "time in which the host computed experts of the verification"),
    FIELD(decode_iter, split_wait_us, true, "time in which the device's queue was empty, because the host was still computing"),
    FIELD_ARRAY_OF(decode_iter, split_tau, "[moe_layers]", true, "the lowest level whose experts were fetched (balance) or "
                   "computed by the device (level); 0 under rules without levels"),
    FIELD_ARRAY_OF(decode_iter, split_device_experts, "[moe_layers]", true, "experts of the verification that the device "
                   "computed"),
    FIELD_ARRAY_OF(decode_iter, split_host_experts, "[moe_layers]", true, "and the host"),
    FIELD_ARRAY_OF(decode_iter, split_device_pairs, "[moe_layers]", true, "pairs of a token and an expert that the device "
                   "computed"),
    FIELD_ARRAY_OF(decode_iter, split_host_pairs, "[moe_layers]", true, "and the host"),
    FIELD(decode_iter, split_levels, true, "number of levels of the cache's policy, including 0"),
    FIELD_ARRAY_OF(decode_iter, split_fetches, "[moe_layers][split_levels]", true,
                   "after the layer has run: for each level, the experts of at least this level that were not on the device"),
    FIELD_ARRAY_OF(decode_iter, split_cold, "[moe_layers]", true, "the device's free slots after the layer has run: empty, or "
                   "with an expert of tag 0 that was not in use"),
    FIELD_ARRAY_OF(decode_iter, split_host_share, "[moe_layers][split_levels]", true, "r_c for each tau: the share of pairs "
                   "whose expert has a level below tau"),
    FIELD_ARRAY_OF(decode_iter, split_device_share, "[moe_layers][split_levels]", true,
                   "r_g for each tau: the share of distinct experts with a level of at least tau"),
    FIELD_ARRAY_OF(decode_iter, node_tokens, "[nodes]", true, "token ids of the verification, beginning with the root"),
    FIELD_ARRAY_OF(decode_iter, node_parents, "[nodes]", true, "each node's parent, -1 for the root"),
    FIELD(decode_iter, riders, true, "further rows of the verification, which drafters added for later drafts and which are "
          "never accepted"),
    FIELD(decode_iter, drafters, true, "number of drafters if there are several; the following arrays have one element for "
          "each drafter, numbered from 0"),
    FIELD_ARRAY_OF(decode_iter, node_drafters, "[nodes]", true, "number of each node's drafter, -1 for the root"),
    FIELD_ARRAY_OF(decode_iter, node_reviewers, "[nodes]", true, "number of the drafter that reviewed each node last and kept "
                   "it, -1: none"),
    FIELD_ARRAY_OF(decode_iter, drafter_steps, "[drafters]", true, "number of calls to draft or to review"),
    FIELD_ARRAY_OF(decode_iter, drafter_levels, "[drafters]", true, "levels of tokens requested from the drafter, summed over "
                   "all steps; a review counts as one"),
    FIELD_ARRAY_OF(decode_iter, drafter_reviewed, "[drafters]", true, "tokens of other drafters that it reviewed"),
    FIELD_ARRAY_OF(decode_iter, drafter_proposed, "[drafters]", true, "tokens that it proposed, including those that were "
                   "dropped before verification"),
    FIELD_ARRAY_OF(decode_iter, drafter_verified, "[drafters]", true, "its tokens in the verification"),
    FIELD_ARRAY_OF(decode_iter, drafter_accepted, "[drafters]", true, "accepted tokens among these"),
    FIELD_ARRAY_OF(decode_iter, drafter_bytes, "[drafters]", true, "nominal bytes that it read, part of draft_bytes"),
    FIELD_ARRAY_OF(decode_iter, drafter_us, "[drafters]", true, "its time, part of draft_us"),
    FIELD_ARRAY_OF(decode_iter, drafter_catch_up, "[drafters]", true, "its part of catch_up"),
    FIELD_ARRAY_OF(decode_iter, drafter_catch_up_us, "[drafters]", true, "its part of catch_up_us"),
    FIELD_ARRAY_OF(decode_iter, node_log_probability, "[nodes]", true, "logarithm of the probability that the drafter gives "
                   "each node after its parent; NaN: for the root, and if the drafter states none"),
    FIELD_ARRAY_OF(decode_iter, node_match, "[nodes]", true, "match length: tokens before each node that its drafter found in "
                   "a text, followed by the node's token; 0: none"),
    FIELD_ARRAY_OF(decode_iter, node_acceptance, "[nodes]", true, "acceptance probability of each node after its parent, as "
                   "estimated by the policy; NaN: for the root, and without an estimate"),
    FIELD(decode_iter, steps, true, "steps of the policy, in order, without the one that ended the draft"),
    FIELD_ARRAY_OF(decode_iter, step_kind, "[steps]", true, "1: a drafter extended the tree; 2: nodes were dropped; 3: a "
                   "drafter reviewed nodes"),
    FIELD_ARRAY_OF(decode_iter, step_drafter, "[steps]", true, "number of the drafter, -1: none"),
    FIELD_ARRAY_OF(decode_iter, step_leaf, "[steps]", true, "number of the first leaf that was extended or reviewed, in the "
                   "tree before the step; 0: the root"),
    FIELD_ARRAY_OF(decode_iter, step_leaves, "[steps]", true, "leaves"),
    FIELD_ARRAY_OF(decode_iter, step_tokens, "[steps]", true, "levels of tokens requested from the drafter (k)"),
    FIELD_ARRAY_OF(decode_iter, step_added, "[steps]", true, "nodes that the step added"),
    FIELD_ARRAY_OF(decode_iter, step_dropped, "[steps]", true, "nodes that the step dropped"),
    FIELD(decode_iter, dropped, true, "nodes that all steps dropped; the next arrays list them, step by step"),
    FIELD_ARRAY_OF(decode_iter, dropped_nodes, "[dropped]", true,
                   "number of the dropped node in the tree before the step; 0 is the root"),
    FIELD_ARRAY_OF(decode_iter, dropped_parents, "[dropped]", true, "number of its parent in that tree"),
    FIELD_ARRAY_OF(decode_iter, dropped_tokens, "[dropped]", true, "its token id"),
    FIELD_ARRAY_OF(decode_iter, dropped_drafters, "[dropped]", true, "number of its drafter"),
    FIELD_ARRAY_OF(decode_iter, dropped_match, "[dropped]", true, "like node_match"),
    FIELD_ARRAY_OF(decode_iter, dropped_log_probability, "[dropped]", true, "like node_log_probability"),
    FIELD_ARRAY_OF(decode_iter, emitted_experts, "[emitted][moe_layers][top_k]", true, "experts of the root and of all emitted "
                   "tokens but the last; -1: dropped by a budget"),
    FIELD(decode_iter, forecasts, true, "number of forecasts of experts that were scored on the verification"),
    FIELD(decode_iter, forecast_sources, true, "names of the forecasts, separated by blanks"),
    FIELD_ARRAY_OF(decode_iter, forecast_wanted, "[moe_layers]", true, "distinct experts that the verification requested"),
    FIELD_ARRAY_OF(decode_iter, forecast_named, "[forecasts][moe_layers]", true, "experts that each forecast predicted, at "
                   "most twice top_k"),
    FIELD_ARRAY_OF(decode_iter, forecast_right, "[forecasts][moe_layers]", true, "predicted experts that were requested"),
    FIELD(decode_iter, forecast_expert_bytes, true, "nominal bytes of one expert, on average over layers"),
    FIELD_ARRAY_OF(decode_iter, tokens, "[emitted]", true, "token ids added to the text"),
    FIELD_ARRAY_OF(decode_iter, overlap, "[nodes]", true, "upper bound of the acceptance probability of a tested node under "
                   "any rule that preserves the target's distribution p: the sum of min(p, q) over tokens, where q is the "
                   "drafter's distribution, or p of the token if it was not drawn; NaN for all other nodes"),
    FIELD_ARRAY_OF(decode_iter, divergence, "[emitted]", true, "KL(p || q) of each emitted token in nats, where p is the "
                   "distribution of the reference model after the same text, and q that of the model, both before temperature "
                   "and filters"),
    FIELD(decode_iter, flips, true, "emitted tokens for which the reference's most probable token differs"),
    FIELD_ARRAY_OF(decode_iter, reconstruction, "[moe_layers]", true, "sum over nodes of |O - O*|^2 divided by the sum of "
                   "|O*|^2, where O* is the output of a layer's experts without a budget, and O with it"),
    FIELD_ARRAY_OF(decode_iter, experts_wanted_layer, "[moe_layers]", true, "experts_wanted by layer"),
    FIELD_ARRAY_OF(decode_iter, experts_loaded_layer, "[moe_layers]", true, "experts_loaded by layer"),
    FIELD(decode_iter, policy, true, "the values on which the policy's decision was based"),
};

static const struct field draft_fields[] = {
    FIELD(decode_draft, sequence, false, "the text this position is in"),
    FIELD(decode_draft, drafter, true, "number of the drafter if there are several; each drafter has a record at each "
          "position, in order"),
    FIELD(decode_draft, pos, false, "position of the root, the last known token of the text; 0 is the first token of the "
          "prompt"),
    FIELD(decode_draft, left, false, "tokens of the text after the root"),
    FIELD(decode_draft, room, false, "maximum number of drafted tokens that the token limit allows"),
    FIELD(decode_draft, K, false, "longest draft requested, or levels of a tree"),
    FIELD(decode_draft, n, false, "number of tokens: the root and all drafted tokens, including those that a tree drops "
          "before verification"),
    FIELD(decode_draft, accepted, false, "drafted tokens that are accepted if all of them are verified"),
    FIELD_ARRAY_OF(decode_draft, tokens, "[n]", false, "token ids, beginning with the root"),
    FIELD_ARRAY_OF(decode_draft, parents, "[n]", true, "parent of each token, -1 for the root; absent: the token before it"),
    FIELD_ARRAY_OF(decode_draft, asked, "[n]", true, "tokens requested from the drafter after each token; absent: a chain"),
    FIELD_ARRAY_OF(decode_draft, path, "[accepted]", true, "the accepted tokens; absent: the first ones"),
    FIELD_ARRAY_OF(decode_draft, log_probability, "[n]", true, "logarithm of the probability that the drafter gives each "
                   "token; NaN: for the root, and if the drafter states none"),
    FIELD_ARRAY_OF(decode_draft, match, "[n]", true, "match length: tokens before each token that its drafter found in a "
                   "text, followed by this token"),
    FIELD_ARRAY_OF(decode_draft, draft_us, "[n]", false, "time of drafting 0, 1, ... of these tokens; the tokens of one level "
                   "of a tree are drafted together"),
    FIELD_ARRAY_OF(decode_draft, verify_us, "[n]", false, "time of the target's forward over the root and 0, 1, ... of these "
                   "tokens, and of acceptance; for a tree measured at some sizes and interpolated linearly between them"),
    FIELD_ARRAY_OF(decode_draft, draft_bytes, "[n]", true, "nominal bytes of drafting 0, 1, ... of these tokens"),
    FIELD_ARRAY_OF(decode_draft, bytes, "[n]", false, "nominal bytes of the target's forward over the root and 0, 1, ... of "
                   "these tokens"),
    FIELD_ARRAY_OF(decode_draft, experts_loaded, "[n]", false, "distinct experts of this forward, summed over layers"),
    FIELD_ARRAY_OF(decode_draft, experts, "[n][moe_layers][top_k]", true, "experts of each token; absent: the model has none"),
    FIELD(decode_draft, expert_bytes, true, "nominal bytes of one expert, on average over layers"),
};

static const struct field done_fields[] = {
    FIELD(decode_done, sequence, false, "the text that is complete"),
    FIELD(decode_done, id, true, "the prompt's id"),
    FIELD(decode_done, n, false, "tokens decoded"),
    FIELD_ARRAY_OF(decode_done, tokens, "[n]", false, "their ids"),
    FIELD(decode_done, text, true, "the text of these tokens, with U+FFFD for invalid UTF-8 and for NUL; absent without a "
          "tokenizer"),
    FIELD_WORD(decode_done, finish_reason, reasons, "stop: an end token or a stop string; length: the token limit; abort: "
               "interrupted"),
    FIELD(decode_done, num_drafts, false, "iterations that had a draft"),
    FIELD(decode_done, num_draft_tokens, false, "drafted tokens that were verified"),
    FIELD(decode_done, num_accepted_tokens, false, "accepted tokens among these"),
};

static const struct field failed_fields[] = {
    FIELD(decode_failed, id, true, "the prompt's id"),
    FIELD(decode_failed, message, false, "the place of the prompt, and its fault"),
};

static int check_begin(const void *body, const struct header *header, struct sequences *open, struct err *err)
{
    (void)header;
    return sequences_begin(open, ((const struct decode_begin *)body)->sequence, err);
}

/* Checks an iteration's arrays by drafter, if several are in use. */
static int check_drafters(const struct decode_iter *iter, struct err *err)
{
    int64_t verified = 0, accepted = 0;
    if (iter->drafters > DECODE_DRAFTERS_MAX)
        return err_set(err, ERR_INPUT, "an iteration has %d drafters, more than the maximum of %d; the stream is damaged",
                       iter->drafters, DECODE_DRAFTERS_MAX);
    for (int i = 0; i < iter->nodes; i++) {
        const int min = i ? 0 : -1, max = i ? iter->drafters : 0;
        if (iter->node_drafters && (iter->node_drafters[i] < min || iter->node_drafters[i] >= max))
            return err_set(err, ERR_INPUT, "node %d has drafter %d, but there are only %d; the stream is damaged", i,
                           iter->node_drafters[i],
                           iter->drafters);
        if (iter->node_reviewers && (iter->node_reviewers[i] < -1 || iter->node_reviewers[i] >= max))
            return err_set(err, ERR_INPUT, "node %d was reviewed by drafter %d, but there are only %d; the stream is damaged",
                           i, iter->node_reviewers[i],
                           iter->drafters);
    }
    const int32_t *const counts[] = {iter->drafter_steps, iter->drafter_levels, iter->drafter_reviewed, iter->drafter_proposed,
                                     iter->drafter_verified, iter->drafter_accepted, iter->drafter_catch_up};
    const double *const times[] = {iter->drafter_us, iter->drafter_catch_up_us};
    for (int drafter = 0; drafter < iter->drafters; drafter++) {
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            if (counts[i] && counts[i][drafter] < 0)
                return err_set(err, ERR_INPUT, "a count of drafter %d is negative; the stream is damaged", drafter);
        for (size_t i = 0; i < sizeof times / sizeof *times; i++)
            if (times[i] && !(times[i][drafter] >= 0 && isfinite(times[i][drafter])))
                return err_set(err, ERR_INPUT, "the time of drafter %d must be finite and >= 0 us, not %g; the stream is "
                               "damaged", drafter, times[i][drafter]);
        if (iter->drafter_bytes && iter->drafter_bytes[drafter] < 0)
            return err_set(err, ERR_INPUT, "the bytes read by drafter %d are negative; the stream is damaged", drafter);
        if (iter->drafter_proposed && iter->drafter_verified &&
            iter->drafter_verified[drafter] > iter->drafter_proposed[drafter])
            return err_set(err, ERR_INPUT, "%d tokens of drafter %d were verified, but only %d proposed; the stream is damaged",
                           iter->drafter_verified[drafter], drafter, iter->drafter_proposed[drafter]);
        verified += iter->drafter_verified ? iter->drafter_verified[drafter] : 0;
        accepted += iter->drafter_accepted ? iter->drafter_accepted[drafter] : 0;
    }
    if ((iter->drafter_verified && verified != iter->nodes - 1) || (iter->drafter_accepted && accepted != iter->accepted))
        return err_set(err, ERR_INPUT, "%d tokens were verified and %d accepted, but the sums over drafters are %lld and "
                       "%lld; the stream is damaged",
                       iter->nodes - 1, iter->accepted, (long long)verified, (long long)accepted);
    return 0;
}

/* Checks the nodes that the policy's steps dropped. */
static int check_dropped(const struct decode_iter *iter, struct err *err)
{
    int64_t dropped = 0;
    if (!iter->step_dropped || !iter->dropped_nodes || !iter->dropped_parents)
        return 0;
    for (int i = 0; i < iter->steps; i++)
        dropped += iter->step_dropped[i];
    if (dropped != iter->dropped)
        return err_set(err, ERR_INPUT, "%d nodes were dropped, but the sum over steps is %lld; the stream is damaged",
                       iter->dropped, (long long)dropped);
    for (int i = 0; i < iter->dropped; i++)
        if (iter->dropped_parents[i] < 0 || iter->dropped_parents[i] >= iter->dropped_nodes[i])
            return err_set(err, ERR_INPUT, "dropped node %d has parent %d, but a parent must have a smaller number; the "
                           "stream is damaged",
                           iter->dropped_nodes[i], iter->dropped_parents[i]);
    return 0;
}

/* Checks the policy's steps of an iteration. */
static int check_steps(const struct decode_iter *iter, struct err *err)
{
    for (int i = 0; iter->node_match && i < iter->nodes; i++)
        if (iter->node_match[i] < 0)
            return err_set(err, ERR_INPUT, "node %d has a negative match length, %d tokens; the stream is damaged", i,
                           iter->node_match[i]);
    for (int i = 0; iter->node_acceptance && i < iter->nodes; i++)
        if (iter->node_acceptance[i] < 0 || iter->node_acceptance[i] > 1)
            return err_set(err, ERR_INPUT, "the acceptance probability of node %d is %g, not from 0 to 1; the stream is "
                           "damaged", i,
                           (double)iter->node_acceptance[i]);
    if (!iter->step_kind || !iter->step_drafter || !iter->step_leaf || !iter->step_leaves || !iter->step_tokens ||
        !iter->step_added)
        return 0;
    for (int i = 0; i < iter->steps; i++)
        if (iter->step_kind[i] < 1 || iter->step_kind[i] > 3 || iter->step_drafter[i] < -1 ||
            iter->step_drafter[i] >= DECODE_DRAFTERS_MAX || iter->step_leaf[i] < 0 || iter->step_leaves[i] < 0 ||
            iter->step_tokens[i] < 0 || iter->step_added[i] < 0)
            return err_set(err, ERR_INPUT, "policy step %d has a value out of range (kind %d, drafter %d, %d leaves from leaf "
                           "%d on, %d tokens, %d added); the stream is damaged", i, iter->step_kind[i], iter->step_drafter[i],
                           iter->step_leaves[i], iter->step_leaf[i], iter->step_tokens[i], iter->step_added[i]);
    return check_dropped(iter, err);
}

/* Checks the fields of an iteration whose forward texts shared. */
static int check_shared(const struct decode_iter *iter, struct err *err)
{
    const int own = iter->nodes + (iter->riders > 0 ? iter->riders : 0);
    if (iter->shared_texts < 2)
        return 0;
    if (iter->shared_rows < own + iter->shared_texts - 1)
        return err_set(err, ERR_INPUT, "%d texts share a forward of %d rows, but one text alone has %d rows; the stream is "
                       "damaged", iter->shared_texts,
                       iter->shared_rows, own);
    if (!(iter->shared_us >= 0 && isfinite(iter->shared_us)))
        return err_set(err, ERR_INPUT, "the time of a shared forward must be finite and >= 0 us, not %g; the stream is "
                       "damaged", iter->shared_us);
    return 0;
}

/* Checks the scores of forecasts. */
static int check_forecasts(const struct decode_iter *iter, const struct header *header, struct err *err)
{
    const int layers = header->model.moe_layers;
    if (iter->forecasts > DECODE_FORECASTS_MAX)
        return err_set(err, ERR_INPUT, "an iteration has %d sources of forecasts, more than the maximum of %d; the stream is "
                       "damaged", iter->forecasts, DECODE_FORECASTS_MAX);
    if (!iter->forecast_wanted || !iter->forecast_named || !iter->forecast_right)
        return 0;
    for (int i = 0; i < iter->forecasts; i++)
        for (int layer = 0; layer < layers; layer++) {
            const size_t at = (size_t)i * (size_t)layers + (size_t)layer;
            const int named = iter->forecast_named[at], right = iter->forecast_right[at], wanted = iter->forecast_wanted[layer];
            if (right < 0 || right > named || right > wanted)
                return err_set(err, ERR_INPUT, "forecast %d of layer %d: %d experts cannot be right of %d forecast and %d "
                               "requested; the stream is damaged", i,
                               layer, right, named, wanted);
        }
    return 0;
}

static int check_iter(const void *body, const struct header *header, struct sequences *open, struct err *err)
{
    const struct decode_iter *iter = body;
    if (sequences_use(open, iter->sequence, err))
        return -1;
    if (iter->nodes < 1)
        return err_set(err, ERR_INPUT, "a verification has no tokens; the stream is damaged");
    if (iter->drafted < iter->nodes - 1)
        return err_set(err, ERR_INPUT, "%d tokens were verified, but only %d drafted; the stream is damaged", iter->nodes - 1,
                       iter->drafted);
    if (iter->accepted > iter->nodes - 1)
        return err_set(err, ERR_INPUT, "%d tokens were accepted, but only %d verified; the stream is damaged", iter->accepted,
                       iter->nodes - 1);
    if (iter->emitted > iter->accepted + 1)
        return err_set(err, ERR_INPUT, "%d tokens were emitted, but only %d accepted and one bonus token; the stream is "
                       "damaged", iter->emitted, iter->accepted);
    for (int i = 0; iter->node_parents && i < iter->nodes; i++)
        if (i ? iter->node_parents[i] < 0 || iter->node_parents[i] >= i : iter->node_parents[i] != -1)
            return err_set(err, ERR_INPUT, "node %d has the impossible parent %d; the stream is damaged", i,
                           iter->node_parents[i]);
    for (int i = 0; iter->divergence && i < iter->emitted; i++)
        if (iter->divergence[i] < 0)
            return err_set(err, ERR_INPUT, "the divergence of token %d is negative, %g; the stream is damaged", i,
                           (double)iter->divergence[i]);
    if (iter->flips > iter->emitted)
        return err_set(err, ERR_INPUT, "%d tokens are flips, but only %d were emitted; the stream is damaged", iter->flips,
                       iter->emitted);
    for (int i = 0; iter->overlap && i < iter->nodes; i++)
        if (iter->overlap[i] < 0 || iter->overlap[i] > 1.001f)
            return err_set(err, ERR_INPUT, "the overlap of node %d is %g, not from 0 to 1; the stream is damaged", i,
                           (double)iter->overlap[i]);
    return check_shared(iter, err) || check_drafters(iter, err) || check_steps(iter, err) ||
           check_forecasts(iter, header, err) ? -1 : 0;
}

/* Checks the members that a tree has in addition to a chain. */
static int check_tree(const struct decode_draft *draft, struct err *err)
{
    if (!draft->parents || !draft->asked || (draft->accepted && !draft->path))
        return err_set(err, ERR_INPUT, "a tree lacks its parents, its requested numbers or its accepted path; the stream is "
                       "damaged");
    for (int i = 0; i < draft->n; i++) {
        if (i ? draft->parents[i] < 0 || draft->parents[i] >= i : draft->parents[i] != -1)
            return err_set(err, ERR_INPUT, "token %d has the impossible parent %d; the stream is damaged", i,
                           draft->parents[i]);
        if (draft->asked[i] < 0)
            return err_set(err, ERR_INPUT, "a negative number of tokens, %d, was requested after token %d; the stream is "
                           "damaged", draft->asked[i], i);
    }
    for (int i = 0; i < draft->accepted; i++) {
        int above = i ? draft->path[i - 1] : 0;
        if (draft->path[i] < 1 || draft->path[i] >= draft->n || draft->parents[draft->path[i]] != above)
            return err_set(err, ERR_INPUT, "accepted token %d is node %d, which does not follow node %d; the stream is "
                           "damaged", i, draft->path[i], above);
    }
    return 0;
}

static int check_draft(const void *body, const struct header *header, struct sequences *open, struct err *err)
{
    const struct decode_draft *draft = body;
    if (sequences_use(open, draft->sequence, err))
        return -1;
    bool tree = draft->parents || draft->asked || draft->path;
    if (tree && check_tree(draft, err))
        return -1;
    if (draft->n < 1 || (!tree && draft->n > draft->K + 1))
        return err_set(err, ERR_INPUT, "a draft has %d tokens, more than its maximum of %d; the stream is damaged",
                       draft->n - 1, draft->K);
    for (int k = 0; draft->match && k < draft->n; k++)
        if (draft->match[k] < 0)
            return err_set(err, ERR_INPUT, "token %d has a negative match length, %d tokens; the stream is damaged", k,
                           draft->match[k]);
    if (draft->accepted >= draft->n)
        return err_set(err, ERR_INPUT, "%d tokens were accepted, but only %d verified; the stream is damaged", draft->accepted,
                       draft->n - 1);
    if (draft->left < 1)
        return err_set(err, ERR_INPUT, "drafts are recorded at a position without a next token; the stream is damaged");
    size_t slots = (size_t)header->model.moe_layers * (size_t)header->model.top_k;
    for (int k = 0; k < draft->n; k++) {
        if (!(draft->draft_us[k] >= 0 && draft->verify_us[k] >= 0) || isinf(draft->draft_us[k] + draft->verify_us[k]))
            return err_set(err, ERR_INPUT, "the times of a draft of %d tokens must be finite and >= 0 us, not %g and %g; the "
                           "stream is damaged", k, draft->draft_us[k],
                           draft->verify_us[k]);
        if (draft->bytes[k] < 0 || draft->experts_loaded[k] < 0 || (draft->draft_bytes && draft->draft_bytes[k] < 0))
            return err_set(err, ERR_INPUT, "the bytes or experts of a draft of %d tokens are negative; the stream is damaged",
                           k);
        for (size_t i = 0; draft->experts && i < slots; i++)
            if (draft->experts[(size_t)k * slots + i] < -1 || draft->experts[(size_t)k * slots + i] >= header->model.experts)
                return err_set(err, ERR_INPUT, "token %d has expert %d, but there are only %d; the stream is damaged", k,
                               draft->experts[(size_t)k * slots + i],
                               header->model.experts);
    }
    return 0;
}

static int check_done(const void *body, const struct header *header, struct sequences *open, struct err *err)
{
    const struct decode_done *done = body;
    (void)header;
    if (done->num_accepted_tokens > done->num_draft_tokens)
        return err_set(err, ERR_INPUT, "%d tokens were accepted, but only %d drafted; the stream is damaged",
                       done->num_accepted_tokens, done->num_draft_tokens);
    return sequences_end(open, done->sequence, err);
}

const struct record_kind decode_machine_kind = {
    RECORD_KIND("machine", "machine and settings of the measurement", decode_machine, machine_fields, NULL)
};
const struct record_kind decode_begin_kind = {
    RECORD_KIND("begin", "a text begins", decode_begin, begin_fields, check_begin)
};
const struct record_kind decode_iter_kind = {
    RECORD_KIND("iter", "one iteration: draft, verify, accept", decode_iter, iter_fields, check_iter)
};
const struct record_kind decode_draft_kind = {
    RECORD_KIND("draft", "the outcome of drafts of each length at a position", decode_draft, draft_fields, check_draft)
};
const struct record_kind decode_failed_kind = {
    RECORD_KIND("failed", "a prompt could not be decoded, and was skipped", decode_failed, failed_fields, NULL)
};
const struct record_kind decode_done_kind = {
    RECORD_KIND("done", "a text is complete", decode_done, done_fields, check_done)
};
