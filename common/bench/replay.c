#include "common/bench/replay.h"

#include <math.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "common/policy/shape.h"

enum { STEPS_MAX = 256, LENGTH_MAX = 64 };

struct run {
    const struct replay_setup *setup;
    struct shape *shape;
    struct policy *policy;
    struct draft_tree tree;
    struct replay_result result;
    const struct recorded_text *text;
    const struct recorded_place *place;
    int drafted;                        /* tokens, also those dropped again */
};

/* Adds up to `tokens` of the recorded draft behind what is there already. */
static int extend(struct run *run, const struct step *step, struct err *err)
{
    const struct recording *all = run->setup->recording;
    const struct recorded_place *place = run->place;
    struct draft_tree *tree = &run->tree;
    int before = tree->nodes, most = before + step->tokens < place->room ? before + step->tokens : place->room;
    if (step->leaves != 1 || step->leaf[0].node != before - 1 || step->leaf[0].siblings != 1)
        return err_set(err, ERR_INPUT, "the policy does not draft a chain; only chains are recorded");
    if (most > place->n - 1 && place->n - 1 == all->length)
        return err_set(err, ERR_INPUT, "the policy drafts %d tokens, but only drafts of up to %d are recorded; record with "
                       "--record-length %d, or set a cap with -K", most, all->length, most);
    for (int k = before + 1; k <= most && k < place->n; k++)
        draft_tree_add(tree, k - 2, all->token[place->row + (size_t)k], all->log_probability[place->row + (size_t)k], 0);
    run->drafted = tree->nodes > run->drafted ? tree->nodes : run->drafted;
    return tree->nodes - before;
}

static int draft(struct run *run, struct err *err)
{
    struct draft_view view = {.tree = &run->tree, .room = run->place->room};
    draft_tree_clear(&run->tree);
    run->drafted = 0;
    for (; view.steps < STEPS_MAX; view.steps++) {
        struct step step = run->policy->class->next(run->policy, &view);
        view.added = 0;
        if (step.kind == STEP_STOP)
            break;
        if (step.kind == STEP_KEEP) {
            if (draft_tree_keep(&run->tree, step.keep, step.kept))
                return err_set(err, ERR_INPUT, "the policy keeps nodes without their parents");
            continue;
        }
        view.added = extend(run, &step, err);
        if (view.added < 0)
            return -1;
    }
    return 0;
}

/* What this iteration gives and costs. */
static struct outcome settle(const struct run *run)
{
    const struct recording *all = run->setup->recording;
    const struct recorded_place *place = run->place;
    const int at = (int)(place - all->place - run->text->place);
    const size_t verified = place->row + (size_t)run->tree.nodes, drafted = place->row + (size_t)run->drafted;
    const struct stream_model *model = &all->header.model;
    bool live = place->nodes == 1 + run->tree.nodes && place->drafted == run->drafted;
    struct outcome out = {
        .drafted = run->tree.nodes, .accepted = place->accepted < run->tree.nodes ? place->accepted : run->tree.nodes,
        .token = run->text->token + at + 1, .expert = all->width ? all->expert + place->row * all->width : NULL,
        .moe_layers = model->moe_layers, .top_k = model->top_k, .draft_s = all->draft_us[drafted] / 1e6,
        .verify_s = all->verify_us[verified] / 1e6, .experts_loaded = all->experts_loaded[verified],
        .bytes = all->bytes[verified], .draft_bytes = all->draft_bytes[drafted]};
    out.emitted = out.accepted + 1 < place->left ? out.accepted + 1 : place->left;
    out.iteration_s = out.draft_s + out.verify_s;
    if (live) {
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

int replay_run(struct replay_result *out, const struct replay_setup *setup, replay_function *each, void *context,
               struct err *err)
{
    const struct stream_model *model = &setup->recording->header.model;
    struct run run = {.setup = setup};
    int rc = -1;
    if (shape_open(&run.shape, NULL, err) || draft_tree_init(&run.tree, LENGTH_MAX, err))
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
