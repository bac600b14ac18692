#include "common/predict/forecast.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/cache/utility_rule.h"

/* The base of counting sources: a table of floats. */
struct counting {
    struct forecast base;
    struct forecast_setup setup;
    size_t cells;                       /* layers * experts */
    float *count;                       /* [cells] popular: number of uses; last: 1 or 0 */
    uint16_t **of_token;                /* table: [vocab], NULL or [cells] */
    float *after, *times;               /* pairs: [cells][experts] how often an expert directly followed; [cells] how often
                                         * any did */
    struct utility_expert *expert;      /* utility: [cells] */
    int32_t *frequency;                 /* utility: [cells], 0 between two calls */
};

static const struct utility_rule printed = {.K = 4, .lambda = 100000, .boundaries = UTILITY_FLOOR};

static void counting_free(struct forecast *forecast)
{
    struct counting *c = (struct counting *)forecast;
    for (int token = 0; c->of_token && token < c->setup.vocab; token++)
        mem_free(&c->of_token[token]);
    mem_free(&c->of_token);
    mem_free(&c->count);
    mem_free(&c->after);
    mem_free(&c->times);
    mem_free(&c->expert);
    mem_free(&c->frequency);
    mem_free(&c);
}

static struct counting *counting_make(const struct forecast_setup *setup, struct err *err)
{
    struct counting *c = mem_alloc(1, sizeof *c, err);
    if (!c)
        return NULL;
    c->setup = *setup;
    c->cells = (size_t)setup->layers * setup->experts;
    c->count = mem_alloc(c->cells, sizeof *c->count, err);
    if (!c->count) {
        counting_free(&c->base);
        return NULL;
    }
    return c;
}

static int counting_open(struct forecast **out, const struct forecast_setup *setup, struct err *err)
{
    struct counting *c = counting_make(setup, err);
    if (c)
        *out = &c->base;
    return c ? 0 : -1;
}

static int table_open(struct forecast **out, const struct forecast_setup *setup, struct err *err)
{
    struct counting *c = counting_make(setup, err);
    if (!c)
        return -1;
    c->of_token = mem_alloc(setup->vocab, sizeof *c->of_token, err);
    if (!c->of_token) {
        counting_free(&c->base);
        return -1;
    }
    *out = &c->base;
    return 0;
}

static int pairs_open(struct forecast **out, const struct forecast_setup *setup, struct err *err)
{
    struct counting *c = counting_make(setup, err);
    if (!c)
        return -1;
    c->after = mem_alloc(c->cells * (size_t)setup->experts, sizeof *c->after, err);
    c->times = mem_alloc(c->cells, sizeof *c->times, err);
    if (!c->after || !c->times) {
        counting_free(&c->base);
        return -1;
    }
    *out = &c->base;
    return 0;
}

static int utility_open(struct forecast **out, const struct forecast_setup *setup, struct err *err)
{
    struct counting *c = counting_make(setup, err);
    if (!c)
        return -1;
    c->expert = mem_alloc(c->cells, sizeof *c->expert, err);
    c->frequency = mem_alloc(c->cells, sizeof *c->frequency, err);
    if (!c->expert || !c->frequency) {
        counting_free(&c->base);
        return -1;
    }
    for (size_t i = 0; i < c->cells; i++)
        c->expert[i].up = c->expert[i].down = setup->draft_length / 2;
    *out = &c->base;
    return 0;
}

static const int16_t *experts_of(const struct counting *c, const int16_t *expert, int token, int layer)
{
    return expert + ((size_t)token * c->setup.layers + layer) * c->setup.top_k;
}

static bool is_kept(const struct forecast_outcome *outcome, int token) { return !outcome->kept || outcome->kept[token]; }

/* Adds 1 for each expert of a token. */
static void count_experts(const int16_t *expert, int top_k, float *score)
{
    for (int k = 0; k < top_k; k++)
        if (expert[k] >= 0)
            score[expert[k]]++;
}

/* ---- popular */

static void popular_expect(struct forecast *forecast, int layer, const struct forecast_facts *facts, float *score)
{
    const struct counting *c = (const struct counting *)forecast;
    (void)facts;
    memcpy(score, c->count + (size_t)layer * c->setup.experts, c->setup.experts * sizeof *score);
}

static void popular_learn(struct forecast *forecast, const struct forecast_outcome *outcome)
{
    struct counting *c = (struct counting *)forecast;
    for (int t = 0; t < outcome->tokens; t++)
        for (int layer = 0; is_kept(outcome, t) && layer < c->setup.layers; layer++)
            count_experts(experts_of(c, outcome->expert, t, layer), c->setup.top_k,
                          c->count + (size_t)layer * c->setup.experts);
}

