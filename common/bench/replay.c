#include "common/bench/replay.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/decode/grow.h"
#include "common/policy/shape.h"
#include "common/route/counts.h"
#include "kernels/plain/accept.h"

enum { LENGTH_MAX = 64 };

/* The recorded drafts of a place, as a drafter. */
struct recorded_drafter {
    struct drafter base;
    const struct recording *all;
    const struct recorded_place *place;
    int last;                           /* recorded tokens that were drafted by now, with all that came before or with them */
};

struct run {
    const struct replay_setup *setup;
    struct shape *shape;
    struct policy *policy;
    struct draft_tree tree;
    struct draft_leaf *leaf;            /* [tree.capacity + 1] */
    struct recorded_drafter drafter;
    struct draft_share share;
    uint8_t *seen;                      /* [moe_layers][experts] scratch for trees; NULL: none are recorded, or no experts */
    struct replay_result result;
    const struct recorded_text *text;
    const struct recorded_place *place;
    int drafted;                        /* tokens, also those dropped again */
};

/* Adds up to `tokens` of the recorded chain behind what is there already. */
static int extend_chain(struct recorded_drafter *mine, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves,
                        int tokens, struct err *err)
{
    const struct recording *all = mine->all;
    const struct recorded_place *place = mine->place;
    int before = tree->nodes, most = before + tokens < place->room ? before + tokens : place->room;
    if (leaves != 1 || leaf[0].node != before - 1 || leaf[0].siblings != 1)
        return err_set(err, ERR_INPUT, "the policy does not draft a chain; only chains are recorded");
    if (most > place->n - 1 && place->n - 1 == all->length)
        return err_set(err, ERR_INPUT, "the policy drafts %d tokens, but only drafts of up to %d are recorded; record with "
                       "--record-length %d, or set a cap with -K", most, all->length, most);
    for (int k = before + 1; k <= most && k < place->n; k++)
        draft_tree_add(tree, k - 2, all->token[place->row + (size_t)k], all->log_probability[place->row + (size_t)k], 0);
    mine->last = tree->nodes > mine->last ? tree->nodes : mine->last;
    return tree->nodes - before;
}

/* The recorded token that a node stands for, 0: the root. Whatever is in the tree was recorded. */
static int recorded_token(const struct recorded_drafter *mine, const struct draft_tree *tree, int node)
{
    const struct recording *all = mine->all;
    const size_t row = mine->place->row;
    if (node < 0)
        return 0;
    int above = recorded_token(mine, tree, tree->parent[node]), at = above + 1;
    while (all->parent[row + (size_t)at] != above || all->token[row + (size_t)at] != tree->token[node])
        at++;
    return at;
}

/* Adds the recorded children of each leaf, as many as are asked for. */
static int extend_tree(struct recorded_drafter *mine, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves,
                       int tokens, struct err *err)
{
    const struct recording *all = mine->all;
    const struct recorded_place *place = mine->place;
    int before = tree->nodes;
    if (tokens != 1)
        return err_set(err, ERR_INPUT, "the policy drafts a chain, but trees are recorded; add --tree as it was recorded with");
    for (int at = 0; at < leaves; at++) {
        int parent = recorded_token(mine, tree, leaf[at].node), asked = all->asked[place->row + (size_t)parent], found = 0;
        for (int k = parent + 1; k < place->n && found < leaf[at].siblings; k++) {
            if (all->parent[place->row + (size_t)k] != parent)
                continue;
            found++;
            mine->last = k > mine->last ? k : mine->last;
            if (draft_tree_add(tree, leaf[at].node, all->token[place->row + (size_t)k],
                               all->log_probability[place->row + (size_t)k], 0) < 0)
                return tree->nodes - before;
        }
        if (found < leaf[at].siblings && (!asked || (found == asked && asked < leaf[at].siblings)))
            return err_set(err, ERR_INPUT, "the tree grows where it was not recorded (%d tokens behind one of depth %d, of "
                           "which %d were asked for); record with a tree that is larger everywhere", leaf[at].siblings,
                           leaf[at].node < 0 ? 0 : tree->depth[leaf[at].node], asked);
    }
    return tree->nodes - before;
}

