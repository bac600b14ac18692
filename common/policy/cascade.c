/* Cascade: a draft length chosen by measured utility (Saxena et al., "Utility-driven speculative decoding for
 * mixture-of-experts", arXiv 2506.20675, section 5).
 *
 *     utility = (tokens an iteration) / (seconds of an iteration / seconds of one without a draft)       equation 3
 *
 * A text begins with `baseline` iterations without a draft, which are measured. Then phases take turns:
 *
 *   test   trials of `trial` iterations, each at one K, up to `trials` of them. The first is at the K of the highest utility in
 *          recent memory (section 5.3), or at 1 after a set phase without drafts (5.4). From there K climbs towards higher
 *          utility (5.6). A test phase ends early when utility has fallen twice running, when two trials running differ by at
 *          most `close`, when K = 1 does not pay, or when there is nowhere left to go.
 *   set    `set` iterations at the best K of the test phase; at 0 when that does not pay (utility below 1). Each time it comes
 *          to 0 the next set phases are twice as long (5.5).
 *
 * After `refresh` iterations with a draft and none without, one without is measured again.
 *
 * What the paper leaves open, and what is done here: the very first K is `first`. A climb begins upwards when the first trial
 * pays and downwards when it does not, by steps of 1; when utility falls it goes on at the other side of its best K, and it
 * tries no K twice. K ends at `most`, or at -K. "Recent" is the last `memory` iterations, and ties go to the smaller K. Set
 * phases do not grow beyond `longest`, and have their first length again after one with drafts. All of it begins anew with each
 * text. Of the baseline the last `baseline` measurements count, those of set phases at 0 among them. */
#include "common/policy/shape.h"

#include <math.h>

#include "common/base/mem.h"

enum phase { PHASE_BASELINE, PHASE_TEST, PHASE_SET, PHASE_REFRESH };
static const char *const phase_words[] = {"baseline", "test", "set", "refresh"};

enum { K_MOST = 64, BASELINE_MOST = 64 };

struct settings {
    int first, most, trial, trials, set, longest, baseline, refresh, memory;
    double close;
};

struct tried {
    double utility;
    int64_t when;                       /* iterations of the text by then; 0: never */
    bool now;                           /* in this test phase */
};

struct cascade {
    struct policy base;
    struct shape *shape;
    struct settings settings;
    enum phase phase;
    int K, left;                        /* the K in force, for so many iterations more */
    int held;                           /* the K that a refresh interrupted */
    int set_length;
    bool paused;                        /* the last set phase was without drafts */
    int64_t iteration, since_baseline;
    double plain[BASELINE_MOST];        /* seconds of the last iterations without a draft */
    int plains;                         /* so many were measured in all */
    struct tried tried[K_MOST + 1];
    double tokens, seconds;             /* of the trial or phase at work */
    /* Of the test phase: */
    int trials, best, direction, falls;
    double best_utility, last_utility;
};

static double baseline(const struct cascade *c)
{
    int count = c->plains < c->settings.baseline ? c->plains : c->settings.baseline;
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += c->plain[i];
    return sum / count;
}

static double utility(const struct cascade *c)
{
    return c->tokens / (c->seconds / baseline(c));
}

static void enter(struct cascade *c, enum phase phase, int K, int iterations)
{
    c->phase = phase;
    c->K = K;
    c->left = iterations;
    c->tokens = c->seconds = 0;
}

/* The K of the highest utility in recent memory. */
static int remembered(const struct cascade *c)
{
    int best = 0;
    for (int K = 1; K <= c->settings.most; K++)
        if (c->tried[K].when && c->iteration - c->tried[K].when < c->settings.memory &&
            (!best || c->tried[K].utility > c->tried[best].utility))
            best = K;
    return best ? best : c->settings.first;
}

static void begin_test(struct cascade *c)
{
    for (int K = 1; K <= c->settings.most; K++)
        c->tried[K].now = false;
    c->trials = c->falls = c->direction = c->best = 0;
    c->best_utility = -INFINITY;
    enter(c, PHASE_TEST, c->paused ? 1 : remembered(c), c->settings.trial);
}

static void end_test(struct cascade *c)
{
    int K = c->best_utility < 1 ? 0 : c->best;
    c->paused = K == 0;
    enter(c, PHASE_SET, K, c->set_length);
    if (K)
        c->set_length = c->settings.set;
    else
        c->set_length = c->set_length * 2 < c->settings.longest ? c->set_length * 2 : c->settings.longest;
}

/* Where the climb goes on, 0: nowhere. */
static int climb(struct cascade *c, double now)
{
    int next = c->K;
    if (!c->direction)
        c->direction = now < 1 || c->K == c->settings.most ? -1 : 1;
    else if (now <= c->last_utility) {
        c->direction = -c->direction;
        next = c->best;
    }
    next += c->direction;
    return next < 1 || next > c->settings.most || c->tried[next].now ? 0 : next;
}

static void end_trial(struct cascade *c)
{
    double now = utility(c);
    bool first = c->trials++ == 0;
    c->tried[c->K] = (struct tried){now, c->iteration, true};
    c->falls = !first && now < c->last_utility ? c->falls + 1 : 0;
    bool same = !first && fabs(now - c->last_utility) <= c->settings.close * fmax(now, c->last_utility);
    bool hopeless = c->K == 1 && now < 1;
    if (now > c->best_utility) {
        c->best = c->K;
        c->best_utility = now;
    }
    int next = same || hopeless || c->falls == 2 || c->trials == c->settings.trials ? 0 : climb(c, now);
    c->last_utility = now;
    if (next)
        enter(c, PHASE_TEST, next, c->settings.trial);
    else
        end_test(c);
}

