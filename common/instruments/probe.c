#include "common/instruments/probe.h"

#include <math.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/decode/grow.h"
#include "common/draft/drafter.h"
#include "common/engine/second.h"
#include "common/policy/shape.h"
#include "common/verify/acceptance.h"

enum { ROWS_MAX = 1 + SHAPE_NODES_MAX };

/* A drafter for growing a tree: passes each request to the probed drafter, and records its answers. */
struct tape {
    struct drafter base;
    struct probe *probe;
};

struct probe {
    struct decoder *decoder;            /* decoder of the current text */
    struct decoder_setup setup;
    int length;                         /* maximum length of chains, or levels of trees */
    bool chains;
    struct drafters drafters;
    struct drafter *drafter;            /* the current one */
    struct feature_request features;    /* states that the drafters read */
    struct draft_tree tree;             /* everything drafted at a position */
    struct policy *policy;              /* for trees: the shape with all its levels */
    struct shape *shape;
    struct draft_tree growing;          /* for trees: the tree grown by the shape */
    struct draft_leaf *leaf;            /* [growing.capacity + 1] */
    struct tape tape;
    int32_t asked[ROWS_MAX], row_parent[ROWS_MAX];
    int32_t match[ROWS_MAX];
    float log_probability[ROWS_MAX];
    double draft_us[ROWS_MAX], verify_us[ROWS_MAX];
    int64_t draft_bytes[ROWS_MAX], bytes[ROWS_MAX], expert_bytes;
    int32_t token[ROWS_MAX], loaded[ROWS_MAX], path[ROWS_MAX], chosen[ROWS_MAX];
    uint8_t *seen;                      /* scratch: [moe_layers][experts] */
    int drafted, accepted;
    bool matches;                       /* some match[] is not 0 */
};

static int check(const struct decoder *decoder, const struct decoder_setup *setup, struct err *err)
{
    const struct budget *budget = setup->budget;
    const struct strings *draft = &setup->settings->draft;
    const struct second *second = engine_config(setup->engine)->second;
    if (!draft->count || !strcmp(draft->items[0], "none"))
        return err_set(err, ERR_INPUT, "there is nothing to draft with; add --draft ngram");
    if (!decoder_acceptance(decoder)->class->same_text)
        return err_set(err, ERR_INPUT, "the text must not depend on drafts, but with this rule it does; "
                       "leave --accept out");
    if (budget && !budget->lossless && (budget->plan.ranking != PLAN_STATIC || !budget->decodes || !budget->verifies))
        return err_set(err, ERR_INPUT, "the text must not depend on drafts, but with this budget it does; "
                       "rank by a rank stream, in phase decode");
    if (second && !split_rule_is_lossless(second_rule(second)))
        return err_set(err, ERR_INPUT, "the text must not depend on drafts, but with --split %s it does; "
                       "choose static",
                       split_rule_name(second_rule(second)));
    return 0;
}

static int check_drafters(const struct drafters *drafters, struct err *err)
{
    for (int i = 0; i < drafters->count; i++) {
        const struct drafter *drafter = drafters->item[i];
        if (drafter->learns || drafter->riders)
            return err_set(err, ERR_INPUT, "drafts of %s depend on earlier iterations, so they cannot be "
                           "recorded for other runs; leave it out", drafter->class->name);
        if (drafter->ends)
            return err_set(err, ERR_INPUT, "the last levels of a draft by this %s differ from those of a "
                           "longer draft, so one draft cannot be recorded for all lengths; add %s to its settings",
                           drafter->class->name, drafter->ends);
    }
    return 0;
}

static const struct drafter_class tape_class;

