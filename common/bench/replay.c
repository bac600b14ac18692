#include "common/bench/replay.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "common/base/mem.h"
#include "common/bench/recorded.h"
#include "common/decode/grow.h"
#include "common/policy/shape.h"
#include "common/route/counts.h"
#include "kernels/plain/accept.h"

enum { LENGTH_MAX = 64 };

struct run {
    const struct replay_setup *setup;
    struct shape *shape;
    struct policy *policy;
    struct draft_tree tree;
    struct draft_leaf *leaf;            /* [tree.capacity + 1] */
    struct recorded_drafter drafter[DRAFTERS_MAX];
    struct drafters drafters;
    struct policy_drafter about[DRAFTERS_MAX];
    json_t *named;
    struct draft_share share[DRAFTERS_MAX];
    uint8_t kept[1 + SHAPE_NODES_MAX];  /* [1 + nodes] 1: the root or node is accepted */
    uint8_t *seen;                      /* scratch [moe_layers][experts]; NULL: no experts */
    int32_t *expert;                    /* scratch [1 + SHAPE_DEPTH_MAX][width]; NULL: no experts recorded */
    struct replay_result result;
    const struct recorded_text *text;
    const struct recorded_position *position;
    int drafted;                        /* drafted tokens, including those dropped again */
};

static int position_number(const struct run *run)
{
    return (int)(run->position - run->setup->recording->position - run->text->position);
}

static int draft(struct run *run, struct err *err)
{
    const struct growth growth = {&run->tree, run->leaf, run->policy, &run->drafters, run->share};
    for (int i = 0; i < run->drafters.count; i++)
        recorded_begin(&run->drafter[i], run->text, position_number(run));
    run->drafted = draft_grow(&growth, run->position->room, err);
    if (run->tree.nodes > run->shape->nodes)
        return err_set(err, ERR_INPUT, "the policy drafted %d tokens, more than the maximum of %d", run->tree.nodes,
                       run->shape->nodes);
    for (int i = 0; i < run->drafters.count; i++) {
        run->share[i].bytes = recorded_bytes(&run->drafter[i]);
        run->share[i].seconds = recorded_us(&run->drafter[i]) / 1e6;
    }
    return run->drafted < 0 ? -1 : 0;
}

/* Counts the distinct experts of root and nodes, each node with the experts recorded by its drafter. */
static int count_experts(const struct run *run)
{
    const struct recording *all = run->setup->recording;
    const struct stream_model *model = &all->header.model;
    const size_t experts = (size_t)model->experts;
    int count = 0;
    if (!all->width)
        return 0;
    memset(run->seen, 0, (size_t)model->moe_layers * experts);
    for (int node = -1; node < run->tree.nodes; node++) {
        const int drafter = node < 0 ? 0 : run->tree.drafter[node];
        const int32_t *expert = all->expert + recorded_row(&run->drafter[drafter], &run->tree, node) * all->width;
        for (size_t slot = 0; slot < all->width; slot++) {
            uint8_t *seen = &run->seen[slot / (size_t)model->top_k * experts + (size_t)(expert[slot] < 0 ? 0 : expert[slot])];
            count += expert[slot] >= 0 && !*seen;
            *seen |= expert[slot] >= 0;
        }
    }
    return count;
}

/* Returns the row of the recorded forward most similar to this draft: over the same tokens (*same), else over the same
 * number. */
static size_t find_like(const struct run *run, bool *same)
{
    const struct recording *all = run->setup->recording;
    const size_t first = (size_t)(run->position - all->position) * (size_t)all->drafters;
    const struct recorded_draft *best = &all->draft[first];
    *same = false;
    for (int i = 0; i < all->drafters; i++) {
        const struct recorded_draft *draft = &all->draft[first + (size_t)i];
        if (draft->n > run->tree.nodes && recorded_is_own(&run->drafter[i], &run->tree)) {
            *same = true;
            return draft->row + (size_t)run->tree.nodes;
        }
        if (best->n <= run->tree.nodes && draft->n > best->n)
            best = draft;
    }
    return best->row + (size_t)(run->tree.nodes < best->n ? run->tree.nodes : best->n - 1);
}

/* Estimates the cost of the forward over root and tree. If exactly these tokens were not recorded together, the distinct
 * experts are counted, the bytes corrected by their difference, and the time of the recorded forward of the same size scaled
 * by the bytes. */
