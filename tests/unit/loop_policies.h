/* Policies and drafters for tests only, for the loop of loop.h. Some use everything they see, but only to decide what is
 * drawn next: these must pass. Others drop tokens after drawing them because of what was drawn: these must be detected. A
 * twist installs them in an open decoder. */
#ifndef MOE_TESTS_LOOP_POLICIES_H
#define MOE_TESTS_LOOP_POLICIES_H

#include "tests/unit/loop.h"

struct loop_policy {
    struct policy base;
    int32_t token[2];               /* the first two tokens of the last draft */
    int tokens, accepted;           /* its length, and its number of accepted tokens */
    struct draft_leaf leaf;
    int32_t keep[DRAFT_MAX];
};

static inline struct step loop_stop(void) { return (struct step){.kind = STEP_STOP}; }

static inline struct step loop_extend(struct loop_policy *mine, int node, int siblings, int tokens)
{
    mine->leaf = (struct draft_leaf){node, siblings};
    return (struct step){.kind = STEP_EXTEND, .tokens = tokens, .leaf = &mine->leaf, .leaves = 1};
}

static inline float loop_said(const struct draft_view *view, int node) { return expf(view->tree->log_probability[node]); }

/* Continues as long as its drafter is sure of its last token. */
static inline struct step loop_next_doubting(struct policy *policy, const struct draft_view *view)
{
    int last = view->tree->nodes - 1;
    return (!view->steps || (view->added && loop_said(view, last) > 0.5f)) && last < 2
        ? loop_extend((struct loop_policy *)policy, last, 1, 1) : loop_stop();
}

/* Drafts nothing after a rejection if the second rejected token has an odd id. */
static inline struct step loop_next_remembering(struct policy *policy, const struct draft_view *view)
{
    struct loop_policy *mine = (struct loop_policy *)policy;
    bool rests = mine->tokens == 2 && !mine->accepted && mine->token[1] % 2;
    if (view->steps) {
        mine->tokens = view->tree->nodes < 2 ? view->tree->nodes : 2;
        memcpy(mine->token, view->tree->token, (size_t)mine->tokens * sizeof *mine->token);
        return loop_stop();
    }
    mine->tokens = 0;
    return rests ? loop_stop() : loop_extend(mine, -1, 1, 3);
}

/* Drafts two children of the root, one node below the second, and one below the first only if its token is odd. */
static inline struct step loop_next_branching(struct policy *policy, const struct draft_view *view)
{
    struct loop_policy *mine = (struct loop_policy *)policy;
    const struct draft_tree *tree = view->tree;
    if (!view->steps)
        return loop_extend(mine, -1, 2, 1);
    if (view->steps == 1)
        return tree->nodes == 2 ? loop_extend(mine, 1, 1, 1) : loop_stop();
    return view->steps == 2 && tree->nodes == 3 && tree->token[2] % 2 ? loop_extend(mine, 0, 1, 1) : loop_stop();
}

/* Returns how many first tokens of a chain are kept: those before the first that its drafter finds unlikely. */
static inline int loop_likely(const struct draft_view *view)
{
    int likely = 0;
    while (likely < view->tree->nodes && loop_said(view, likely) > 0.35f)
        likely++;
    return likely;
}

/* Drops tokens that its drafter finds unlikely, declared as dropping. */
static inline struct step loop_next_dropping(struct policy *policy, const struct draft_view *view)
{
    struct loop_policy *mine = (struct loop_policy *)policy;
    if (view->steps != 1)
        return view->steps ? loop_stop() : loop_extend(mine, -1, 1, 3);
    for (int node = 0; node < view->tree->nodes; node++)
        mine->keep[node] = node;
    return (struct step){.kind = STEP_KEEP, .keep = mine->keep, .kept = loop_likely(view)};
}

/* Drafts children of the root by two drafters, with nodes of the second below one of the first and vice versa. */
static inline struct step loop_next_mixing(struct policy *policy, const struct draft_view *view)
{
    static const struct { int drafter, node, siblings; } steps[] = {{0, -1, 1}, {1, -1, 2}, {1, 0, 1}, {0, 1, 1}};
    struct loop_policy *mine = (struct loop_policy *)policy;
    if (view->steps >= 4 || view->tree->nodes <= steps[view->steps].node)
        return loop_stop();
    struct step step = loop_extend(mine, steps[view->steps].node, steps[view->steps].siblings, 1);
    step.drafter = steps[view->steps].drafter;
    return step;
}

/* Lets two drafters draft two children each, more than there are tokens, then continues below the tokens that both drew. */
static inline struct step loop_next_meeting(struct policy *policy, const struct draft_view *view)
{
    static const struct { int drafter, node, siblings; } steps[] = {{0, -1, 2}, {1, -1, 3}, {1, 0, 2}, {0, 0, 2}, {0, -1, 3}};
    struct loop_policy *mine = (struct loop_policy *)policy;
    if (view->steps >= 5)
        return loop_stop();
    struct step step = loop_extend(mine, steps[view->steps].node, steps[view->steps].siblings, 1);
    step.drafter = steps[view->steps].drafter;
    return step;
}

