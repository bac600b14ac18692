#include "common/decode/budget.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/route/ranking.h"
#include "common/stream/reader.h"

static int read_ranking(struct ranking **out, struct budget *budget, const struct decode_settings *settings, bool force,
                        const struct stream_model *model, struct text *note, struct err *err)
{
    struct ranking *ranking = NULL;
    struct reader *in = NULL;
    int rc = -1;
    if (reader_open(&in, settings->rank, STREAM_RANK, NULL, err) ||
        ranking_check_model(in, model, force, note, err) || ranking_read(&ranking, in, err) ||
        header_copy(&budget->source, reader_header(in), err))
        goto done;
    *out = ranking;
    ranking = NULL;
    rc = 0;
done:
    ranking_free(&ranking);
    reader_close(&in);
    return rc;
}

static int recommended(int32_t *size, const struct ranking *ranking, const struct decode_settings *settings, struct err *err)
{
    if (!ranking)
        return err_set(err, ERR_INPUT, "`rank' takes the budgets from a rank stream; add --rank FILE");
    for (int layer = 0; layer < ranking->moe_layers; layer++) {
        if (ranking->budget[layer] < 1)
            return err_set(err, ERR_INPUT, "%s contains no budget for layer %d; make it with moe-coact rank-experts --budget B",
                           settings->rank, layer);
        size[layer] = ranking->budget[layer];
    }
    return 0;
}

/* Opens the governor of an automatic budget, which begins with all experts. */
static int open_governor(struct budget *budget, const char *text, const struct stream_model *model, struct err *err)
{
    struct spec *spec = NULL;
    static const char *const names[] = {"auto"};
    int which, rc = -1;
    if (spec_parse(&spec, text, err) || spec_pick(spec, "a budget", names, 1, &which, err) ||
        governor_init(&budget->governor, spec, model->experts, model->top_k, model->moe_layers, err) || spec_end(spec, err))
        goto done;
    for (int layer = 0; layer < model->moe_layers; layer++)
        budget->size[layer] = model->experts;
    budget->automatic = true;
    rc = 0;
done:
    spec_free(&spec);
    return rc;
}

static int set_phases(struct budget *budget, const char *phase, struct err *err)
{
    static const struct { const char *name; bool decodes, verifies, drafts; } phases[] = {
        {"decode", true, true, false}, {"verify", false, true, false}, {"draft", false, false, true},
        {"decode,draft", true, true, true}, {"verify,draft", false, true, true}};
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
        if (!strcmp(phase ? phase : "decode", phases[i].name)) {
            budget->decodes = phases[i].decodes;
            budget->verifies = phases[i].verifies;
            budget->drafts = phases[i].drafts;
            if (budget->automatic && (!budget->verifies || budget->drafts))
                return err_set(err, ERR_INPUT, "an automatic budget applies to phases decode and verify only, because the "
                               "divergence of drafts is not measured; choose one of these");
            if (budget->drafts && budget->plan.ranking == PLAN_PATH)
                return err_set(err, ERR_INPUT, "--rank path ranks experts by the finished draft, so it cannot limit drafting; "
                               "rank by router, oracle or a rank stream");
            return 0;
        }
    return err_set(err, ERR_INPUT, "unknown phase '%s'; choose decode, verify, draft, \"decode,draft\" and \"verify,draft\"",
                   phase);
}

static void set_label(struct budget *budget, const struct ranking *ranking)
{
    static const char *const rankings[] = {[PLAN_STATIC] = "static by ", [PLAN_ROUTER] = "router", [PLAN_PATH] = "path",
                                           [PLAN_ORACLE] = "oracle", [PLAN_PRINTED] = "oracle as printed"};
    const struct expert_plan *plan = &budget->plan;
    int min = plan->budget[0], max = plan->budget[0];
    for (int layer = 1; layer < plan->moe_layers; layer++) {
        min = plan->budget[layer] < min ? plan->budget[layer] : min;
        max = plan->budget[layer] > max ? plan->budget[layer] : max;
    }
    char range[32];
    if (min == max)
        snprintf(range, sizeof range, "%d", min);
    else
        snprintf(range, sizeof range, "%d to %d", min, max);
    if (budget->automatic)
        snprintf(range, sizeof range, "auto, KL %g,", budget->governor.bound);
    budget->lossless = !budget->automatic && min == plan->experts;
    budget->lossless |= !budget->verifies;
    snprintf(budget->label, sizeof budget->label, "budget %s of %d, %s%s, %s%s", range, plan->experts, rankings[plan->ranking],
             ranking ? ranking->method : "", plan->mode == BUDGET_TRUNCATE ? "truncate" : "substitute",
             budget->decodes ? "" : ", with drafts only");
}