static int recorded_propose(struct drafter *drafter, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves,
                            int tokens, struct err *err)
{
    struct recorded_drafter *mine = (struct recorded_drafter *)drafter;
    return mine->all->trees ? extend_tree(mine, tree, leaf, leaves, tokens, err)
                            : extend_chain(mine, tree, leaf, leaves, tokens, err);
}

static const struct drafter_class recorded_class = {.name = "recorded", .propose = recorded_propose};

static int draft(struct run *run, struct err *err)
{
    struct drafters drafters = {{&run->drafter.base}, 1};
    const struct growth growth = {&run->tree, run->leaf, run->policy, &drafters, &run->share};
    run->drafter.place = run->place;
    run->drafter.last = 0;
    run->drafted = draft_grow(&growth, run->place->room, err);
    if (run->tree.nodes > run->shape->nodes)
        return err_set(err, ERR_INPUT, "a draft of %d tokens, of at most %d", run->tree.nodes, run->shape->nodes);
    return run->drafted < 0 ? -1 : 0;
}

/* Of a forward over a tree: distinct experts of just these nodes; bytes with these; the time of a forward over as many recorded
 * nodes, in proportion to bytes. */
static void weigh_tree(const struct run *run, struct outcome *out)
{
    const struct recording *all = run->setup->recording;
    const struct recorded_place *place = run->place;
    const struct stream_model *model = &all->header.model;
    const size_t same = place->row + (size_t)run->tree.nodes, experts = (size_t)model->experts;
    if (all->width)
        memset(run->seen, 0, (size_t)model->moe_layers * experts);
    out->experts_loaded = 0;
    for (int node = -1; all->width && node < run->tree.nodes; node++) {
        int at = recorded_token(&run->drafter, &run->tree, node);
        const int32_t *expert = all->expert + (place->row + (size_t)at) * all->width;
        for (size_t slot = 0; slot < all->width; slot++) {
            uint8_t *seen = &run->seen[slot / (size_t)model->top_k * experts + (size_t)(expert[slot] < 0 ? 0 : expert[slot])];
            out->experts_loaded += expert[slot] >= 0 && !*seen;
            *seen |= expert[slot] >= 0;
        }
    }
    double bytes = (double)all->bytes[same] +
                   (double)(out->experts_loaded - all->experts_loaded[same]) * (double)place->expert_bytes;
    out->bytes = (int64_t)fmax(0, fmin(bytes, 0x1p62));         /* a stream may say what cannot be */
    out->verify_s = all->verify_us[same] / 1e6 * (all->bytes[same] > 0 ? (double)out->bytes / (double)all->bytes[same] : 1);
}

/* How many of a tree's nodes are accepted: the recorded way, as far as the tree has it. */
static int accept_tree(const struct run *run)
{
    const struct recording *all = run->setup->recording;
    const struct recorded_place *place = run->place;
    int accepted = 0;
    for (int at = -1; accepted < place->accepted; accepted++) {
        int32_t token = all->token[place->row + (size_t)all->path[place->row + (size_t)accepted]];
        at = accept_child(run->tree.token, run->tree.parent, run->tree.nodes, at, token);
        if (at < 0)
            break;
    }
    return accepted;
}

/* Did the live run verify this very draft here? */
static bool is_live(const struct run *run)
{
    const struct recorded_place *place = run->place;
    const struct draft_tree *tree = &run->tree;
    int32_t token[1 + SHAPE_NODES_MAX], parent[1 + SHAPE_NODES_MAX];
    if (place->nodes != 1 + tree->nodes || place->drafted != run->drafted)
        return false;
    if (!run->setup->recording->trees || !place->tree)
        return true;
    token[0] = run->text->token[place - run->setup->recording->place - (ptrdiff_t)run->text->place];
    parent[0] = -1;
    for (int node = 0; node < tree->nodes; node++) {
        token[1 + node] = tree->token[node];
        parent[1 + node] = 1 + tree->parent[node];
    }
    return recording_tree(token, parent, 1 + tree->nodes) == place->tree;
}