static void end_phase(struct cascade *c)
{
    if (c->phase == PHASE_TEST) {
        end_trial(c);
        return;
    }
    if (c->phase == PHASE_SET && c->K)
        c->tried[c->K] = (struct tried){utility(c), c->iteration, false};
    begin_test(c);
}

static void cascade_observe(struct policy *policy, const struct outcome *outcome)
{
    struct cascade *c = (struct cascade *)policy;
    c->iteration++;
    if (c->K == 0) {
        c->plain[c->plains++ % c->settings.baseline] = outcome->iteration_s;
        c->since_baseline = 0;
    } else {
        c->since_baseline++;
    }
    if (c->phase == PHASE_REFRESH) {            /* the phase that was interrupted goes on */
        c->phase = PHASE_SET;
        c->K = c->held;
        return;
    }
    c->tokens += outcome->accepted + 1;
    c->seconds += outcome->iteration_s;
    if (--c->left <= 0)
        end_phase(c);
    if (c->phase == PHASE_SET && c->since_baseline >= c->settings.refresh) {
        c->held = c->K;
        c->phase = PHASE_REFRESH;
        c->K = 0;
    }
}

static void cascade_begin(struct policy *policy, const struct policy_text *text)
{
    struct cascade *c = (struct cascade *)policy;
    (void)text;
    for (int K = 0; K <= K_MOST; K++)
        c->tried[K] = (struct tried){0};
    c->plains = 0;
    c->iteration = c->since_baseline = 0;
    c->set_length = c->settings.set;
    c->paused = false;
    enter(c, PHASE_BASELINE, 0, c->settings.baseline);
}

static int cascade_open(struct policy **out, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    struct settings s;
    int cap = setup->draft_length > 0 ? setup->draft_length : setup->shape->class != &shape_chain ? setup->shape->depth : 7;
    if (spec_int(spec, "most", cap, 1, setup->max_length < K_MOST ? setup->max_length : K_MOST, &s.most, err) ||
        spec_int(spec, "first", s.most < 3 ? s.most : 3, 1, s.most, &s.first, err) ||
        spec_int(spec, "trial", 4, 1, 1 << 20, &s.trial, err) || spec_int(spec, "trials", 4, 1, 64, &s.trials, err) ||
        spec_int(spec, "set", 16, 1, 1 << 20, &s.set, err) ||
        spec_int(spec, "longest", s.set < 256 ? 256 : s.set, s.set, 1 << 24, &s.longest, err) ||
        spec_int(spec, "baseline", 4, 1, BASELINE_MOST, &s.baseline, err) ||
        spec_int(spec, "refresh", 100, 1, 1 << 24, &s.refresh, err) ||
        spec_int(spec, "memory", 256, 1, 1 << 24, &s.memory, err) || spec_float(spec, "close", 0.1, 0, 10, &s.close, err))
        return -1;
    if (setup->draft_length == 0)
        return err_set(err, ERR_INPUT, "cascade: a draft length of at most 0 leaves nothing to choose");
    struct cascade *c = mem_alloc(1, sizeof *c, err);
    if (!c)
        return -1;
    c->shape = setup->shape;
    c->settings = s;
    cascade_begin(&c->base, NULL);
    *out = &c->base;
    return 0;
}

static struct step cascade_next(struct policy *policy, const struct draft_view *view)
{
    struct cascade *c = (struct cascade *)policy;
    return c->K ? c->shape->class->next(c->shape, view, c->K) : (struct step){.kind = STEP_STOP};
}

static int cascade_length(const struct policy *policy) { return ((const struct cascade *)policy)->K; }

static void cascade_state(const struct policy *policy, struct values *out)
{
    const struct cascade *c = (const struct cascade *)policy;
    values_text(out, "name", policy->class->name);
    values_int(out, "K", c->K);
    values_text(out, "phase", phase_words[c->phase]);
    values_int(out, "left", c->left);
    values_int(out, "set", c->set_length);
    if (c->plains)
        values_real(out, "baseline_us", 1e6 * baseline(c));
    if (c->phase == PHASE_TEST)
        values_int(out, "trial", c->trials);
    if (c->phase == PHASE_TEST && c->trials)
        values_real(out, "last_utility", c->last_utility);
    if (c->phase != PHASE_BASELINE && isfinite(c->best_utility)) {
        values_int(out, "best", c->best);
        values_real(out, "best_utility", c->best_utility);
    }
}

static void cascade_free(struct policy *policy) { mem_free(&policy); }

const struct policy_class policy_cascade = {
    .name = "cascade",
    .summary = "the draft length whose measured utility is highest, or none",
    .settings = "most=N,first=N,trial=N,trials=N,set=N,longest=N,baseline=N,refresh=N,memory=N,close=X",
    .open = cascade_open,
    .begin = cascade_begin,
    .next = cascade_next,
    .length = cascade_length,
    .observe = cascade_observe,
    .state = cascade_state,
    .free = cascade_free,
};
