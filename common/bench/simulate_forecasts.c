/* Measures how well experts can be forecast before they are needed. */
#include <string.h>

#include <jansson.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/splitmix.h"
#include "common/bench/simulate.h"
#include "common/predict/forecast.h"
#include "common/report/table.h"

enum { WIDTHS = 4 };            /* numbers of experts named per layer: top_k, 2 top_k, 4 top_k, and all with a score above 0 */

struct trial {
    const struct simulation *simulation;
    const struct simulated_routes *routes;
    uint64_t chance;
    int16_t *given;             /* [tokens][layers][top_k] the routes that a draft phase or a router would have predicted */
    float *score;
    int32_t *named, *wanted, *tokens, *often;       /* [experts] */
    struct forecast_score sum[WIDTHS];
};

/* Copies the routes of the first `tokens` tokens, each correct with probability `recall`; those of later tokens are unknown. */
static void forecast_step(struct trial *t, const struct simulated_step *step, int tokens, double recall)
{
    int slots = t->routes->layers * t->routes->top_k;
    for (int i = 0; i < step->tokens * slots; i++) {
        int truth = t->routes->expert[step->first + i];
        bool right = splitmix_uniform(&t->chance) < recall;
        int other = (int)(splitmix_uniform(&t->chance) * t->routes->experts);
        t->given[i] = (int16_t)(i / slots >= tokens || truth < 0 || recall <= 0 ? -1 : right ? truth : other);
    }
}

static int max_of(const struct simulated_routes *routes, int width)
{
    int max = routes->top_k << width;
    return width < WIDTHS - 1 && max < routes->experts ? max : routes->experts;
}

/* Returns the share of experts, over layers and forwards, correctly predicted as needed or not needed (MoE-SpAc, figure 4). */
static double accuracy(const struct trial *t)
{
    const struct forecast_score *all = &t->sum[WIDTHS - 1];
    double asked = (double)t->routes->experts * t->routes->layers * t->routes->steps;
    return (asked - all->named - all->wanted + 2 * all->right) / asked;
}

static void ask(struct trial *t, struct forecast *forecast, const struct simulated_step *step, int16_t *ahead, bool drafts)
{
    const struct simulated_routes *routes = t->routes;
    forecast_step(t, step, drafts ? step->tokens - 1 : step->tokens,
                  drafts ? t->simulation->machine->recall_draft : t->simulation->machine->recall_next);
    for (int layer = 0; layer < routes->layers; layer++) {
        for (int i = 0; i < step->tokens * routes->top_k; i++)
            ahead[i] = t->given[(i / routes->top_k * routes->layers + layer) * routes->top_k + i % routes->top_k];
        const struct forecast_facts facts = {.token = routes->token + step->accepted, .tokens = step->tokens,
                                             .drafted = t->given, .ahead = layer ? ahead : NULL};
        int wants = simulated_routes_want(routes, step, layer, t->wanted, t->tokens, t->often);
        forecast->class->expect(forecast, layer, &facts, t->score);
        for (int w = 0; w < WIDTHS; w++) {
            int count = forecast_name(t->named, t->score, routes->experts, max_of(routes, w));
            forecast_score_add(&t->sum[w], t->named, count, t->wanted, wants);
        }
    }
}