/* ---- last */

static void last_token_begin(struct forecast *forecast)
{
    struct counting *c = (struct counting *)forecast;
    memset(c->count, 0, c->cells * sizeof *c->count);
}

static void last_learn(struct forecast *forecast, const struct forecast_outcome *outcome)
{
    struct counting *c = (struct counting *)forecast;
    int last = -1;
    for (int t = 0; t < outcome->tokens; t++)
        last = is_kept(outcome, t) ? t : last;
    if (last < 0)
        return;
    last_token_begin(forecast);
    for (int layer = 0; layer < c->setup.layers; layer++)
        count_experts(experts_of(c, outcome->expert, last, layer), c->setup.top_k, c->count + (size_t)layer * c->setup.experts);
}

/* ---- pairs */

/* Scores each expert: sums, over the last token's experts, the share of times that the expert directly followed. */
static void pairs_expect(struct forecast *forecast, int layer, const struct forecast_facts *facts, float *score)
{
    const struct counting *c = (const struct counting *)forecast;
    const size_t experts = (size_t)c->setup.experts, base = (size_t)layer * experts;
    (void)facts;
    memset(score, 0, experts * sizeof *score);
    for (size_t e = 0; e < experts; e++)
        for (size_t other = 0; c->count[base + e] > 0 && c->times[base + e] > 0 && other < experts; other++)
            score[other] += c->after[(base + e) * experts + other] / c->times[base + e];
}

/* Counts the token's experts for each expert of the token before it. */
static void pairs_count(struct counting *c, const struct forecast_outcome *token)
{
    const size_t experts = (size_t)c->setup.experts;
    for (size_t cell = 0; cell < c->cells; cell++) {
        if (!(c->count[cell] > 0))
            continue;
        const int16_t *expert = experts_of(c, token->expert, 0, (int)(cell / experts));
        c->times[cell]++;
        for (int k = 0; k < c->setup.top_k; k++)
            if (expert[k] >= 0)
                c->after[cell * experts + (size_t)expert[k]]++;
    }
}

static void pairs_learn(struct forecast *forecast, const struct forecast_outcome *outcome)
{
    struct counting *c = (struct counting *)forecast;
    for (int t = 0; t < outcome->tokens; t++) {
        const struct forecast_outcome one = {outcome->token + t, NULL, experts_of(c, outcome->expert, t, 0), 1};
        if (!is_kept(outcome, t))
            continue;
        pairs_count(c, &one);
        last_learn(forecast, &one);
    }
}

/* ---- table */

static void table_expect(struct forecast *forecast, int layer, const struct forecast_facts *facts, float *score)
{
    const struct counting *c = (const struct counting *)forecast;
    memset(score, 0, c->setup.experts * sizeof *score);
    for (int t = 0; t < facts->tokens; t++) {
        const uint16_t *row = c->of_token[facts->token[t]];
        float max = 0;
        if (!row)
            continue;
        row += (size_t)layer * c->setup.experts;
        for (int e = 0; e < c->setup.experts; e++)          /* normalised: a frequent token has no more weight than a rare
                                                             * one */
            max += row[e];
        for (int e = 0; e < c->setup.experts && max > 0; e++)
            score[e] += row[e] / max;
    }
}

/* Counts the experts of each token id. Without memory a token has no row, and is treated as one never seen. */
static void table_learn(struct forecast *forecast, const struct forecast_outcome *outcome)
{
    struct counting *c = (struct counting *)forecast;
    for (int t = 0; t < outcome->tokens; t++) {
        uint16_t **row = &c->of_token[outcome->token[t]];
        if (!is_kept(outcome, t) || (!*row && !(*row = mem_alloc(c->cells, sizeof **row, NULL))))
            continue;
        for (int layer = 0; layer < c->setup.layers; layer++)
            for (int k = 0; k < c->setup.top_k; k++) {
                int e = experts_of(c, outcome->expert, t, layer)[k];
                if (e >= 0 && (*row)[(size_t)layer * c->setup.experts + e] < UINT16_MAX)
                    (*row)[(size_t)layer * c->setup.experts + e]++;
            }
    }
}

/* ---- utility */

static void utility_expect(struct forecast *forecast, int layer, const struct forecast_facts *facts, float *score)
{
    const struct counting *c = (const struct counting *)forecast;
    (void)facts;
    for (int e = 0; e < c->setup.experts; e++)
        score[e] = (float)c->expert[(size_t)layer * c->setup.experts + e].level;
}

