#include "common/bench/simulate_figure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/base/mem.h"
#include "common/bench/simulate_pipelines.h"
#include "common/cache/balance.h"
#include "common/cache/utility_rule.h"
#include "common/report/points.h"

enum { BINS = 64 };

const char *const simulated_figures[] = {"none", "ablation", "hot-or-cold", "cached", "lengths", "levels", "memory", "shares",
                                         "pipelines", NULL};

struct picture {
    const struct simulation *simulation;
    const struct simulated_texts *texts;
    const char *name, *title;
    struct points points;
};

static struct points_panel *add_panel(struct picture *p, const char *title, const char *x_label, const char *y_label)
{
    struct points_panel *panel = &p->points.panel[p->points.panels++];
    *panel = (struct points_panel){.title = title, .x_label = x_label, .y_label = y_label};
    return panel;
}

/* ---- runs */

/* Adds the tokens/s of a system. No point if the cached share is less than one layer's experts, or if the machine cannot run
 * the system. */
static int put_rate(struct points_panel *panel, const struct simulation *simulation, const char *name, const char *system,
                    double x, double cached, struct err *err)
{
    struct simulated_machine machine = *simulation->machine;
    struct simulation with = *simulation;
    struct simulated_result result;
    struct err why = {0};
    const int E = simulation->drafted->experts;
    machine.cached = cached;
    with.machine = &machine;
    if (simulated_machine_slots(&machine, simulation->drafted->layers, E) < E || simulate_possible(&with, system, &why))
        return 0;
    return simulate_run(&result, &with, system, err) ||
           points_put(panel, name, x, result.tokens / result.seconds, err) ? -1 : 0;
}

static int ablation(struct picture *p, struct err *err)
{
    static const struct { const char *name, *system; } parts[] = {
        {"utility", "utility"}, {"w/o SpecUE: K = 1", "utility:K=1"},
        {"w/o AdaBC: boundaries 3 and 1", "utility:boundaries=fixed"}, {"w/o HetWB: tau = 2", "utility:tau=2"},
        {"w/o SG-Prefetcher: static split", "static-split-draft"}, {"w/o SG-Evictor: no evictions",
                                                                    "utility:evict=no"},
        {"w/o SD", "utility-undrafted"}, {"the released rule", "utility-released"}};
    struct points_panel *panel = add_panel(p, "MoE-SpAc without one of its parts each", "variant", "tokens/s");
    panel->names = true;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (put_rate(panel, p->simulation, parts[i].name, parts[i].system, (double)i, p->simulation->machine->cached, err))
            return -1;
    return 0;
}

/* Shares of all experts' bytes. The paper's machine has memory for 29 % of the experts; its draft model takes 8 %, so 21 %
 * remain. */
static const double MEMORY = 0.29, DRAFT_MODEL = 0.08;

static int cached(struct picture *p, struct err *err)
{
    static const struct { const char *system; bool drafts; } systems[] = {
        {"static-split", false}, {"hybrimoe", false}, {"mixtral-offloading", false}, {"static-split-draft", true},
        {"lru", true}, {"utility", true}, {"utility-released", true}, {"ahead", true}};
    static const double shares[] = {0.05, 0.09, 0.13, 0.17, 0.21, 0.25, 0.29};
    struct points_panel *panel = add_panel(p, "Experts in fast memory; with drafts up to where the draft model leaves room",
                                           "share of experts cached", "tokens/s");
    for (size_t s = 0; s < sizeof systems / sizeof *systems; s++)
        for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
            if (shares[i] <= (systems[s].drafts ? MEMORY - DRAFT_MODEL : MEMORY) + 1e-9 &&
                put_rate(panel, p->simulation, systems[s].system, systems[s].system, shares[i], shares[i], err))
                return -1;
    return 0;
}

static int memory(struct picture *p, struct err *err)
{
    struct points_panel *panel = add_panel(p, "Fast memory for experts alone, or for a draft model of 8 % and fewer experts",
                                           "share of the experts' bytes", "tokens/s");
    for (int percent = 12; percent <= 60; percent += 8) {
        double all = percent / 100.0, left = all - DRAFT_MODEL;
        if (put_rate(panel, p->simulation, "static-split, experts alone", "static-split", all, all, err) ||
            put_rate(panel, p->simulation, "static-split-draft", "static-split-draft", all, left, err) ||
            put_rate(panel, p->simulation, "utility", "utility", all, left, err) ||
            put_rate(panel, p->simulation, "utility-released", "utility-released", all, left, err) ||
            put_rate(panel, p->simulation, "lru", "lru", all, left, err))
            return -1;
    }
    return 0;
}

