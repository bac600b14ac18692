/* Cascade: a draft length chosen by measured utility (Saxena et al., "Utility-driven speculative decoding for
 * mixture-of-experts", arXiv 2506.20675, section 5).
 *
 *     utility = (tokens per iteration) / (seconds of an iteration / seconds of one without a draft)       equation 3
 *
 * A text begins with `baseline` iterations without a draft, whose time is measured. Then two phases alternate:
 *
 *   test   trials of `trial` iterations, each at one K, up to `trials` of them. The first is at the K of the highest utility in
 *          recent memory (section 5.3), or at 1 after a set phase without drafts (5.4). From there K climbs towards higher
 *          utility (5.6). A test phase ends early after `falls` consecutive falls of utility, when two consecutive trials
 *          differ by at most `close`, when K = 1 does not pay, or when no untried neighbour is left (always the case after two
 *          falls).
 *   set    `set` iterations at the best K of the test phase, or at 0 if that K does not pay (utility below 1). Each set phase
 *          at 0 makes the following set phases `backoff` times as long (5.5).
 *
 * After `refresh` consecutive iterations with drafts, one iteration without a draft is measured again.
 *
 * Choices that the paper leaves open: the initial K is `first`. A climb begins upwards if the first trial pays, else
 * downwards, in steps of 1; when utility falls the climb continues on the other side of its best K, and it tries no K twice. K
 * is at most `max`, and at most -K. "Recent" means the last `memory` iterations; ties go to the smaller K. Set phases grow to
 * at most `longest`, and return to their initial length after one with drafts. All state is reset with each text. The baseline
 * is the mean of the last `baseline` measurements, including those of set phases at 0. If texts share a forward, seconds
 * are this text's charge (shared.h). */
#include <math.h>

#include "common/base/mem.h"
#include "common/policy/shape.h"
#include "common/policy/shared.h"
#include "kernels/plain/loop.h"

static const char *const phase_words[] = {"baseline", "test", "set", "refresh"};

struct cascade {
    struct policy base;
    struct shape *shape;
    struct cascade_settings settings;
    struct cascade_state state;
    struct shared_cost forward;
};

static void observe(struct policy *policy, const struct outcome *outcome)
{
    struct cascade *c = (struct cascade *)policy;
    shared_learn(&c->forward, outcome);
    const double seconds = shared_charge(&c->forward, outcome, shared_growth(&c->forward, outcome->drafted + 1));
    union_learn(&c->forward.experts, outcome->expert, outcome->emitted, outcome->moe_layers);
    cascade_observe(&c->settings, &c->state, outcome->accepted, seconds);
}

static void begin(struct policy *policy, const struct policy_text *text)
{
    struct cascade *c = (struct cascade *)policy;
    (void)text;
    cascade_begin(&c->settings, &c->state);
    union_begin(&c->forward.experts);
}

static int cascade_open(struct policy **out, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    struct cascade_settings s;
    int cap = setup->draft_length > 0 ? setup->draft_length : setup->shape->class != &shape_chain ? setup->shape->depth : 7;
    const int limit = setup->max_length < CASCADE_K_MAX ? setup->max_length : CASCADE_K_MAX;
    if (spec_int(spec, "max|most", cap, 1, limit, &s.max, err) ||
        spec_int(spec, "first", s.max < 3 ? s.max : 3, 1, s.max, &s.first, err) ||
        spec_int(spec, "trial", 4, 1, 1 << 20, &s.trial, err) || spec_int(spec, "trials", 4, 1, 64, &s.trials, err) ||
        spec_int(spec, "falls", 2, 1, 64, &s.falls, err) || spec_int(spec, "backoff", 2, 1, 64, &s.backoff, err) ||
        spec_int(spec, "set", 16, 1, 1 << 20, &s.set, err) ||
        spec_int(spec, "longest", s.set < 256 ? 256 : s.set, s.set, 1 << 24, &s.longest, err) ||
        spec_int(spec, "baseline", 4, 1, CASCADE_BASELINE_MAX, &s.baseline, err) ||
        spec_int(spec, "refresh", 100, 1, 1 << 24, &s.refresh, err) ||
        spec_int(spec, "memory", 256, 1, 1 << 24, &s.memory, err) || spec_float(spec, "close", 0.1, 0, 10, &s.close, err))
        return -1;
    if (setup->draft_length == 0)
        return err_set(err, ERR_INPUT, "cascade: a maximum draft length of 0 leaves nothing to choose; give -K 1 or more");
    struct cascade *c = mem_alloc(1, sizeof *c, err);
    if (!c)
        return -1;
    c->shape = setup->shape;
    c->settings = s;
    const struct shared_setup shared = {NULL, limit + 1, 0.5, sizeof(struct shared_learning), 0};
    if (shared_cost_init(&c->forward, &shared, setup, NULL, err)) {
        mem_free(&c);
        return -1;
    }
    cascade_begin(&c->settings, &c->state);
    *out = &c->base;
    return 0;
}

static struct step cascade_next(struct policy *policy, const struct draft_view *view)
{
    struct cascade *c = (struct cascade *)policy;
    return c->state.K ? shape_next(c->shape, view, c->state.K) : (struct step){.kind = STEP_STOP};
}

static int cascade_length(const struct policy *policy) { return ((const struct cascade *)policy)->state.K; }

static void show_state(const struct policy *policy, struct values *out)
{
    const struct cascade *cascade = (const struct cascade *)policy;
    const struct cascade_state *c = &cascade->state;
    values_text(out, "name", policy->class->name);
    values_int(out, "K", c->K);
    values_text(out, "phase", phase_words[c->phase]);
    values_int(out, "left", c->left);
    values_int(out, "set", c->set_length);
    if (c->plains)
        values_real(out, "baseline_us", 1e6 * cascade_baseline(&cascade->settings, c));
    if (c->phase == CASCADE_TEST)
        values_int(out, "trial", c->trials);
    if (c->phase == CASCADE_TEST && c->trials)
        values_real(out, "last_utility", c->last_utility);
    if (c->phase != CASCADE_BASELINE && isfinite(c->best_utility)) {
        values_int(out, "best", c->best);
        values_real(out, "best_utility", c->best_utility);
    }
}

static void cascade_free(struct policy *policy)
{
    shared_cost_free(&((struct cascade *)policy)->forward);
    mem_free(&policy);
}

static bool cascade_device(const struct policy *policy, struct loop_rules *rules)
{
    rules->adapts = 1;
    rules->cascade = ((const struct cascade *)policy)->settings;
    return true;
}

const struct policy_class policy_cascade = {
    .name = "cascade",
    .summary = "the draft length whose measured utility is highest, or none",
    .settings = "max=N,first=N,trial=N,trials=N,falls=N,set=N,backoff=N,longest=N,baseline=N,refresh=N,memory=N,close=X",
    .open = cascade_open,
    .begin = begin,
    .next = cascade_next,
    .length = cascade_length,
    .observe = observe,
    .state = show_state,
    .device = cascade_device,
    .free = cascade_free,
};