/* Reads "oracle", and which reading of the equation it uses. */
static int read_oracle(enum plan_ranking *out, const char *rank, struct err *err)
{
    static const char *const names[] = {"oracle"}, *const readings[] = {"routed", "printed", NULL};
    struct spec *spec = NULL;
    int which, as, rc = -1;
    if (!spec_parse(&spec, rank, err) && !spec_pick(spec, "a ranking", names, 1, &which, err) &&
        !spec_choice(spec, "as", 0, readings, &as, err) && !spec_end(spec, err)) {
        *out = as ? PLAN_PRINTED : PLAN_ORACLE;
        rc = 0;
    }
    spec_free(&spec);
    return rc ? err_at(err, "--rank") : 0;
}

static int read_rank(enum plan_ranking *out, const char *rank, struct err *err)
{
    if (rank && (!strcmp(rank, "oracle") || !strncmp(rank, "oracle:", 7)))
        return read_oracle(out, rank, err);
    *out = !rank || !strcmp(rank, "router") ? PLAN_ROUTER : !strcmp(rank, "path") ? PLAN_PATH : PLAN_STATIC;
    return 0;
}

int budget_open(struct budget **out, const struct decode_settings *settings, bool force, const struct stream_model *model,
                struct text *note, struct err *err)
{
    if (!settings->budget) {
        if (settings->rank || settings->budget_phase)
            return err_set(err, ERR_INPUT, "--%s: selects which experts are kept, but not how many; add --budget B",
                           settings->rank ? "rank" : "budget-phase");
        *out = NULL;
        return 0;
    }
    if (model->moe_layers < 1 || model->experts < 1)
        return err_set(err, ERR_INPUT, "--budget: the model has no experts; leave the option out");
    enum plan_ranking by;
    if (read_rank(&by, settings->rank, err))
        return -1;
    struct budget *budget = mem_alloc(1, sizeof *budget, err);
    struct ranking *ranking = NULL;
    int rc = -1;
    if (!budget || !(budget->size = mem_alloc((size_t)model->moe_layers, sizeof *budget->size, err)))
        goto done;
    if (by == PLAN_STATIC && read_ranking(&ranking, budget, settings, force, model, note, err))
        goto done;
    bool asked = !strcmp(settings->budget, "rank"), automatic = !strncmp(settings->budget, "auto", 4);
    if (asked ? recommended(budget->size, ranking, settings, err)
              : automatic ? open_governor(budget, settings->budget, model, err)
              : budget_parse(budget->size, settings->budget, model->moe_layers, model->experts, note, err)) {
        err_at(err, "--budget");
        goto done;
    }
    if (ranking) {
        budget->order = ranking->order;
        ranking->order = NULL;
    }
    budget->plan = (struct expert_plan){ .ranking = by, .mode = (enum budget_mode)settings->budget_mode,
                                         .moe_layers = model->moe_layers, .experts = model->experts, .budget = budget->size,
                                         .order = budget->order };
    if (set_phases(budget, settings->budget_phase, err)) {
        err_at(err, "--budget-phase");
        goto done;
    }
    set_label(budget, ranking);
    *out = budget;
    budget = NULL;
    rc = 0;
done:
    budget_close(&budget);
    ranking_free(&ranking);
    return rc;
}

void budget_close(struct budget **budget)
{
    if (!*budget)
        return;
    mem_free(&(*budget)->size);
    mem_free(&(*budget)->order);
    header_free(&(*budget)->source);
    mem_free(budget);
}
