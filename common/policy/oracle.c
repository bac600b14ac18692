/* Oracle: the optimal draft lengths, from a recording of the same prompts with the same drafter (recording.h). For each answer,
 * dynamic programming from the end finds the sequence of lengths with the least total cost: an upper bound for all policies.
 * Source of the idea: "Limits of Speculation", arXiv 2609.22156.
 *
 * An answer that is not in the recording, or differs from it, is decoded without drafts. */
#include "common/policy/shape.h"

#include <math.h>

#include "common/base/mem.h"
#include "common/policy/recorded_way.h"

enum { BY_TIME, BY_BYTES };

struct oracle {
    struct policy base;
    struct recording *recording;
    int max, measure;
    uint8_t *best;                          /* [positions] */
    struct recorded_follow follow;
    int K;                                  /* the present draft length */
    struct draft_leaf root;
};

static double cost_of(const struct oracle *oracle, const struct recorded_position *position, int K)
{
    const struct recording *all = oracle->recording;
    size_t row = position->row + (size_t)K;
    bool live = position->nodes == 1 + K && position->drafted == K;
    if (oracle->measure == BY_BYTES)
        return live ? (double)position->bytes + (double)position->draft_bytes
                    : (double)all->bytes[row] + (double)all->draft_bytes[row];
    return live ? position->iteration_us : all->draft_us[row] + all->verify_us[row];
}

/* Computes the best K at every position of a text. total[i]: least cost from position i to the end. */
static void solve(struct oracle *oracle, const struct recorded_text *text, double *total)
{
    int positions = text->tokens - 1;
    total[positions] = 0;
    for (int at = positions - 1; at >= 0; at--) {
        const struct recorded_position *position = &oracle->recording->position[text->position + (size_t)at];
        total[at] = INFINITY;
        for (int K = 0; K < position->n && K <= oracle->max; K++) {
            int emitted = 1 + (position->accepted < K ? position->accepted : K);
            double cost = cost_of(oracle, position, K) + total[at + (emitted < position->left ? emitted : position->left)];
            if (cost < total[at]) {
                total[at] = cost;
                oracle->best[text->position + (size_t)at] = (uint8_t)K;
            }
        }
    }
}

static int solve_all(struct oracle *oracle, struct err *err)
{
    const struct recording *all = oracle->recording;
    double *total = mem_alloc(all->positions + 1, sizeof *total, err);
    oracle->best = mem_alloc(all->positions, sizeof *oracle->best, err);
    int rc = total && oracle->best ? 0 : -1;
    for (size_t i = 0; !rc && i < all->texts; i++)
        if (all->text[i].tokens > 1)
            solve(oracle, &all->text[i], total);
    mem_free(&total);
    return rc;
}

static void oracle_begin(struct policy *policy, const struct policy_text *about)
{
    struct oracle *oracle = (struct oracle *)policy;
    oracle->K = 0;
    recorded_follow_begin(&oracle->follow, about);
}

static void oracle_free(struct policy *policy)
{
    struct oracle *oracle = (struct oracle *)policy;
    recording_free(&oracle->recording);
    mem_free(&oracle->best);
    mem_free(&oracle);
}

static int oracle_open(struct policy **out, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    static const char *const measures[] = {[BY_TIME] = "time", [BY_BYTES] = "bytes", NULL};
    int max = setup->draft_length >= 0 ? setup->draft_length : setup->max_length, measure;
    const char *file;
    if (setup->shape->class != &shape_chain)
        return err_set(err, ERR_INPUT, "oracle: replays recorded chains only; leave --tree out");
    if (spec_text(spec, "file", NULL, &file, err) || spec_choice(spec, "cost", BY_TIME, measures, &measure, err))
        return -1;
    if (!file)
        return err_set(err, ERR_INPUT, "oracle: no recording is given; write oracle:file=STREAM");
    struct oracle *oracle = mem_alloc(1, sizeof *oracle, err);
    if (!oracle)
        return -1;
    oracle->max = setup->drafters ? max : 0;
    oracle->measure = measure;
    if (recording_read_chains(&oracle->recording, file, true, err) || solve_all(oracle, err)) {
        oracle_free(&oracle->base);
        return err_at(err, "oracle");
    }
    oracle->follow.all = oracle->recording;
    *out = &oracle->base;
    return 0;
}

static struct step oracle_next(struct policy *policy, const struct draft_view *view)
{
    struct oracle *oracle = (struct oracle *)policy;
    if (view->steps)
        return (struct step){.kind = STEP_STOP};
    oracle->K = 0;
    const struct recorded_text *text = oracle->follow.text;
    if (text && oracle->follow.at < text->tokens - 1)
        oracle->K = oracle->best[text->position + (size_t)oracle->follow.at];
    if (!oracle->K)
        return (struct step){.kind = STEP_STOP};
    oracle->root = (struct draft_leaf){-1, 1};
    return (struct step){.kind = STEP_EXTEND, .tokens = oracle->K, .leaf = &oracle->root, .leaves = 1};
}

static void oracle_observe(struct policy *policy, const struct outcome *outcome)
{
    recorded_follow_observe(&((struct oracle *)policy)->follow, outcome);
}

static int oracle_length(const struct policy *policy) { return ((const struct oracle *)policy)->K; }

static void oracle_state(const struct policy *policy, struct values *out)
{
    const struct oracle *oracle = (const struct oracle *)policy;
    values_text(out, "name", policy->class->name);
    values_int(out, "K", oracle->K);
    values_int(out, "known", oracle->follow.text != NULL);
}

const struct policy_class policy_oracle = {
    .name = "oracle",
    .summary = "the draft lengths that would have been best, from a recording",
    .settings = "file=STREAM,cost=time|bytes",
    .open = oracle_open,
    .begin = oracle_begin,
    .next = oracle_next,
    .length = oracle_length,
    .observe = oracle_observe,
    .state = oracle_state,
    .free = oracle_free,
};