static void weigh(const struct run *run, struct outcome *out)
{
    const struct recording *all = run->setup->recording;
    bool same;
    const size_t row = find_like(run, &same);
    out->experts_loaded = all->experts_loaded[row];
    out->bytes = all->bytes[row];
    out->verify_s = all->verify_us[row] / 1e6;
    if (same && !all->trees)
        return;
    out->experts_loaded = count_experts(run);
    double bytes = (double)all->bytes[row] +
                   (double)(out->experts_loaded - all->experts_loaded[row]) * (double)run->position->expert_bytes;
    out->bytes = (int64_t)fmax(0, fmin(bytes, 0x1p62));         /* a stream may contain impossible numbers */
    out->verify_s *= all->bytes[row] > 0 ? (double)out->bytes / (double)all->bytes[row] : 1;
}

/* Returns the token that follows the first `accepted` ones of the text; -1: unknown. With one drafter its record extends
 * past the text: it contains tokens accepted beyond the text's end. */
static int32_t next_accepted(const struct run *run, int accepted)
{
    const struct recording *all = run->setup->recording;
    const struct recorded_position *position = run->position;
    if (all->drafters == 1 && accepted < position->accepted)
        return all->token[position->row + (size_t)(all->trees ? all->path[position->row + (size_t)accepted] : accepted + 1)];
    return accepted < position->left ? run->text->token[position_number(run) + 1 + accepted] : -1;
}

/* Marks the accepted nodes of the tree; returns their number. */
static int accept(struct run *run)
{
    int accepted = 0;
    memset(run->kept, 0, sizeof run->kept);
    run->kept[0] = 1;
    for (int at = -1;; accepted++) {
        int32_t token = next_accepted(run, accepted);
        at = token < 0 ? -1 : accept_child(run->tree.token, run->tree.parent, run->tree.nodes, at, token);
        if (at < 0)
            return accepted;
        run->kept[1 + at] = 1;
    }
}

/* Returns the experts of the root and the accepted tokens: from the first drafter's record, or from the text's positions. */
static const int32_t *experts_of(const struct run *run, int accepted)
{
    const struct recording *all = run->setup->recording;
    const int positions = run->text->tokens - 1, at = position_number(run);
    if (!all->trees && (all->drafters == 1 || accepted <= run->position->accepted))
        return all->expert + run->position->row * all->width;
    for (int i = 0; i <= accepted; i++) {
        const int here = at + i < positions ? at + i : positions - 1;
        const struct recorded_position *position = &all->position[run->text->position + (size_t)here];
        memcpy(run->expert + (size_t)i * all->width, all->expert + position->row * all->width,
               all->width * sizeof *run->expert);
    }
    return run->expert;
}

static bool same_shares(const struct run *run)
{
    const struct recorded_position *position = run->position;
    if (!position->share)
        return false;
    for (int i = 0; i < run->drafters.count; i++) {
        const struct draft_share *live = &run->setup->recording->share[position->share - 1 + (size_t)i], *mine = &run->share[i];
        if (live->steps != mine->steps || live->levels != mine->levels || live->reviewed != mine->reviewed ||
            live->proposed != mine->proposed)
            return false;
    }
    return true;
}

/* Returns whether the live run verified the same draft here, made by the same steps. */
static bool is_live(const struct run *run)
{
    const struct recorded_position *position = run->position;
    const struct draft_tree *tree = &run->tree;
    const bool several = run->drafters.count > 1;
    int32_t token[1 + SHAPE_NODES_MAX], parent[1 + SHAPE_NODES_MAX];
    if (position->nodes != 1 + tree->nodes || position->drafted != run->drafted)
        return false;
    if (!several && (!run->setup->recording->trees || !position->tree))
        return true;
    token[0] = run->text->token[position_number(run)];
    parent[0] = -1;
    for (int node = 0; node < tree->nodes; node++) {
        token[1 + node] = tree->token[node];
        parent[1 + node] = 1 + tree->parent[node];
    }
    if (recording_tree(token, parent, 1 + tree->nodes) != position->tree)
        return false;
    if (!several)
        return true;
    token[0] = -1;                      /* marks the end of the lists of drafters and reviewers */
    for (int node = 0; node < tree->nodes; node++) {
        token[1 + node] = tree->drafter[node];
        parent[1 + node] = tree->reviewer[node];
    }
    return recording_tree(token, parent, 1 + tree->nodes) == position->makers && same_shares(run);
}

/* Replaces the estimates by the live run's measurements of this draft. */
static void take_live(struct run *run, struct outcome *out)
{
    const struct recorded_position *position = run->position;
    out->draft_s = position->draft_us / 1e6;
    out->verify_s = position->verify_us / 1e6;
    out->iteration_s = position->iteration_us / 1e6;
    out->experts_loaded = position->experts_loaded;
    out->bytes = position->bytes;
    out->draft_bytes = position->draft_bytes;
    if (run->drafters.count > 1) {
        out->accepted = position->kept;
        memcpy(run->share, run->setup->recording->share + position->share - 1,
               (size_t)run->drafters.count * sizeof *run->share);
        return;
    }
    run->share[0].seconds = out->draft_s;
    run->share[0].bytes = position->draft_bytes;
    run->share[0].caught_up = position->catch_up;
    run->share[0].caught_up_s = position->catch_up_us / 1e6;
}

