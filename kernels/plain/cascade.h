/* Cascade's choice of a draft length from measurements only: Saxena et al., "Utility-driven speculative decoding for
 * mixture-of-experts", arXiv 2506.20675, section 5. common/policy/cascade.c describes the method and what the paper leaves
 * open.
 *
 * Usage: cascade_begin, then for each iteration of a text: draft state->K tokens, cascade_observe. */
#ifndef MOE_KERNELS_PLAIN_CASCADE_H
#define MOE_KERNELS_PLAIN_CASCADE_H

#include <math.h>

#include "kernels/plain/plain.h"

enum { CASCADE_K_MAX = 64, CASCADE_BASELINE_MAX = 64 };
enum cascade_phase { CASCADE_BASELINE, CASCADE_TEST, CASCADE_SET, CASCADE_REFRESH };

struct cascade_settings {
    int first, max, trial, trials, falls, set, backoff, longest, baseline, refresh, memory;
    double close;
};

struct cascade_tried {
    double utility;
    int64_t when;                       /* iteration of the text in which this K was measured last; 0: never */
    int now;                            /* 1: measured in the current test phase */
};

struct cascade_state {
    enum cascade_phase phase;
    int K, left;                        /* K: current draft length; left: remaining iterations of the phase or trial */
    int held;                           /* the K of the set phase that a refresh interrupts */
    int set_length;
    int paused;                         /* 1: the last set phase had no drafts */
    int64_t iteration, since_baseline;
    double plain[CASCADE_BASELINE_MAX];        /* seconds of the last iterations without a draft, a ring */
    int plains;                         /* iterations measured without a draft, in total */
    struct cascade_tried tried[CASCADE_K_MAX + 1];
    double tokens, seconds;             /* of the current trial or phase */
    /* the test phase: */
    int trials, best, direction, falls;
    double best_utility, last_utility;
};

/* Returns the mean seconds of an iteration without a draft. */
PLAIN double cascade_baseline(const struct cascade_settings *s, const struct cascade_state *c)
{
    int count = c->plains < s->baseline ? c->plains : s->baseline;
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += c->plain[i];
    return sum / count;
}

PLAIN double cascade_utility(const struct cascade_settings *s, const struct cascade_state *c)
{
    return c->tokens / (c->seconds / cascade_baseline(s, c));
}

PLAIN void cascade_enter(struct cascade_state *c, enum cascade_phase phase, int K, int iterations)
{
    c->phase = phase;
    c->K = K;
    c->left = iterations;
    c->tokens = c->seconds = 0;
}

/* Returns the K with the highest utility among the recent measurements, or the first K if there are none. */
PLAIN int cascade_remembered(const struct cascade_settings *s, const struct cascade_state *c)
{
    int best = 0;
    for (int K = 1; K <= s->max; K++)
        if (c->tried[K].when && c->iteration - c->tried[K].when < s->memory &&
            (!best || c->tried[K].utility > c->tried[best].utility))
            best = K;
    return best ? best : s->first;
}

PLAIN void cascade_begin_test(const struct cascade_settings *s, struct cascade_state *c)
{
    for (int K = 1; K <= s->max; K++)
        c->tried[K].now = 0;
    c->trials = c->falls = c->direction = c->best = 0;
    c->best_utility = -INFINITY;
    cascade_enter(c, CASCADE_TEST, c->paused ? 1 : cascade_remembered(s, c), s->trial);
}

PLAIN void cascade_end_test(const struct cascade_settings *s, struct cascade_state *c)
{
    int K = c->best_utility < 1 ? 0 : c->best;
    c->paused = K == 0;
    cascade_enter(c, CASCADE_SET, K, c->set_length);
    if (K)
        c->set_length = s->set;
    else
        c->set_length = c->set_length * s->backoff < s->longest ? c->set_length * s->backoff : s->longest;
}

/* Returns the next K of the hill climb; 0: the climb ends. */
PLAIN int cascade_climb(const struct cascade_settings *s, struct cascade_state *c, double now)
{
    int next = c->K;
    if (!c->direction)
        c->direction = now < 1 || c->K == s->max ? -1 : 1;
    else if (now <= c->last_utility) {
        c->direction = -c->direction;
        next = c->best;
    }
    next += c->direction;
    return next < 1 || next > s->max || c->tried[next].now ? 0 : next;
}

PLAIN void cascade_note(struct cascade_state *c, double utility, int now)
{
    c->tried[c->K].utility = utility;
    c->tried[c->K].when = c->iteration;
    c->tried[c->K].now = now;
}

PLAIN void cascade_end_trial(const struct cascade_settings *s, struct cascade_state *c)
{
    double now = cascade_utility(s, c);
    int first = c->trials++ == 0;
    cascade_note(c, now, 1);
    c->falls = !first && now < c->last_utility ? c->falls + 1 : 0;
    int same = !first && fabs(now - c->last_utility) <= s->close * fmax(now, c->last_utility);
    int hopeless = c->K == 1 && now < 1;
    if (now > c->best_utility) {
        c->best = c->K;
        c->best_utility = now;
    }
    int next = same || hopeless || c->falls == s->falls || c->trials == s->trials ? 0 : cascade_climb(s, c, now);
    c->last_utility = now;
    if (next)
        cascade_enter(c, CASCADE_TEST, next, s->trial);
    else
        cascade_end_test(s, c);
}

PLAIN void cascade_end_phase(const struct cascade_settings *s, struct cascade_state *c)
{
    if (c->phase == CASCADE_TEST) {
        cascade_end_trial(s, c);
        return;
    }
    if (c->phase == CASCADE_SET && c->K)
        cascade_note(c, cascade_utility(s, c), 0);
    cascade_begin_test(s, c);
}

/* Records an iteration that drafted state->K tokens: its accepted draft tokens and its seconds. */
PLAIN void cascade_observe(const struct cascade_settings *s, struct cascade_state *c, int accepted, double seconds)
{
    c->iteration++;
    if (c->K == 0) {
        c->plain[c->plains++ % s->baseline] = seconds;
        c->since_baseline = 0;
    } else {
        c->since_baseline++;
    }
    if (c->phase == CASCADE_REFRESH) {          /* continues the interrupted phase */
        c->phase = CASCADE_SET;
        c->K = c->held;
        return;
    }
    c->tokens += accepted + 1;
    c->seconds += seconds;
    if (--c->left <= 0)
        cascade_end_phase(s, c);
    if (c->phase == CASCADE_SET && c->K && c->since_baseline >= s->refresh) {
        c->held = c->K;
        c->phase = CASCADE_REFRESH;
        c->K = 0;
    }
}

/* Begins a text. */
PLAIN void cascade_begin(const struct cascade_settings *s, struct cascade_state *c)
{
    for (int K = 0; K <= CASCADE_K_MAX; K++) {
        c->tried[K].utility = 0;
        c->tried[K].when = 0;
        c->tried[K].now = 0;
    }
    c->plains = 0;
    c->iteration = c->since_baseline = 0;
    c->set_length = s->set;
    c->paused = 0;
    cascade_enter(c, CASCADE_BASELINE, 0, s->baseline);
}

#endif