static int open_tree(struct probe *probe, struct err *err)
{
    const struct hparams *shape = engine_hparams(probe->setup.engine);
    int experts = hparams_moe_layers(shape) ? shape->router.experts : 0;
    if (probe->shape->class == &shape_own)
        return err_set(err, ERR_INPUT, "a policy cannot choose parts of a drafter's own tree; choose another "
                       "--tree");
    probe->length = probe->shape->depth;
    const struct policy_setup policy = {.drafters = 1, .draft_length = probe->length, .max_length = DRAFT_LENGTH_MAX,
                                        .shape = probe->shape, .experts = experts, .top_k = shape->router.top_k};
    probe->tape = (struct tape){{.class = &tape_class}, probe};
    probe->leaf = mem_alloc((size_t)probe->shape->room + 1, sizeof *probe->leaf, err);
    return !probe->leaf || policy_open(&probe->policy, "static", &policy, err) ||
           draft_tree_init(&probe->growing, probe->shape->room, err) ||
           draft_tree_init(&probe->tree, probe->shape->added, err) ? -1 : 0;
}

int probe_open(struct probe **out, const struct decoder *decoder, const struct decoder_setup *setup, int length,
               struct err *err)
{
    struct probe *probe;
    if (check(decoder, setup, err) || !(probe = mem_alloc(1, sizeof *probe, err)))
        return -1;
    *probe = (struct probe){.setup = *setup, .length = length};
    if (shape_open(&probe->shape, setup->settings->tree, err)) {
        probe_close(&probe);
        return err_at(err, "--tree");
    }
    probe->chains = probe->shape->class == &shape_chain;
    const struct hparams *hparams = engine_hparams(setup->engine);
    const size_t pairs = (size_t)hparams_moe_layers(hparams) * (size_t)hparams->router.experts;
    probe->seen = mem_alloc(pairs + 1, sizeof *probe->seen, err);
    if (!probe->seen || decoder_open_drafters(decoder, true, &probe->drafters, err) || check_drafters(&probe->drafters, err) ||
        drafters_features(&probe->drafters, &probe->features, err) ||
        (probe->chains ? draft_tree_init(&probe->tree, length, err) : open_tree(probe, err))) {
        probe_close(&probe);
        return -1;
    }
    *out = probe;
    return 0;
}

void probe_close(struct probe **probe)
{
    struct probe *mine = *probe;
    if (mine) {
        drafters_close(&mine->drafters);
        policy_close(&mine->policy);
        shape_close(&mine->shape);
        draft_tree_free(&mine->tree);
        draft_tree_free(&mine->growing);
        mem_free(&mine->leaf);
        mem_free(&mine->seen);
    }
    mem_free(probe);
}

/* Proposes k tokens. Returns 0 if the draft is longer than the previous one and begins with it. */
static int propose(struct probe *probe, int k, struct err *err)
{
    const struct draft_leaf root = {-1, 1};
    struct draft_tree *tree = &probe->tree;
    struct drafter *drafter = probe->drafter;
    double began = clock_seconds(), us;
    draft_tree_clear(tree);
    drafter->bytes = 0;
    if (drafter->class->propose(drafter, tree, &root, 1, k, err) < 0)
        return -1;
    us = 1e6 * (clock_seconds() - began);
    for (int node = 0; node < tree->nodes && node < probe->drafted; node++)
        if (tree->token[node] != probe->token[1 + node] || tree->parent[node] != node - 1)
            return err_set(err, ERR_INPUT, "--record drafts: a draft of %d tokens does not begin with the draft of %d tokens",
                           k, k - 1);
    if (tree->nodes < k)
        return 1;
    probe->drafted = k;
    probe->token[k] = tree->token[k - 1];
    probe->log_probability[k] = tree->log_probability[k - 1];
    probe->match[k] = tree->match[k - 1];
    probe->matches |= probe->match[k] > 0;
    probe->draft_bytes[k] = probe->draft_bytes[k - 1] + drafter->bytes;
    probe->draft_us[k] = us + (probe->draft_bytes[k] ? probe->draft_us[k - 1] : 0);
    return 0;
}

/* Drafts the longest possible chain, and measures the cost of each length. */
static int draft_chain(struct probe *probe, int room, struct err *err)
{
    int rc = 0;
    for (int k = 1; !rc && k <= probe->length && k <= room; k++)
        rc = propose(probe, k, err);
    for (int node = 0; node < probe->drafted; node++) {         /* the last proposal may have been shorter than requested */
        probe->tree.token[node] = probe->token[1 + node];
        probe->tree.parent[node] = node - 1;
    }
    probe->tree.nodes = probe->drafted;
    return rc < 0 ? -1 : 0;
}