static int levels(struct picture *p, struct err *err)
{
    struct points_panel *panel = add_panel(p, "The highest level, K", "K", "tokens/s");
    char system[64];
    for (int K = 1; K <= 8; K++)
        for (int rule = 0; rule < 3; rule++) {
            const char *name = (const char *const[]){"utility", "utility-released", "utility-real"}[rule];
            snprintf(system, sizeof system, "%s:K=%d", name, K);
            if (put_rate(panel, p->simulation, name, system, K, p->simulation->machine->cached, err))
                return -1;
        }
    return 0;
}

static int lengths(struct picture *p, struct err *err)
{
    static const char *const systems[] = {"static-split", "static-split-draft", "hybrimoe", "lru", "utility",
                                          "utility-released", "ahead"};
    struct points_panel *panel = add_panel(p, "Tokens of an answer", "tokens", "tokens/s");
    panel->log2 = true;
    if (!p->texts)
        return err_set(err, ERR_INPUT, "lengths: varies the length of texts, which recorded routes fix; leave the route "
                       "streams out");
    for (int tokens = 512; tokens <= 4096; tokens *= 2) {
        struct simulated_texts texts = *p->texts;
        struct simulated_routes drafted = {0}, undrafted = {0};
        struct simulation with = *p->simulation;
        texts.tokens = tokens;
        with.drafted = &drafted;
        with.undrafted = &undrafted;
        int rc = simulated_routes_make(&drafted, &texts, err) || simulated_routes_undrafted(&undrafted, &drafted, err) ? -1 : 0;
        for (size_t s = 0; !rc && s < sizeof systems / sizeof *systems; s++)
            rc = put_rate(panel, &with, systems[s], systems[s], tokens, with.machine->cached, err);
        simulated_routes_free(&drafted);
        simulated_routes_free(&undrafted);
        if (rc)
            return -1;
    }
    return 0;
}

/* ---- Algorithm 1 alone ---- */

/* The experts of one layer, forward after forward. */
struct watched {
    const struct simulated_routes *routes;
    struct utility_rule rule;
    struct utility_expert *state;       /* [experts] */
    int32_t *expert, *tokens, *often, *f;       /* [experts] */
};

static int watch(struct watched *w, const struct simulated_routes *routes, struct utility_rule rule, int up, int down,
                 struct err *err)
{
    int E = routes->experts;
    *w = (struct watched){.routes = routes, .rule = rule};
    w->state = mem_alloc((size_t)E, sizeof *w->state, err);
    w->expert = mem_alloc(4 * (size_t)E, sizeof *w->expert, err);
    if (!w->state || !w->expert)
        return -1;
    w->tokens = w->expert + E;
    w->often = w->tokens + E;
    w->f = w->often + E;
    for (int e = 0; e < E; e++) {
        w->state[e].up = up;
        w->state[e].down = down;
    }
    return 0;
}

static void unwatch(struct watched *w)
{
    mem_free(&w->state);
    mem_free(&w->expert);
}

/* Writes how often each expert of the layer is needed in a step to w->f; returns the number of distinct experts. */
static int want(struct watched *w, const struct simulated_step *step, int layer)
{
    int count = simulated_routes_want(w->routes, step, layer, w->expert, w->tokens, w->often);
    memset(w->f, 0, (size_t)w->routes->experts * sizeof *w->f);
    for (int i = 0; i < count; i++)
        w->f[w->expert[i]] = w->tokens[i];
    return count;
}

static void learn(struct watched *w)
{
    for (int e = 0; e < w->routes->experts; e++)
        utility_step(&w->rule, &w->state[e], w->f[e]);
}

/* Computes the share of experts correctly predicted as needed or not, with tau 1: means over bins of forwards, the overall
 * mean, and *none, the share correct if none were ever predicted. */
static int accuracy(struct watched *w, double *bin, int bins, double *mean, double *none, struct err *err)
{
    int layer = w->routes->layers - 1, E = w->routes->experts;
    int64_t *count = mem_alloc((size_t)bins, sizeof *count, err);
    *mean = *none = 0;
    for (size_t i = 0; count && i < w->routes->steps; i++) {
        int right = 0, at = (int)(i * (size_t)bins / w->routes->steps), wanted = want(w, &w->routes->step[i], layer);
        for (int e = 0; e < E; e++)
            right += (w->state[e].level >= 1) == (w->f[e] >= 1);
        learn(w);
        bin[at] += (double)right / E;
        count[at]++;
        *mean += (double)right / E / (double)w->routes->steps;
        *none += (double)(E - wanted) / E / (double)w->routes->steps;
    }
    for (int b = 0; count && b < bins; b++)
        bin[b] /= (double)count[b];
    int rc = count ? 0 : -1;
    mem_free(&count);
    return rc;
}