static void utility_learn(struct forecast *forecast, const struct forecast_outcome *outcome)
{
    struct counting *c = (struct counting *)forecast;
    for (int t = 0; t < outcome->tokens; t++)
        for (int layer = 0; layer < c->setup.layers; layer++)
            for (int k = 0; k < c->setup.top_k; k++) {
                int e = experts_of(c, outcome->expert, t, layer)[k];
                if (e >= 0)
                    c->frequency[(size_t)layer * c->setup.experts + e]++;
            }
    for (size_t i = 0; i < c->cells; i++) {
        utility_step(&printed, &c->expert[i], c->frequency[i]);
        c->frequency[i] = 0;
    }
}

/* ---- experts named by other sources */

static void draft_expect(struct forecast *forecast, int layer, const struct forecast_facts *facts, float *score)
{
    const struct counting *c = (const struct counting *)forecast;
    memset(score, 0, c->setup.experts * sizeof *score);
    for (int t = 0; facts->drafted && t < facts->tokens; t++)
        count_experts(experts_of(c, facts->drafted, t, layer), c->setup.top_k, score);
}

static void next_layer_expect(struct forecast *forecast, int layer, const struct forecast_facts *facts, float *score)
{
    const struct counting *c = (const struct counting *)forecast;
    (void)layer;
    memset(score, 0, c->setup.experts * sizeof *score);
    for (int t = 0; facts->ahead && t < facts->tokens; t++)
        count_experts(facts->ahead + (size_t)t * c->setup.top_k, c->setup.top_k, score);
}

static const struct forecast_class popular = {
    .name = "popular", .summary = "experts that texts requested most often so far",
    .open = counting_open, .expect = popular_expect, .learn = popular_learn, .free = counting_free};
static const struct forecast_class last = {
    .name = "last", .summary = "experts that the last token of the text requested",
    .open = counting_open, .begin = last_token_begin, .expect = popular_expect, .learn = last_learn, .free = counting_free};
static const struct forecast_class table = {
    .name = "table", .summary = "experts that each token requested so far, whenever it occurred", .reads_tokens = true,
    .open = table_open, .expect = table_expect, .learn = table_learn, .free = counting_free};
static const struct forecast_class pairs = {
    .name = "pairs", .summary = "experts that texts requested right after tokens with the last token's experts",
    .open = pairs_open, .begin = last_token_begin, .expect = pairs_expect, .learn = pairs_learn, .free = counting_free};
static const struct forecast_class utility = {
    .name = "utility", .summary = "MoE-SpAc's Algorithm 1 as printed", .levels = true,
    .open = utility_open, .expect = utility_expect, .learn = utility_learn, .free = counting_free};
static const struct forecast_class draft = {
    .name = "draft", .summary = "routes of the draft phase", .reads_tokens = true,
    .open = counting_open, .expect = draft_expect, .free = counting_free};
static const struct forecast_class next_layer = {
    .name = "next-layer", .summary = "the next layer's router on this layer's state", .reads_tokens = true,
    .open = counting_open, .expect = next_layer_expect, .free = counting_free};

const struct forecast_class *const forecast_classes[] = {&popular, &last, &table, &pairs, &utility, &draft, &next_layer, NULL};

int forecast_open(struct forecast **out, const char *name, const struct forecast_setup *setup, struct err *err)
{
    for (int i = 0; forecast_classes[i]; i++)
        if (!strcmp(forecast_classes[i]->name, name)) {
            struct forecast *forecast = NULL;
            if (forecast_classes[i]->open(&forecast, setup, err))
                return -1;
            forecast->class = forecast_classes[i];
            *out = forecast;
            return 0;
        }
    return err_set(err, ERR_INPUT, "unknown forecast '%s'; choose popular, last, table, pairs, utility, draft or next-layer",
                   name);
}

void forecast_close(struct forecast **forecast)
{
    if (*forecast)
        (*forecast)->class->free(*forecast);
    *forecast = NULL;
}

int forecast_name(int32_t *expert, const float *score, int experts, int max)
{
    int count = 0;
    for (int e = 0; e < experts; e++) {
        int at = count;
        if (!(score[e] > 0) || (count == max && (!max || !(score[e] > score[expert[max - 1]]))))
            continue;
        for (at = count < max ? count++ : max - 1; at > 0 && score[expert[at - 1]] < score[e]; at--)
            expert[at] = expert[at - 1];
        expert[at] = e;
    }
    return count;
}

void forecast_score_add(struct forecast_score *score, const int32_t *named, int count, const int32_t *wanted, int wants)
{
    score->wanted += wants;
    score->named += count;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < wants; j++)
            score->right += named[i] == wanted[j];
}

double forecast_recall(const struct forecast_score *score)
{
    return score->wanted ? (double)score->right / score->wanted : NAN;
}

double forecast_wasted_bytes(const struct forecast_score *score, double expert_bytes)
{
    return (score->named - score->right) * expert_bytes;
}