/* Does the same, but marks tokens that both drew as drawn from the second drafter's distribution. */
static inline struct step loop_next_mistaking(struct policy *policy, const struct draft_view *view)
{
    struct draft_tree *tree = (struct draft_tree *)(uintptr_t)view->tree;
    for (int node = 0; view->steps == 2 && view->added == 1 && node < tree->nodes - 1; node++)
        tree->proposal[node] = tree->proposal[tree->nodes - 1];
    return loop_next_meeting(policy, view);
}

/* Drafts three tokens with one drafter, which another one reviews; then continues with the first drafter if it was right. */
static inline struct step loop_next_reviewing(struct policy *policy, const struct draft_view *view)
{
    struct loop_policy *mine = (struct loop_policy *)policy;
    const int last = view->tree->nodes - 1;
    if (view->steps > 2 || (view->steps == 2 && (!view->agreed || last < 0 || view->tree->depth[last] >= 3)))
        return loop_stop();
    struct step step = loop_extend(mine, view->steps == 2 ? last : -1, view->steps ? 1 : 2, view->steps ? 1 : 2);
    step.kind = view->steps == 1 ? STEP_REVIEW : STEP_EXTEND;
    step.drafter = view->steps == 1;
    return step;
}

/* Drops unlikely tokens without declaring that it drops. */
static inline struct step loop_next_cutting(struct policy *policy, const struct draft_view *view)
{
    if (view->steps)
        ((struct draft_tree *)(uintptr_t)view->tree)->nodes = loop_likely(view);
    return view->steps ? loop_stop() : loop_extend((struct loop_policy *)policy, -1, 1, 3);
}

static inline int loop_length(const struct policy *policy) { return (void)policy, 3; }

static inline void loop_observe(struct policy *policy, const struct outcome *outcome)
{
    ((struct loop_policy *)policy)->accepted = outcome->accepted;
}

static inline void loop_state(const struct policy *policy, struct values *out)
{
    values_text(out, "name", policy->class->name);
}

static inline void loop_free(struct policy *policy) { free(policy); }

#define LOOP_POLICY(what) \
    {.name = #what, .next = loop_next_##what, .length = loop_length, .observe = loop_observe, .state = loop_state, \
     .free = loop_free}

static const struct policy_class loop_doubting = LOOP_POLICY(doubting), loop_remembering = LOOP_POLICY(remembering),
                                 loop_branching = LOOP_POLICY(branching), loop_dropping = LOOP_POLICY(dropping),
                                 loop_cutting = LOOP_POLICY(cutting), loop_mixing = LOOP_POLICY(mixing),
                                 loop_reviewing = LOOP_POLICY(reviewing), loop_meeting = LOOP_POLICY(meeting),
                                 loop_mistaking = LOOP_POLICY(mistaking);

/* Replaces the decoder's policy, and makes its drafter report probabilities. */
static inline int loop_take(struct decoder *decoder, const struct policy_class *class)
{
    struct err err = {0};
    struct loop_policy *mine = calloc(1, sizeof *mine);
    mine->base.class = class;
    policy_close(&decoder->policy);
    decoder->policy = &mine->base;
    drafters_close(&decoder->drafters);
    loop_must(decoder_open_drafters(decoder, true, &decoder->drafters, &err), &err);
    return 0;
}

/* A drafter that withholds drawn tokens that it finds unlikely. */
struct loop_withholding {
    struct drafter base;
    struct drafter *inner;
};

static inline int loop_withhold(struct drafter *drafter, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves,
                                int tokens, struct err *err)
{
    struct drafter *inner = ((struct loop_withholding *)drafter)->inner;
    int before = tree->nodes, added = inner->class->propose(inner, tree, leaf, leaves, tokens, err);
    struct draft_view view = {.tree = tree};
    if (added > 0)
        tree->nodes = loop_likely(&view);
    return added < 0 ? -1 : tree->nodes - before;
}

static inline int loop_withholding_commit(struct drafter *drafter, const int32_t *token, int count, struct err *err)
{
    struct drafter *inner = ((struct loop_withholding *)drafter)->inner;
    return inner->class->commit(inner, token, count, err);
}

static inline int loop_withholding_begin(struct drafter *drafter, const struct draft_text *text, struct err *err)
{
    struct drafter *inner = ((struct loop_withholding *)drafter)->inner;
    return inner->class->begin(inner, text, err);
}

static inline void loop_withholding_free(struct drafter *drafter)
{
    drafter_close(&((struct loop_withholding *)drafter)->inner);
    free(drafter);
}

static const struct drafter_class loop_withholding = {
    .name = "withholding", .propose = loop_withhold, .commit = loop_withholding_commit, .begin = loop_withholding_begin,
    .free = loop_withholding_free, .draws = true};

/* ---- twists ---- */

