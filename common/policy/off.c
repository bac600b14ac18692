/* Off for good: a fixed draft length until the acceptance is too low, then no drafts for the rest of the run. The rule of
 * TensorRT-LLM's acceptance threshold: drafting stops when the mean acceptance length (accepted tokens and the bonus token) of
 * the last `window` iterations with a draft is below `min`. */
#include "common/policy/shape.h"

#include "common/base/mem.h"

enum { WINDOW_MAX = 4096 };

struct off {
    struct policy base;
    struct shape *shape;
    int K, window;
    double min;
    int accepted[WINDOW_MAX];           /* accepted tokens of the last drafts; ring buffer */
    int64_t drafts;
    int64_t sum;                        /* sum over the ring buffer */
    bool ended;
};

static int off_open(struct policy **out, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    int K, otherwise = setup->draft_length < 0 ? setup->shape->depth : setup->draft_length, window;
    double min;
    if (spec_int(spec, "K", otherwise, 0, setup->max_length, &K, err) ||
        spec_int(spec, "window", 32, 1, WINDOW_MAX, &window, err) || spec_float(spec, "min|least", 1.5, 1, 1e6, &min, err))
        return -1;
    if (setup->draft_length == DRAFT_LENGTH_AUTO)
        return err_set(err, ERR_INPUT, "off: -K auto is for policies that choose the draft length; leave out one of the two");
    if (setup->draft_length >= 0 && K != setup->draft_length)
        return err_set(err, ERR_INPUT, "off: K=%d contradicts -K %d; give one of the two", K, setup->draft_length);
    struct off *off = mem_alloc(1, sizeof *off, err);
    if (!off)
        return -1;
    off->shape = setup->shape;
    off->K = K;
    off->window = window;
    off->min = min;
    *out = &off->base;
    return 0;
}

static int off_length(const struct policy *policy)
{
    const struct off *off = (const struct off *)policy;
    return off->ended ? 0 : off->K;
}

static struct step off_next(struct policy *policy, const struct draft_view *view)
{
    struct off *off = (struct off *)policy;
    int K = off_length(policy);
    return K ? shape_next(off->shape, view, K) : (struct step){.kind = STEP_STOP};
}

static double mean_length(const struct off *off)
{
    int64_t count = off->drafts < off->window ? off->drafts : off->window;
    return 1 + (double)off->sum / (double)count;
}

static void off_observe(struct policy *policy, const struct outcome *outcome)
{
    struct off *off = (struct off *)policy;
    if (!outcome->drafted)
        return;
    int *slot = &off->accepted[off->drafts % off->window];
    off->sum += outcome->accepted - (off->drafts < off->window ? 0 : *slot);
    *slot = outcome->accepted;
    off->drafts++;
    if (off->drafts >= off->window && mean_length(off) < off->min)
        off->ended = true;
}

static void off_state(const struct policy *policy, struct values *out)
{
    const struct off *off = (const struct off *)policy;
    values_text(out, "name", policy->class->name);
    values_int(out, "K", off_length(policy));
    if (off->drafts)
        values_real(out, "acceptance_length", mean_length(off));
}

static void off_free(struct policy *policy) { mem_free(&policy); }

const struct policy_class policy_off = {
    .name = "off",
    .summary = "a fixed draft length, until too little of the drafts is kept; then none for good",
    .settings = "K=N,window=N,min=X",
    .open = off_open,
    .next = off_next,
    .length = off_length,
    .observe = off_observe,
    .state = off_state,
    .free = off_free,
};