/* What this iteration gives and costs. */
static struct outcome settle(const struct run *run)
{
    const struct recording *all = run->setup->recording;
    const struct recorded_place *place = run->place;
    const int at = (int)(place - all->place - run->text->place);
    const size_t verified = place->row + (size_t)run->tree.nodes, drafted = place->row + (size_t)run->drafter.last;
    const struct stream_model *model = &all->header.model;
    const bool chain = run->shape->class == &shape_chain;
    struct outcome out = {
        .drafted = run->tree.nodes, .accepted = place->accepted < run->tree.nodes ? place->accepted : run->tree.nodes,
        .token = run->text->token + at + 1, .expert = all->width && chain ? all->expert + place->row * all->width : NULL,
        .moe_layers = model->moe_layers, .top_k = model->top_k, .draft_s = all->draft_us[drafted] / 1e6,
        .verify_s = all->verify_us[verified] / 1e6, .experts_loaded = all->experts_loaded[verified],
        .bytes = all->bytes[verified], .draft_bytes = all->draft_bytes[drafted]};
    if (all->trees) {
        out.accepted = accept_tree(run);
        weigh_tree(run, &out);
    }
    out.emitted = out.accepted + 1 < place->left ? out.accepted + 1 : place->left;
    out.iteration_s = out.draft_s + out.verify_s;
    if (is_live(run)) {
        out.draft_s = place->draft_us / 1e6;
        out.verify_s = place->verify_us / 1e6;
        out.iteration_s = place->iteration_us / 1e6;
        out.experts_loaded = place->experts_loaded;
        out.bytes = place->bytes;
        out.draft_bytes = place->draft_bytes;
    }
    if (run->setup->cost == REPLAY_BYTES) {
        out.draft_s = (double)out.draft_bytes / 1e9;
        out.verify_s = (double)out.bytes / 1e9;
    } else if (run->setup->cost == REPLAY_TABLE) {
        out.draft_s = run->drafted * run->setup->table->draft;
        out.verify_s = run->setup->table->seconds[1 + run->tree.nodes];
    }
    if (run->setup->cost != REPLAY_TIME)
        out.iteration_s = out.draft_s + out.verify_s;
    return out;
}

static int iterate(struct run *run, int *at, replay_function *each, void *context, struct err *err)
{
    struct replay_result *result = &run->result;
    struct replay_iteration iteration = {.text = run->text, .position = run->text->prompt_tokens + *at};
    run->place = &run->setup->recording->place[run->text->place + (size_t)*at];
    if (draft(run, err))
        return -1;
    iteration.K = run->policy->class->length(run->policy);
    run->policy->class->state(run->policy, &iteration.policy);
    iteration.outcome = settle(run);
    result->seconds += iteration.outcome.iteration_s;
    result->draft_seconds += iteration.outcome.draft_s;
    result->tokens += iteration.outcome.emitted;
    result->iterations++;
    result->drafts += iteration.outcome.drafted > 0;
    result->drafted += iteration.outcome.drafted;
    result->accepted += iteration.outcome.accepted;
    result->same += run->place->nodes == 1 + iteration.outcome.drafted && run->place->K == iteration.K;
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

static int open_seen(struct run *run, const struct stream_model *model, struct err *err)
{
    return !route_model_check(model, err) &&
           (run->seen = mem_alloc((size_t)model->moe_layers * (size_t)model->experts, sizeof *run->seen, err)) ? 0 : -1;
}

int replay_run(struct replay_result *out, const struct replay_setup *setup, replay_function *each, void *context,
               struct err *err)
{
    const struct stream_model *model = &setup->recording->header.model;
    struct run run = {.setup = setup};
    int rc = -1;
    if (shape_open(&run.shape, setup->tree, err)) {
        err_at(err, "--tree");
        goto done;
    }
    if (setup->recording->trees == (run.shape->class == &shape_chain)) {
        err_set(err, ERR_INPUT, setup->recording->trees ? "trees are recorded; add --tree as the stream was recorded with"
                                                        : "chains are recorded; leave --tree out");
        goto done;
    }
    run.drafter = (struct recorded_drafter){.base.class = &recorded_class, .all = setup->recording};
    if (!(run.leaf = mem_alloc((size_t)run.shape->room + 1, sizeof *run.leaf, err)) ||
        draft_tree_init(&run.tree, run.shape->room, err) ||
        (setup->recording->trees && setup->recording->width && open_seen(&run, model, err)))
        goto done;
    const struct policy_setup policy = {
        .drafters = 1, .draft_length = setup->draft_length, .max_length = LENGTH_MAX, .shape = run.shape,
        .experts = model->moe_layers ? model->experts : 0, .top_k = model->moe_layers ? model->top_k : 0};
    if (policy_open(&run.policy, setup->policy, &policy, err))
        goto done;
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