/* Returns the node of the record that corresponds to a node of the growing tree. */
static int recorded_node(const struct probe *probe, int node)
{
    int32_t way[SHAPE_DEPTH_MAX];
    int depth = draft_tree_path(&probe->growing, node, way, SHAPE_DEPTH_MAX);
    return draft_tree_find(&probe->tree, way, depth);
}

/* Drafts one level of a tree with the probed drafter, and records it with its time. */
static int tape_propose(struct drafter *tape, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves, int tokens,
                        struct err *err)
{
    struct probe *probe = ((struct tape *)tape)->probe;
    struct drafter *drafter = probe->drafter;
    struct draft_tree *all = &probe->tree;
    int before = tree->nodes, last = all->nodes;
    double began = clock_seconds();
    drafter->bytes = 0;
    if (drafter->class->propose(drafter, tree, leaf, leaves, tokens, err) < 0)
        return -1;
    double us = probe->draft_us[last] + 1e6 * (clock_seconds() - began);
    int64_t bytes = probe->draft_bytes[last] + drafter->bytes;
    for (int at = 0; at < leaves; at++)
        probe->asked[1 + recorded_node(probe, leaf[at].node)] = leaf[at].siblings;
    for (int node = before; node < tree->nodes; node++) {
        int parent = tree->parent[node] < 0 ? -1 : recorded_node(probe, tree->parent[node]);
        int made = draft_tree_add(all, parent, tree->token[node], tree->log_probability[node], 0);
        if (made < 0)
            return err_set(err, ERR_INPUT, "--record drafts: a tree has more than %d tokens; choose a smaller --tree",
                           all->capacity);
        all->match[made] = tree->match[node];
        probe->draft_us[1 + made] = us;
        probe->draft_bytes[1 + made] = bytes;
        probe->asked[1 + made] = 0;
    }
    return tree->nodes - before;
}

static const struct drafter_class tape_class = {.name = "tape", .propose = tape_propose};

static int draft_tree(struct probe *probe, int room, struct err *err)
{
    draft_tree_clear(&probe->tree);
    probe->asked[0] = 0;
    struct drafters tape = {{&probe->tape.base}, 1};
    struct draft_share share;
    const struct growth growth = {&probe->growing, probe->leaf, probe->policy, &tape, &share};
    if (draft_grow(&growth, room, err) < 0)
        return -1;
    probe->drafted = probe->tree.nodes;
    for (int node = 0; node < probe->drafted; node++) {
        probe->token[1 + node] = probe->tree.token[node];
        probe->log_probability[1 + node] = probe->tree.log_probability[node];
        probe->match[1 + node] = probe->tree.match[node];
        probe->matches |= probe->match[1 + node] > 0;
    }
    return 0;
}

static const struct feature_request *wanted_features(const struct probe *probe)
{
    return probe->features.count ? &probe->features : NULL;
}

/* Runs a forward over the root and the first `drafted` nodes of the draft. */
static int verify(struct probe *probe, int drafted, int position, struct forward *forward, struct err *err)
{
    const struct budget *budget = probe->setup.budget;
    const struct reject_draft made = {drafted, probe->tree.token, probe->tree.parent, NULL};
    const struct batch batch = {.rows = 1 + drafted, .token = probe->token, .parent = probe->row_parent,
                                .logit_rows = 1 + drafted, .features = wanted_features(probe),
                                .plan = budget && budget->verifies ? &budget->plan : NULL};
    struct sample_draw draw = *decoder_draw(probe->decoder);
    double began = clock_seconds();
    draw.position = (uint32_t)position;
    if (engine_forward(probe->setup.engine, decoder_sequence(probe->decoder), &batch, forward, err))
        return -1;
    probe->accepted = acceptance_accept(decoder_acceptance(probe->decoder), &made, forward->logits, &draw, probe->path,
                                        probe->chosen, err);
    probe->verify_us[drafted] = 1e6 * (clock_seconds() - began);
    probe->bytes[drafted] = forward->bytes;
    probe->expert_bytes = forward->expert_bytes;
    probe->loaded[drafted] = 0;
    for (int layer = 0; layer < forward->moe_layers; layer++)
        probe->loaded[drafted] += forward->distinct_loaded[layer];
    return probe->accepted < 0 ? -1 : 0;
}