/* Replaces times by another measure of cost. */
static void replace_times(struct run *run, struct outcome *out)
{
    const struct replay_setup *setup = run->setup;
    const bool bytes = setup->cost == REPLAY_BYTES;
    out->draft_s = bytes ? (double)out->draft_bytes / 1e9 : run->drafted * setup->table->draft;
    out->verify_s = bytes ? (double)out->bytes / 1e9 : setup->table->seconds[1 + run->tree.nodes];
    out->iteration_s = out->draft_s + out->verify_s;
    for (int i = 0; i < run->drafters.count; i++) {
        struct draft_share *share = &run->share[i];
        share->seconds = bytes ? (double)share->bytes / 1e9 : share->proposed * setup->table->draft;
        share->caught_up_s = 0;
    }
}

/* Returns the emitted tokens and the cost of this iteration. */
static struct outcome finish_iteration(struct run *run)
{
    const struct recording *all = run->setup->recording;
    const struct stream_model *model = &all->header.model;
    struct outcome out = {
        .drafted = run->tree.nodes, .accepted = accept(run), .token = run->text->token + position_number(run) + 1,
        .moe_layers = model->moe_layers, .top_k = model->top_k, .tree = &run->tree, .kept = run->kept, .share = run->share};
    const bool chains = run->shape->class == &shape_chain && !run->policy->class->trees;
    if (all->width && (chains || run->policy->class->learns_experts))
        out.expert = experts_of(run, out.accepted);
    for (int i = 0; i < run->drafters.count; i++) {
        out.draft_s += run->share[i].seconds;
        out.draft_bytes += run->share[i].bytes;
    }
    weigh(run, &out);
    draft_count_kept(&run->tree, run->kept, run->share);
    out.iteration_s = out.draft_s + out.verify_s;
    if (is_live(run))
        take_live(run, &out);
    out.emitted = out.accepted + 1 < run->position->left ? out.accepted + 1 : run->position->left;
    if (run->setup->cost != REPLAY_TIME)
        replace_times(run, &out);
    return out;
}

static int iterate(struct run *run, int *at, replay_function *each, void *context, struct err *err)
{
    struct replay_result *result = &run->result;
    struct replay_iteration iteration = {.text = run->text, .position = run->text->prompt_tokens + *at};
    run->position = &run->setup->recording->position[run->text->position + (size_t)*at];
    if (draft(run, err))
        return -1;
    iteration.K = run->policy->class->length(run->policy);
    run->policy->class->state(run->policy, &iteration.policy);
    iteration.outcome = finish_iteration(run);
    result->seconds += iteration.outcome.iteration_s;
    result->draft_seconds += iteration.outcome.draft_s;
    result->tokens += iteration.outcome.emitted;
    result->iterations++;
    result->drafts += iteration.outcome.drafted > 0;
    result->drafted += iteration.outcome.drafted;
    result->accepted += iteration.outcome.accepted;
    result->same += run->position->nodes == 1 + iteration.outcome.drafted && run->position->K == iteration.K;
    if (each && each(context, &iteration, err))
        return -1;
    if (run->policy->class->observe)
        run->policy->class->observe(run->policy, &iteration.outcome);
    *at += iteration.outcome.emitted;
    return 0;
}

static int replay(struct run *run, const struct recorded_text *text, replay_function *each, void *context, struct err *err)
{
    const struct policy_text about = {text->sequence, text->task, text->prompt, text->prompt_tokens};
    run->text = text;
    run->result.live += text->iterations;
    if (run->policy->class->begin)
        run->policy->class->begin(run->policy, &about);
    for (int at = 0; at < text->tokens - 1;)
        if (iterate(run, &at, each, context, err))
            return -1;
    return 0;
}

static int open_experts(struct run *run, struct err *err)
{
    const struct recording *all = run->setup->recording;
    const struct stream_model *model = &all->header.model;
    if (!all->width)
        return 0;
    if (route_model_check(model, err))
        return -1;
    run->seen = mem_alloc((size_t)model->moe_layers * (size_t)model->experts, sizeof *run->seen, err);
    run->expert = mem_alloc(1 + SHAPE_DEPTH_MAX, all->width * sizeof *run->expert, err);
    return run->seen && run->expert ? 0 : -1;
}