/* Compares the paper's Algorithm 1, the rule of its released program, and the routes of the last token, each with the
 * trivial prediction that no expert is needed. */
static int hot_or_cold(struct picture *p, struct err *err)
{
    const struct simulated_routes *drafted = p->simulation->drafted, *alone = p->simulation->undrafted;
    int gamma = p->simulation->machine->draft_length, bins = drafted->steps < BINS ? (int)drafted->steps : BINS, rc = -1;
    struct points_panel *panel = add_panel(p, "Accuracy of predicted requests, experts of the last layer", "forward",
                                           "share of experts");
    struct watched by_drafts = {0}, released = {0}, by_token = {0};
    double bin[BINS] = {0}, other[BINS] = {0}, all = 0, mean, none, mean_released, mean_alone, none_alone;
    const double last = (double)drafted->steps;
    panel->percent = true;
    if (watch(&by_drafts, drafted, (struct utility_rule){4, 100000, UTILITY_FLOOR, false}, gamma / 2, gamma / 2,
              err) ||
        watch(&released, drafted, (struct utility_rule){5, 0, UTILITY_FIXED, true}, 5, 1, err) ||
        watch(&by_token, alone, (struct utility_rule){1, 0, UTILITY_FIXED, false}, 1, 1, err) ||
        accuracy(&by_drafts, bin, bins, &mean, &none, err) || accuracy(&released, other, bins, &mean_released, &none, err) ||
        accuracy(&by_token, &all, 1, &mean_alone, &none_alone, err))
        goto done;
    for (int b = 0; b < bins; b++) {
        double x = floor((b + 0.5) * last / bins);
        if (points_put(panel, "Algorithm 1, with drafts", x, bin[b], err) ||
            points_put(panel, "mean of Algorithm 1", x, mean, err) ||
            points_put(panel, "the released rule, with drafts", x, other[b], err) ||
            points_put(panel, "mean of the released rule", x, mean_released, err) ||
            points_put(panel, "predicting no request, with drafts", x, none, err) ||
            points_put(panel, "experts of the last token, without drafts", x, mean_alone, err) ||
            points_put(panel, "predicting no request, without drafts", x, none_alone, err))
            goto done;
    }
    rc = 0;
done:
    unwatch(&by_drafts);
    unwatch(&released);
    unwatch(&by_token);
    return rc;
}

enum { LEVELS = 4, OFTEN = 65 };

/* Counts shares and needs of one layer. seen: [LEVELS + 1][OFTEN] number of experts by their level and by how often they
 * were then needed. */
static int shares_of_layer(const struct picture *p, int layer, struct balance_shares *shares, int64_t *seen, struct err *err)
{
    struct watched w = {0};
    int rc = watch(&w, p->simulation->drafted, (struct utility_rule){LEVELS, 100000, UTILITY_FLOOR, false},
                   p->simulation->machine->draft_length / 2, p->simulation->machine->draft_length / 2, err);
    for (size_t i = 0; !rc && i < w.routes->steps; i++) {
        int count = want(&w, &w.routes->step[i], layer);
        balance_learn(shares, LEVELS, w.expert, w.tokens, count, &w.state->level, sizeof *w.state);
        for (int e = 0; e < w.routes->experts; e++)
            seen[w.state[e].level * OFTEN + (w.f[e] < OFTEN ? w.f[e] : OFTEN - 1)]++;
        learn(&w);
    }
    unwatch(&w);
    return rc;
}

static int put_levels(struct points_panel *panel, const int64_t *seen, struct err *err)
{
    for (int level = 0; level <= LEVELS; level++) {
        int64_t all = 0, below = 0, sum = 0;
        int median = 0;
        for (int f = 0; f < OFTEN; f++) {
            all += seen[level * OFTEN + f];
            sum += f * seen[level * OFTEN + f];
        }
        for (int f = 0; f < OFTEN && 2 * below < all; f++) {
            below += seen[level * OFTEN + f];
            median = f;
        }
        if (all && (points_put(panel, "mean", level, (double)sum / (double)all, err) ||
                    points_put(panel, "median", level, median, err)))
            return -1;
    }
    return 0;
}