/* Returns the next draft size to verify: for a chain every length up to 16, then 24, 32, 48 and 64; for a tree 0, 1, 2, 3,
 * 4, 6, 8, 12, 16, 24, ...; and the whole draft. */
static int next_size(const struct probe *probe, int size)
{
    enum { EVERY_MAX = 16 };            /* of a chain */
    int step = 1;
    while (4 * step <= size && (!probe->chains || size >= EVERY_MAX))
        step *= 2;
    return size + step < probe->drafted ? size + step : probe->drafted;
}

/* Fills in the sizes between two verified ones: distinct experts from the forward over the whole draft, bytes from these,
 * times by linear interpolation. */
static void fill_between(struct probe *probe, int low, int high, const struct forward *whole)
{
    const struct hparams *shape = engine_hparams(probe->setup.engine);
    size_t top_k = (size_t)whole->top_k, layers = (size_t)whole->moe_layers, experts = (size_t)shape->router.experts;
    double base_low = (double)(probe->bytes[low] - probe->loaded[low] * probe->expert_bytes);
    double base_high = (double)(probe->bytes[high] - probe->loaded[high] * probe->expert_bytes);
    for (int size = low + 1; size < high; size++) {
        double share = (double)(size - low) / (high - low);
        probe->loaded[size] = 0;
        memset(probe->seen, 0, layers * experts);
        for (size_t slot = 0; slot < (size_t)(1 + size) * layers * top_k; slot++) {
            int32_t expert = whole->expert[slot];
            uint8_t *seen = &probe->seen[slot / top_k % layers * experts + (size_t)(expert < 0 ? 0 : expert)];
            probe->loaded[size] += expert >= 0 && !*seen;
            *seen |= expert >= 0;
        }
        probe->bytes[size] = llround(base_low + share * (base_high - base_low)) + probe->loaded[size] * probe->expert_bytes;
        probe->verify_us[size] = probe->verify_us[low] + share * (probe->verify_us[high] - probe->verify_us[low]);
    }
}

/* Verifies the draft in its sizes; *forward: the forward over the whole draft. */
static int read_sizes(struct probe *probe, int position, int32_t next, struct forward *forward, struct err *err)
{
    int read[ROWS_MAX], sizes = 0;
    for (int node = 0; node < probe->drafted; node++)
        probe->row_parent[1 + node] = 1 + probe->tree.parent[node];
    for (int size = 0;; size = next_size(probe, size)) {
        sequence_rollback(decoder_sequence(probe->decoder));
        if (verify(probe, size, position, forward, err))
            return -1;
        if (probe->chosen[0] != next)
            return err_set(err, ERR_INPUT, "--record drafts: at position %d the text has token %d, but verifying a draft of "
                           "%d tokens chooses %d",
                           position, (int)next, size, (int)probe->chosen[0]);
        read[sizes++] = size;
        if (size == probe->drafted)
            break;
    }
    for (int i = 1; i < sizes; i++)
        fill_between(probe, read[i - 1], read[i], forward);
    return 0;
}

/* Probes one position with one drafter. next: the text's token after the root. *forward: the forward over the whole draft. */
static int probe_position(struct probe *probe, int position, int32_t next, int left, int room, probe_function *put,
                          void *context, struct forward *forward, struct err *err)
{
    const bool several = probe->drafters.count > 1;
    probe->drafted = 0;
    probe->log_probability[0] = NAN;
    probe->match[0] = 0;
    probe->matches = false;
    probe->draft_us[0] = 0;
    probe->draft_bytes[0] = 0;
    if ((probe->chains ? draft_chain(probe, room, err) : draft_tree(probe, room, err)) ||
        read_sizes(probe, position, next, forward, err))
        return -1;
    for (int i = 0; i < probe->accepted; i++)
        probe->path[i]++;
    struct decode_draft found = {
        .pos = position, .left = left, .room = room, .K = probe->length, .n = 1 + probe->drafted, .accepted = probe->accepted,
        .drafter = several ? probe->drafter->number : -1, .match = probe->matches ? probe->match : NULL,
        .tokens = probe->token, .log_probability = probe->log_probability, .draft_us = probe->draft_us,
        .verify_us = probe->verify_us, .draft_bytes = probe->draft_bytes, .bytes = probe->bytes,
        .experts_loaded = probe->loaded, .experts = forward->moe_layers ? forward->expert : NULL, .expert_bytes = -1};
    if (!probe->chains) {
        found.parents = probe->row_parent;
        found.asked = probe->asked;
        found.path = probe->path;
    }
    if (forward->moe_layers)
        found.expert_bytes = probe->expert_bytes;
    return put(context, &found, err);
}