/* Opens the recorded drafters, and what a policy knows of them by their names. */
static int open_drafters(struct run *run, struct err *err)
{
    const struct recording *all = run->setup->recording;
    run->named = all->named ? json_loads(all->named, 0, NULL) : NULL;
    for (int i = 0; i < all->drafters; i++) {
        const char *name = json_string_value(json_array_get(run->named, (size_t)i));
        const struct drafter_class *class = name ? drafter_find(name) : NULL;
        recorded_open(&run->drafter[i], all, i);
        run->drafter[i].own_states = class && !class->looks_up;
        run->drafters.item[i] = &run->drafter[i].base;
        run->about[i] = (struct policy_drafter){name ? name : "recorded", !class || class->review, class && class->looks_up};
    }
    run->drafters.count = all->drafters;
    return run->named && !json_is_array(run->named)
        ? err_set(err, ERR_INPUT, "the stream's list of drafters is not a list; the stream is damaged") : 0;
}

/* Opens the shape of drafts. Recorded trees contain chains, too, so chains must be requested explicitly. A policy that
 * builds its own trees gets no shape. */
static int open_shape(struct run *run, struct err *err)
{
    const struct replay_setup *setup = run->setup;
    const struct policy_class *policy = policy_find(setup->policy, setup->draft_length);
    const bool trees = setup->recording->trees, own = policy && policy->trees;
    if (shape_open(&run->shape, own ? NULL : setup->tree, err))
        return err_at(err, "--tree");
    if (trees && !own && !setup->tree)
        return err_set(err, ERR_INPUT, "the stream records trees; add the --tree that it was recorded with, or --tree chain");
    if (!trees && run->shape->class != &shape_chain)
        return err_set(err, ERR_INPUT, "the stream records chains, not trees; leave --tree out");
    return 0;
}

int replay_run(struct replay_result *out, const struct replay_setup *setup, replay_function *each, void *context,
               struct err *err)
{
    const struct stream_model *model = &setup->recording->header.model;
    struct run run = {.setup = setup};
    int rc = -1;
    if (open_shape(&run, err) || open_drafters(&run, err) ||
        !(run.leaf = mem_alloc((size_t)run.shape->room + 1, sizeof *run.leaf, err)) ||
        draft_tree_init(&run.tree, run.shape->room, err) || open_experts(&run, err))
        goto done;
    const struct policy_setup policy = {
        .drafters = run.drafters.count, .drafter = run.about, .draft_length = setup->draft_length,
        .max_length = LENGTH_MAX, .sampled = setup->recording->sampled, .chains = !setup->recording->trees, .shape = run.shape,
        .experts = model->moe_layers ? model->experts : 0, .top_k = model->moe_layers ? model->top_k : 0};
    if (policy_open(&run.policy, setup->policy, &policy, err)) {
        err_at(err, "--policy");
        goto done;
    }
    for (int i = 0; i < run.drafters.count; i++)
        run.drafter[i].guesses = run.policy->class->trees || (run.drafters.count > 1 && run.shape->class == &shape_chain);
    for (size_t i = 0; i < setup->recording->texts; i++)
        if (replay(&run, &setup->recording->text[i], each, context, err)) {
            err_at(err, "%s", run.policy->class->name);
            goto done;
        }
    run.result.policy = mem_string(setup->policy ? setup->policy : run.policy->class->name, err);
    if (!run.result.policy)
        goto done;
    *out = run.result;
    rc = 0;
done:
    policy_close(&run.policy);
    shape_close(&run.shape);
    draft_tree_free(&run.tree);
    mem_free(&run.leaf);
    mem_free(&run.seen);
    mem_free(&run.expert);
    json_decref(run.named);
    return rc;
}

void replay_result_free(struct replay_result *result)
{
    mem_free(&result->policy);
    *result = (struct replay_result){0};
}

int replay_compare(struct replay_table *out, const struct replay_setup *setup, const char *const *policies, int count,
                   struct err *err)
{
    struct replay_table table = {.statics = setup->recording->length + 1};
    table.result = mem_alloc((size_t)(table.statics + count), sizeof *table.result, err);
    if (!table.result)
        return -1;
    for (int i = 0; i < table.statics + count; i++) {
        struct replay_setup one = *setup;
        char text[32];
        snprintf(text, sizeof text, "static:K=%d", i);
        one.policy = i < table.statics ? text : policies[i - table.statics];
        if (i < table.statics)
            one.draft_length = DRAFT_LENGTH_NONE;
        if (replay_run(&table.result[i], &one, NULL, NULL, err)) {
            replay_table_free(&table);
            return -1;
        }
        table.count = i + 1;
    }
    *out = table;
    return 0;
}

void replay_table_free(struct replay_table *table)
{
    for (int i = 0; i < table->count; i++)
        replay_result_free(&table->result[i]);
    mem_free(&table->result);
    *table = (struct replay_table){0};
}