static inline int loop_doubts(struct decoder *decoder) { return loop_take(decoder, &loop_doubting); }
static inline int loop_remembers(struct decoder *decoder) { return loop_take(decoder, &loop_remembering); }
static inline int loop_branches(struct decoder *decoder) { return loop_take(decoder, &loop_branching); }
static inline int loop_drops(struct decoder *decoder) { return loop_take(decoder, &loop_dropping); }
static inline int loop_cuts(struct decoder *decoder) { return loop_take(decoder, &loop_cutting); }
static inline int loop_mixes(struct decoder *decoder) { return loop_take(decoder, &loop_mixing); }
static inline int loop_meets(struct decoder *decoder) { return loop_take(decoder, &loop_meeting); }
static inline int loop_mistakes(struct decoder *decoder) { return loop_take(decoder, &loop_mistaking); }
static inline int loop_reviews(struct decoder *decoder) { return loop_take(decoder, &loop_reviewing); }

static inline int loop_withholds(struct decoder *decoder)
{
    struct loop_withholding *mine = calloc(1, sizeof *mine);
    struct err err = {0};
    mine->base.class = &loop_withholding;
    drafters_close(&decoder->drafters);
    loop_must(decoder_open_drafters(decoder, true, &decoder->drafters, &err), &err);
    mine->inner = decoder->drafters.item[0];
    decoder->drafters.item[0] = &mine->base;
    return 0;
}

/* Makes drafts use the target's noise of each position, which repeats when a position is drafted again; with the decoder's
 * policy or one of the above. */
static inline int loop_same_noise(struct decoder *decoder)
{
    struct err err = {0};
    decoder->drafting.choice = DRAFT_COUPLED;
    drafters_close(&decoder->drafters);
    loop_must(decoder_open_drafters(decoder, true, &decoder->drafters, &err), &err);
    return 0;
}

static inline int loop_remembers_noise(struct decoder *decoder)
{
    return loop_same_noise(decoder) || loop_take(decoder, &loop_remembering);
}

static inline int loop_branches_noise(struct decoder *decoder)
{
    return loop_same_noise(decoder) || loop_take(decoder, &loop_branching);
}

/* Twists for acceptance by rejection with a draft model. Correct ones must pass; each mistake must be detected. */
struct loop_twist {
    const char *name;
    int policy;                         /* in settings: 0 static, 1 a policy that drops, 2 the oracle */
    int (*twist)(struct decoder *decoder);
    int thousands;                      /* thousands of texts that are enough to detect it */
    const char *draft;                  /* NULL: the model */
};

static const struct loop_twist loop_right[] = {
    {"a policy that goes on while its drafter is sure", 0, loop_doubts, 2, NULL},
    {"a policy that remembers what was refused", 0, loop_remembers, 8, NULL},
    {"a policy that grows one branch as another one turned out", 0, loop_branches, 6, NULL},
    {"a policy that drops what its drafter finds unlikely, and says so", 1, loop_drops, 2, NULL},
    {"two drafters beside and below one another", 0, loop_mixes, 2, "model+self"},
    {"two drafters that draw the same tokens below one node", 0, loop_meets, 4, "model+self"},
    {"a target that drafts for itself up to a layer, and goes on from there", 0, NULL, 2, "exit"},
    {"a drafter that reviews what another one drew", 0, loop_reviews, 3, "self+model"},
    {"a drafter that reviews what another one knew", 0, loop_reviews, 1, "ngram+model"},
    {"a head beside and below a model", 0, loop_mixes, 2, "head+model"},
    {"a head that reviews what a model drew", 0, loop_reviews, 2, "model+head"},
}, loop_wrong[] = {
    {"a policy that drops what its drafter finds unlikely, and does not say so", 0, loop_cuts, 2, NULL},
    {"a drafter that withholds what it finds unlikely", 0, loop_withholds, 2, NULL},
    {"a policy that remembers, and random numbers that come back", 0, loop_remembers_noise, 12, NULL},
    {"a token that two drafters drew, as if the second one alone had", 0, loop_mistakes, 4, "model+self"},
    {"a policy that sees the random numbers of one branch in another", 0, loop_branches_noise, 8, NULL},
    {"a policy that knows the random numbers", 2, loop_same_noise, 16, NULL},     /* only in the long test, because
                                                                                   * recordings take time */
};

static inline int loop_twist_run(const struct loop_twist *twist, const struct loop_world *world, const struct loop_law *law,
                                 const struct loop_rig *rig, long samples, struct loop_tally *out)
{
    static const struct policy_class *const classes[] = {&policy_static, &policy_cascade_cost, &policy_oracle};
    char room[1400];
    struct loop_cell cell = {.accept = "rejection", .draft = twist->draft ? twist->draft : "model",
                             .temperature = law->filter.temperature, .seed = 77, .twist = twist->twist};
    cell.policy = loop_policy(classes[twist->policy], world, rig, room, sizeof room);
    return loop_run(&cell, world, law, rig, samples, out);
}

#endif