/* Probes one position with every drafter, then advances the text by one token. */
static int probe_position_with_all(struct probe *probe, int position, int32_t next, int left, int room, probe_function *put,
                                   void *context, struct err *err)
{
    const int32_t root = 0;
    struct forward forward;
    const struct target_view view = {.forward = &forward, .features = &probe->features, .position = position,
                                     .token = probe->token, .kept = &root, .kept_rows = 1};
    for (int i = 0; i < probe->drafters.count; i++) {
        probe->drafter = probe->drafters.item[i];
        if (probe_position(probe, position, next, left, room, put, context, &forward, err))
            return -1;
    }
    return drafters_observe(&probe->drafters, &view, err) || sequence_commit(decoder_sequence(probe->decoder), &root, 1, err) ||
           drafters_commit(&probe->drafters, &next, 1, err) ? -1 : 0;
}

/* Context of on_piece. */
struct shown {
    struct probe *probe;
    const int32_t *token;               /* the prompt */
    int32_t row[ENGINE_SLAB_MAX];       /* 0, 1, ... */
};

static int on_piece(void *context, const struct forward *piece, int position, struct err *err)
{
    struct shown *shown = context;
    const struct target_view view = {.forward = piece, .features = &shown->probe->features, .position = position,
                                     .token = shown->token + position, .kept = shown->row, .kept_rows = piece->rows,
                                     .prompt = true};
    for (int row = 0; row < piece->rows; row++)
        shown->row[row] = row;
    return drafters_observe(&shown->probe->drafters, &view, err);
}

/* Passes the prompt's states to the drafters. The prompt is in the KV cache already; it is read once more only if a drafter
 * reads states. */
static int show_prompt(struct probe *probe, const struct decode_prompt *prompt, struct err *err)
{
    struct sequence *sequence = decoder_sequence(probe->decoder);
    const struct batch options = {.features = wanted_features(probe)};
    struct shown shown = {.probe = probe, .token = prompt->token};
    struct forward forward;
    if (!probe->features.count)
        return sequence_truncate(sequence, prompt->tokens, err);
    return sequence_truncate(sequence, 0, err) ||
           engine_prompt(probe->setup.engine, sequence, prompt->token, prompt->tokens, &options, on_piece, &shown, &forward,
                         err) ? -1 : 0;
}

int probe_run(struct probe *probe, struct decoder *decoder, const struct decode_prompt *prompt,
              const struct decode_result *result, probe_function *put, void *context, struct err *err)
{
    const int limit = decoder_limit(decoder);
    const struct draft_text text = {decoder_sequence(decoder), prompt->tokens + limit, *decoder_draw(decoder)};
    probe->decoder = decoder;
    if (result->tokens < 2)
        return 0;
    if (drafters_begin(&probe->drafters, &text, prompt->token, prompt->tokens, err) ||
        show_prompt(probe, prompt, err) || drafters_commit(&probe->drafters, result->token, 1, err))
        return -1;
    for (int i = 0; i + 1 < result->tokens; i++) {
        probe->token[0] = result->token[i];
        probe->row_parent[0] = -1;
        if (probe_position_with_all(probe, prompt->tokens + i, result->token[i + 1], result->tokens - 1 - i, limit - i - 2,
                                    put, context, err))
            return -1;
    }
    return 0;
}