static int try_source(struct trial *t, const struct forecast_class *class, struct err *err)
{
    const struct simulated_routes *routes = t->routes;
    const struct forecast_setup setup = {routes->layers, routes->experts, routes->top_k, routes->vocab,
                                         t->simulation->machine->draft_length};
    struct forecast *forecast = NULL;
    size_t max = 0;
    for (size_t i = 0; i < routes->steps; i++)
        max = (size_t)routes->step[i].tokens > max ? (size_t)routes->step[i].tokens : max;
    int16_t *ahead = mem_alloc(max * routes->top_k, sizeof *ahead, err);
    t->given = mem_alloc(max * routes->layers * routes->top_k, sizeof *t->given, err);
    int rc = ahead && t->given ? forecast_open(&forecast, class->name, &setup, err) : -1;
    t->chance = t->simulation->seed;
    for (int w = 0; w < WIDTHS; w++)
        t->sum[w] = (struct forecast_score){0};
    for (size_t i = 0; !rc && i < routes->steps; i++) {
        const struct simulated_step *step = &routes->step[i];
        const struct forecast_outcome outcome = {routes->token + step->accepted, routes->accepted + step->accepted,
                                                 routes->expert + step->first, step->tokens};
        if (class->begin && (!i || step->text != routes->step[i - 1].text))
            class->begin(forecast);
        ask(t, forecast, step, ahead, !strcmp(class->name, "draft"));
        if (class->learn)
            class->learn(forecast, &outcome);
    }
    forecast_close(&forecast);
    mem_free(&ahead);
    mem_free(&t->given);
    return rc;
}

static double wasted_mb(const struct trial *t, int w)
{
    return 1e-6 * forecast_wasted_bytes(&t->sum[w], t->simulation->machine->expert_bytes) / t->routes->steps;
}

static int put_source(struct trial *t, const struct forecast_class *class, struct text *lines, struct table *table,
                      struct err *err)
{
    if (table_cell(table, err, "%s", class->name))
        return -1;
    for (int w = 0; w < WIDTHS; w++) {
        const struct forecast_score *sum = &t->sum[w];
        json_t *line = json_pack("{s:s, s:b, s:s, s:s, s:i, s:I, s:I, s:I, s:o, s:f, s:f}", "type", "forecast", "simulated", 1,
                                 "routes", t->routes->name, "source", class->name, "most", max_of(t->routes, w), "wanted",
                                 (json_int_t)sum->wanted, "named", (json_int_t)sum->named, "right", (json_int_t)sum->right,
                                 "recall", json_finite(forecast_recall(sum)), "wasted_mb", wasted_mb(t, w),
                                 "hot_or_cold", accuracy(t));
        if (json_line(lines, line, err))
            return -1;
        if (w == WIDTHS - 1)
            return table_cell(table, err, "%.1f %%", 100 * accuracy(t));
        if (table_cell(table, err, "%.1f %%", 100 * forecast_recall(sum)) ||
            table_cell(table, err, "%.1f %%", sum->named ? 100.0 * sum->right / sum->named : 0) ||
            table_number(table, wasted_mb(t, w), 0, err))
            return -1;
    }
    return 0;
}

int simulate_forecasts(struct text *out, const struct simulation *simulation, bool json, bool markdown, struct err *err)
{
    static const char *const titles[] = {"source", "recall of k", "right", "wasted MB", "recall of 2 k", "right", "wasted MB",
                                         "recall of 4 k", "right", "wasted MB", "hot or cold"};
    struct trial t = {.simulation = simulation, .routes = simulation->drafted};
    struct table table = {0};
    struct text lines = {0};
    int rc = -1, experts = t.routes->experts;
    table_start(&table, titles, "lrrrrrrrrrr");
    t.score = mem_alloc(experts, sizeof *t.score, err);
    t.named = mem_alloc(4 * (size_t)experts, sizeof *t.named, err);
    if (!t.score || !t.named)
        goto done;
    t.wanted = t.named + experts;
    t.tokens = t.wanted + experts;
    t.often = t.tokens + experts;
    for (int i = 0; forecast_classes[i]; i++)
        if (try_source(&t, forecast_classes[i], err) || put_source(&t, forecast_classes[i], &lines, &table, err))
            goto done;
    if (json)
        rc = text_put(out, lines.data, lines.length, err);
    else
        rc = text_printf(out, err, "SIMULATED: experts that a layer of the next forward requests, of %d, named in advance; k "
                         "is %d, wasted is a forward's; %s\n\n", experts, t.routes->top_k, t.routes->name) ||
             table_write(&table, markdown ? TABLE_MARKDOWN : TABLE_TEXT, out, err) ? -1 : 0;
done:
    table_free(&table);
    text_free(&lines);
    mem_free(&t.score);
    mem_free(&t.named);
    return rc;
}