static int shares(struct picture *p, struct err *err)
{
    int layers = p->simulation->drafted->layers;
    double fast[LEVELS + 1] = {0}, hot[LEVELS + 1] = {0};
    int64_t seen[(LEVELS + 1) * OFTEN] = {0};
    struct points_panel *panel = add_panel(p, "Shares at or above tau, mean over layers", "tau", "share"),
                        *often = add_panel(p, "Tokens that request an expert, by its level", "level", "tokens");
    panel->percent = true;
    for (int layer = 0; layer < layers; layer++) {
        struct balance_shares of = {0};
        if (shares_of_layer(p, layer, &of, seen, err))
            return -1;
        for (int tau = 1; tau <= LEVELS; tau++) {
            fast[tau] += (1 - (double)of.cold[tau] / (double)of.pairs) / layers;
            hot[tau] += (double)of.hot[tau] / (double)of.experts / layers;
        }
    }
    for (int tau = 1; tau <= LEVELS; tau++)
        if (points_put(panel, "1 - r_c: share of tokens' choices", tau, fast[tau], err) ||
            points_put(panel, "r_g: share of distinct experts", tau, hot[tau], err))
            return -1;
    return put_levels(often, seen, err);
}

/* ---- output */

int simulate_figure_note(struct text *out, const struct simulation *simulation, struct err *err)
{
    const struct simulated_machine *m = simulation->machine;
    const char *recorded = simulation->drafted->model;
    return text_printf(out, err, "%s%s%s on %s, %.1f %% of experts in fast memory if not said otherwise; %s", recorded,
                       *recorded ? " at the costs of " : "", m->model, m->name, 100 * m->cached, simulation->drafted->name);
}

static int write_json(struct text *out, const struct picture *p, struct err *err)
{
    json_t *head = json_pack("{s:s, s:b, s:s, s:s, s:s}", "type", "figure", "simulated", 1, "figure", p->name, "machine",
                             p->simulation->machine->name, "routes", p->simulation->drafted->name);
    const int rc = head ? points_json(out, &p->points, head, err) : err_memory(err);
    json_decref(head);
    return rc;
}

static int write_form(struct text *out, const struct picture *p, enum simulated_form form, struct err *err)
{
    struct text title = {0}, note = {0};
    if (form == SIMULATED_JSON)
        return write_json(out, p, err);
    int rc = text_printf(&title, err, "SIMULATED: %s", p->title) || simulate_figure_note(&note, p->simulation, err) ? -1 : 0;
    if (!rc && form == SIMULATED_SVG)
        rc = points_svg(out, &p->points, title.data, note.data, err);
    else if (!rc)
        rc = text_printf(out, err, "SIMULATED: %s\n", note.data) ||
             points_text(out, &p->points, form == SIMULATED_MARKDOWN, err) ? -1 : 0;
    text_free(&title);
    text_free(&note);
    return rc;
}

int simulate_figure(struct text *out, const struct simulation *simulation, const struct simulated_texts *texts,
                    enum simulated_figure figure, enum simulated_form form, struct err *err)
{
    static const struct { const char *title; int (*make)(struct picture *p, struct err *err); } kinds[] = {
        [SIMULATED_ABLATION] = {"what each part of MoE-SpAc is good for", ablation},
        [SIMULATED_HOT_OR_COLD] = {"which experts will be wanted", hot_or_cold},
        [SIMULATED_CACHED] = {"tokens a second by what is cached", cached},
        [SIMULATED_LENGTHS] = {"tokens a second by length", lengths},
        [SIMULATED_LEVELS] = {"tokens a second by K", levels},
        [SIMULATED_MEMORY] = {"memory for a draft model or for experts", memory},
        [SIMULATED_SHARES] = {"levels, and what they leave to which processor", shares}};
    if (figure == SIMULATED_PIPELINES)
        return simulate_pipelines(out, simulation, form, err);
    struct picture p = {.simulation = simulation, .texts = texts, .name = simulated_figures[figure],
                        .title = kinds[figure].title};
    int rc = kinds[figure].make(&p, err);
    for (int i = 0; !rc && i < p.points.panels; i++)
        rc = p.points.panel[i].count ? 0 : err_set(err, ERR_INPUT, "fast memory cannot hold the experts of one token in a "
                                                   "layer; give more (--cached)");
    if (!rc)
        rc = write_form(out, &p, form, err);
    points_free(&p.points);
    return rc;
}
