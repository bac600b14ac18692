/* Random worlds, generated from a seed, in which policies draft with several drafters. A world is a text; for each position
 * it is fixed in advance which drafter would be right there, which probability it would report, and what a forward of each
 * size costs. A policy sees what a live loop shows: tokens, probabilities, matches, and times and experts of what it chose.
 * Fixed drafts are evaluated over the same positions, so both have the same luck.
 *
 * Costs are in forwards over one token. A token drafted after a wrong one is never right. Nothing here uses code of the
 * policies. */
#ifndef MOE_TESTS_SCENARIO_H
#define MOE_TESTS_SCENARIO_H

#include "tests/unit/unit.h"

#include <math.h>

#include "common/policy/shape.h"

enum {
    WORLD_DRAFTERS = 4, WORLD_LENGTH = 8,       /* of fixed drafts */
    WORLD_ROWS = 66, WORLD_LAYERS = 2, WORLD_TOP_K = 8, WORLD_VOCAB = 1000
};

struct world_drafter {
    double from, to;                    /* probability of being right, at the beginning and, if it drifts, later */
    double cost;
    int drift;                          /* 0: none, 1: linear, 2: periodic, 3: steps */
    bool looks_up, speaks;
    uint8_t *right;                     /* [tokens] 1: its token for this position is right; 2: its second token is */
    uint8_t *offers;                    /* [tokens] number of tokens it can draft from this position on; 255: any */
    float *said;                        /* [tokens] reported probability; NaN: none */
    int32_t *match;                     /* [tokens] */
};

struct world {
    int tokens, drafters, texts;
    int *begins;                        /* [texts + 1] first position of each text, then the end */
    struct world_drafter drafter[WORLD_DRAFTERS];
    struct policy_drafter known[WORLD_DRAFTERS];
    int experts, top_k;                 /* experts 0: dense */
    int32_t *expert;                    /* [tokens][WORLD_LAYERS][top_k] */
    float *verify;                      /* [tokens][WORLD_ROWS] cost of a forward whose root is before this position */
    double noise;                       /* relative noise of observed times */
    double outliers;                    /* share of observed times that are 20 times too long */
    uint64_t luck;                      /* seed of noise and outliers: runs that differ only in it are equal runs on a busy
                                         * machine */
    bool chains;                        /* drafters cannot branch */
    uint64_t seed;
    const char **task;                  /* [texts] NULL: no text has a known task */
    char about[400];
};

static inline double world_unit(uint64_t seed, uint64_t a, uint64_t b)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + a * 0xbf58476d1ce4e5b9u + b * 0x94d049bb133111ebu + 0x2545f4914f6cdd1du;
    for (int i = 0; i < 3; i++) {
        x ^= x >> 30;
        x *= 0xbf58476d1ce4e5b9u;
        x ^= x >> 27;
        x *= 0x94d049bb133111ebu;
        x ^= x >> 31;
    }
    return ((double)(x >> 11) + 0.5) / 9007199254740992.0;
}

struct world_random { uint64_t seed, at; };
static inline double world_draw(struct world_random *r) { return world_unit(r->seed, 7, r->at++); }
static inline double world_between(struct world_random *r, double low, double high)
{
    return low + (high - low) * world_draw(r);
}

static inline double world_normal(struct world_random *r)
{
    double u = world_draw(r);
    return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979 * world_draw(r));
}

/* Returns the quantile of the standard normal distribution for probability p. */
static inline double world_quantile(double p)
{
    double low = -8, high = 8;
    for (int i = 0; i < 60; i++) {
        double mid = (low + high) / 2;
        *(0.5 * erfc(-mid / sqrt(2)) < p ? &low : &high) = mid;
    }
    return (low + high) / 2;
}

static inline double world_chance(const struct world *w, const struct world_drafter *d, int number, int at)
{
    double x = (double)at / w->tokens;
    switch (d->drift) {
    case 1: return d->from + (d->to - d->from) * x;
    case 2: return d->from + (d->to - d->from) * 0.5 * (1 - cos(2 * 3.14159265358979 * 3 * x));
    case 3: return world_unit(w->seed, 100 + (uint64_t)number, (uint64_t)(at / 700)) < 0.5 ? d->from : d->to;
    default: return d->from;
    }
}

static inline void world_alloc(struct world *w)
{
    size_t n = (size_t)w->tokens;
    for (int i = 0; i < w->drafters; i++) {
        struct world_drafter *d = &w->drafter[i];
        d->right = calloc(n, 1);
        d->offers = calloc(n, 1);
        d->said = calloc(n, sizeof *d->said);
        d->match = calloc(n, sizeof *d->match);
    }
    w->expert = calloc(n * WORLD_LAYERS * WORLD_TOP_K, sizeof *w->expert);
    w->verify = calloc(n * WORLD_ROWS, sizeof *w->verify);
}

static inline void world_free(struct world *w)
{
    for (int i = 0; i < w->drafters; i++) {
        free(w->drafter[i].right);
        free(w->drafter[i].offers);
        free(w->drafter[i].said);
        free(w->drafter[i].match);
    }
    free(w->expert);
    free(w->verify);
    free(w->begins);
    free(w->task);
}

/* Decides where each drafter is right. together: correlation between drafters at one position; runs: correlation between
 * neighbouring positions. */
static inline void world_fill_drafters(struct world *w, struct world_random *r, double together, double runs,
                                       const double (*by_text)[WORLD_DRAFTERS])
{
    double common = world_normal(r), own[WORLD_DRAFTERS] = {0};
    for (int at = 0, text = 0; at < w->tokens; at++) {
        while (at >= w->begins[text + 1])
            text++;
        common = runs * common + sqrt(1 - runs * runs) * world_normal(r);
        for (int i = 0; i < w->drafters; i++) {
            struct world_drafter *d = &w->drafter[i];
            double chance = by_text ? by_text[text][i] : world_chance(w, d, i, at);
            /* the drafter knows the noise `common` and `own`, not the rest */
            own[i] = world_normal(r);
            double seen = sqrt(together) * common + sqrt((1 - together) * 0.5) * own[i];
            double rest = (1 - together) * 0.5, threshold = world_quantile(chance);
            d->right[at] = seen + sqrt(rest) * world_normal(r) < threshold;
            double knows = 0.5 * erfc(-((threshold - seen) / sqrt(rest)) / sqrt(2));
            if (!d->right[at] && world_draw(r) < 0.3)
                d->right[at] = 2;
            /* reported probabilities are overconfident and noisy */
            double logit = log(knows / (1 - knows + 1e-12) + 1e-12) * 0.8 + 0.4 + 0.4 * world_normal(r);
            d->said[at] = d->speaks ? (float)fmin(0.9999, fmax(1e-4, 1 / (1 + exp(-logit)))) : NAN;
            d->match[at] = d->looks_up ? 1 + (int)fmin(30, 8 * knows * knows * world_draw(r) * 2) : 0;
            d->offers[at] = d->looks_up && world_draw(r) < 0.35 * (1 - chance) + 0.05 ? 0 : 255;
        }
    }
}

/* Generates experts with some locality, and from them the costs of forwards; experts take `share` of a forward over one
 * token. */
static inline void world_fill_verify(struct world *w, struct world_random *r, double share, double each, double local)
{
    for (int at = 0; at < w->tokens && w->experts; at++)
        for (int layer = 0; layer < WORLD_LAYERS; layer++) {
            int32_t *row = w->expert + ((size_t)at * WORLD_LAYERS + (size_t)layer) * (size_t)w->top_k;
            const int32_t *before = row - WORLD_LAYERS * w->top_k;
            for (int k = 0; k < w->top_k; k++) {
                bool again;
                row[k] = at && world_draw(r) < local ? before[k] : (int32_t)(w->experts * world_draw(r) * world_draw(r));
                do {
                    again = false;
                    for (int j = 0; j < k; j++)
                        again |= row[j] == row[k];
                    row[k] = again ? (row[k] + 1) % w->experts : row[k];
                } while (again);
            }
        }
    for (int at = 0; at < w->tokens; at++) {
        uint8_t seen[WORLD_LAYERS][256] = {{0}};
        int distinct = 0;
        for (int row = 0; row < WORLD_ROWS; row++) {
            int from = at + row < w->tokens ? at + row : w->tokens - 1;
            for (int slot = 0; slot < WORLD_LAYERS * w->top_k && w->experts; slot++) {
                const int32_t *row_of = w->expert + (size_t)from * (size_t)(WORLD_LAYERS * w->top_k);
                uint8_t *one = &seen[slot / w->top_k][row_of[slot]];
                distinct += !*one;
                *one = 1;
            }
            double experts = w->experts ? (double)distinct / (WORLD_LAYERS * w->top_k) : 1;
            w->verify[(size_t)at * WORLD_ROWS + (size_t)row] = (float)(1 - share + share * experts + each * row);
        }
    }
}

static inline void world_about(struct world *w, const char *text)
{
    size_t used = strlen(w->about);
    snprintf(w->about + used, sizeof w->about - used, "%s", text);
}

static inline void world_kind(struct world *w, struct world_random *r)
{
    double share = 0, each = world_between(r, 0.005, 0.08), local = world_between(r, 0.1, 0.6);
    char text[100];
    if (world_draw(r) < 0.5) {
        static const int experts[] = {8, 32, 64, 128}, top_k[] = {2, 4, 8, 8};
        int shape = (int)(4 * world_draw(r));
        w->experts = experts[shape];
        w->top_k = top_k[shape];
        share = world_between(r, 0.4, 0.9);
        each = world_between(r, 0.002, 0.02);
    }
    world_fill_verify(w, r, share, each, local);
    snprintf(text, sizeof text, "%s %d/%d share %.2f each %.3f; ", w->experts ? "moe" : "dense", w->experts, w->top_k,
             share, each);
    world_about(w, text);
}

/* Generates a scenario: 2 to 4 drafters, acceptance .2 to .95, cost .005 to .7, a third of them drifting. plain: no
 * probabilities are reported, and positions are independent. */
static inline void world_scenario(struct world *w, uint64_t seed, int tokens, bool plain)
{
    struct world_random r = {seed, 0};
    *w = (struct world){.tokens = tokens, .texts = 1, .seed = seed, .drafters = 2 + (int)(3 * world_draw(&r))};
    w->begins = calloc(2, sizeof *w->begins);
    w->begins[1] = tokens;
    w->noise = world_between(&r, 0, 0.05);
    bool drifts = world_draw(&r) < 1.0 / 3, alike = world_draw(&r) < 0.5 && !plain;
    world_alloc(w);
    for (int i = 0; i < w->drafters; i++) {
        struct world_drafter *d = &w->drafter[i];
        d->from = world_between(&r, 0.2, 0.95);
        d->to = world_between(&r, 0.2, 0.95);
        d->cost = exp(world_between(&r, log(0.005), log(0.7)));
        d->drift = drifts ? 1 + (int)(3 * world_draw(&r)) : 0;
        d->looks_up = d->cost < 0.02 && world_draw(&r) < 0.5 && !plain;
        d->speaks = !d->looks_up && world_draw(&r) < 0.5 && !plain;
        w->known[i] = (struct policy_drafter){d->looks_up ? "looks up" : "model", true, d->looks_up};
        static const char *const drift[] = {"=", "/", "~", "|"};
        char text[100];
        snprintf(text, sizeof text, "[%.2f%s%.2f c %.3f%s%s] ", d->from, drift[d->drift], d->drift ? d->to : d->from, d->cost,
                 d->looks_up ? " looks up" : "", d->speaks ? " speaks" : "");
        world_about(w, text);
    }
    world_kind(w, &r);
    double together = alike ? world_between(&r, 0.2, 0.7) : 0;
    double runs = alike && world_draw(&r) < 0.5 ? world_between(&r, 0.3, 0.9) : 0;
    char text[60];
    snprintf(text, sizeof text, "alike %.2f runs %.2f", together, runs);
    world_about(w, text);
    world_fill_drafters(w, &r, together, runs, NULL);
}

/* Generates alternating texts of several tasks for which different drafters are best: no fixed draft is good for all. */
static inline void world_mixed(struct world *w, uint64_t seed, int tokens, int texts, bool named)
{
    static const double tasks[][WORLD_DRAFTERS] = {
        {0.92, 0.75, 0.5, 0}, {0.25, 0.8, 0.6, 0}, {0.3, 0.4, 0.9, 0}, {0.2, 0.25, 0.3, 0}};
    static const char *const names[] = {"copies", "code", "prose", "noise"};
    struct world_random r = {seed, 0};
    double (*by_text)[WORLD_DRAFTERS] = calloc((size_t)texts, sizeof *by_text);
    *w = (struct world){.tokens = tokens, .texts = texts, .seed = seed, .drafters = 3, .noise = 0.02};
    w->begins = calloc((size_t)texts + 1, sizeof *w->begins);
    w->task = named ? calloc((size_t)texts, sizeof *w->task) : NULL;
    static const double cost[] = {0.01, 0.12, 0.3};
    world_alloc(w);
    for (int i = 0; i < w->drafters; i++) {
        w->drafter[i].cost = cost[i];
        w->drafter[i].speaks = i == 2;
        w->known[i] = (struct policy_drafter){"model", true, false};
    }
    for (int text = 0; text < texts; text++) {
        int task = (int)(4 * world_draw(&r));
        w->begins[text] = (int)((int64_t)tokens * text / texts);
        memcpy(by_text[text], tasks[task], sizeof *by_text);
        if (named)
            w->task[text] = names[task];
    }
    w->begins[texts] = tokens;
    world_about(w, "mixed: ");
    world_kind(w, &r);
    world_fill_drafters(w, &r, 0.2, 0, (const double (*)[WORLD_DRAFTERS])by_text);
    free(by_text);
}

/* Generates drafters with these chances and costs on a dense target. Self-drafts, which report probabilities, come before
 * look-ups: the look-ups are those from number `models` on. */
static inline void world_dense(struct world *w, uint64_t seed, int tokens, const double *chance, const double *cost, int models,
                               int drafters)
{
    struct world_random r = {seed, 0};
    *w = (struct world){.tokens = tokens, .texts = 1, .seed = seed, .drafters = drafters};
    w->begins = calloc(2, sizeof *w->begins);
    w->begins[1] = tokens;
    world_alloc(w);
    for (int i = 0; i < drafters; i++) {
        struct world_drafter *d = &w->drafter[i];
        d->looks_up = i >= models;
        d->speaks = i < models;
        d->from = chance[i];
        d->cost = cost[i];
        w->known[i] = (struct policy_drafter){d->looks_up ? "look-up" : "self", !d->looks_up, d->looks_up};
    }
    world_fill_verify(w, &r, 0, 0.01, 0);
    world_fill_drafters(w, &r, 0.4, 0.3, NULL);
}

/* Generates a self-draft and a look-up after it, or only one of them. */
static inline void world_pair(struct world *w, uint64_t seed, int tokens, const double *chance, const double *cost, int first,
                              int drafters)
{
    world_dense(w, seed, tokens, chance + first, cost + first, first ? 0 : 1, drafters);
}

/* ---- fixed drafts ---- */

struct world_fixed {
    int order[WORLD_DRAFTERS], length[WORLD_DRAFTERS], stages;
    double cost;
};

/* For each position: number of consecutive tokens that each drafter has right, at most 8; and how many it can offer. */
struct world_runs { uint8_t *run[WORLD_DRAFTERS]; };

static inline void world_runs_make(struct world_runs *runs, const struct world *w)
{
    for (int i = 0; i < w->drafters; i++) {
        runs->run[i] = calloc((size_t)w->tokens + WORLD_LENGTH + 1, 1);
        for (int at = w->tokens - 1; at >= 0; at--)
            runs->run[i][at] = w->drafter[i].right[at] == 1
                ? (uint8_t)(runs->run[i][at + 1] < WORLD_LENGTH ? runs->run[i][at + 1] + 1 : WORLD_LENGTH) : 0;
    }
}

/* Returns the cost of a fixed draft: each drafter in order adds its number of tokens after the existing ones. */
static inline double world_fixed_cost(const struct world *w, const struct world_runs *runs, const struct world_fixed *fixed)
{
    double cost = 0;
    for (int text = 0; text < w->texts; text++) {
        const int end = w->begins[text + 1];
        for (int at = w->begins[text]; at < end;) {
            int drafted = 0, accepted = 0, room = end - at - 1;
            for (int stage = 0; stage < fixed->stages && drafted < room; stage++) {
                const struct world_drafter *d = &w->drafter[fixed->order[stage]];
                int wanted = fixed->length[stage] < room - drafted ? fixed->length[stage] : room - drafted;
                cost += d->cost * (d->looks_up ? 1 : wanted);
                if (!d->offers[at + drafted])
                    continue;
                if (accepted == drafted) {
                    int right = runs->run[fixed->order[stage]][at + drafted];
                    accepted += right < wanted ? right : wanted;
                }
                drafted += wanted;
            }
            cost += (double)w->verify[(size_t)at * WORLD_ROWS + (size_t)drafted];
            at += 1 + accepted;
        }
    }
    return cost;
}

struct world_best { struct world_fixed best; double none; long tried; };

static inline void world_try(const struct world *w, const struct world_runs *runs, struct world_fixed *fixed, int left,
                             int used, struct world_best *out)
{
    fixed->cost = world_fixed_cost(w, runs, fixed);
    out->tried++;
    if (!fixed->stages)
        out->none = fixed->cost;
    if (out->tried == 1 || fixed->cost < out->best.cost)
        out->best = *fixed;
    for (int i = 0; i < w->drafters && left; i++) {
        if (used >> i & 1)
            continue;
        fixed->order[fixed->stages++] = i;
        for (int n = 1; n <= left; n++) {
            fixed->length[fixed->stages - 1] = n;
            world_try(w, runs, fixed, left - n, used | 1 << i, out);
        }
        fixed->stages--;
    }
}

/* Finds the best of all orders and lengths up to 8 in total, including no draft; `max` < 8 for a quick search. */
static inline void world_best(const struct world *w, int max, struct world_best *out)
{
    struct world_runs runs = {{NULL}};
    struct world_fixed fixed = {.stages = 0};
    *out = (struct world_best){.tried = 0};
    world_runs_make(&runs, w);
    world_try(w, &runs, &fixed, max, 0, out);
    for (int i = 0; i < w->drafters; i++)
        free(runs.run[i]);
}

/* ---- the loop ---- */

struct world_tally {
    double cost, drafting;
    long iterations, drafted, accepted, tokens;
    long steps[WORLD_DRAFTERS], levels[WORLD_DRAFTERS], verified[WORLD_DRAFTERS];
};

struct world_loop {
    const struct world *w;
    struct policy *policy;
    struct draft_tree tree;
    bool on_way[SHAPE_NODES_MAX];       /* of each node: it and its ancestors equal the text */
    struct draft_share share[WORLD_DRAFTERS];
    struct world_random noise;
    int at, end;                        /* position after the root, and end of the text */
    struct world_tally *out;
};

static inline int32_t world_token(const struct world *w, int at)
{
    return (int32_t)(WORLD_VOCAB * world_unit(w->seed, 3, (uint64_t)at));
}

/* Returns the token that a drafter writes at a position; rank 0 is its best. */
static inline int32_t world_guess(const struct world_loop *loop, int drafter, int at, int rank, bool on_way, bool *right)
{
    int32_t token = world_token(loop->w, at);
    *right = on_way && loop->w->drafter[drafter].right[at] == 1 + rank;
    if (*right)
        return token;
    int32_t other = (int32_t)(WORLD_VOCAB * world_unit(loop->w->seed, 20 + (uint64_t)drafter % 2, (uint64_t)(at * 64 + rank)));
    return other == token ? (other + 1) % WORLD_VOCAB : other;
}

static inline int world_extend_leaf(struct world_loop *loop, int drafter, int leaf, int siblings, int tokens)
{
    const struct world_drafter *d = &loop->w->drafter[drafter];
    int depth = leaf < 0 ? 0 : loop->tree.depth[leaf], before = loop->tree.nodes;
    bool way = leaf < 0 || loop->on_way[leaf];
    if (loop->at + depth >= loop->end || !d->offers[loop->at + depth])
        return 0;
    for (int rank = 0; rank < siblings; rank++) {
        int parent = leaf;
        bool on_way = way;
        for (int level = 0; level < tokens; level++) {
            int at = loop->at + depth + level, nodes = loop->tree.nodes;
            bool right;
            int32_t token = world_guess(loop, drafter, at, level ? 0 : rank, on_way, &right);
            float said = d->said[at] * (rank && !level ? 0.3f : 1);
            parent = draft_tree_add(&loop->tree, parent, token, isnan(said) ? NAN : logf(said), drafter);
            if (parent < 0)
                return loop->tree.nodes - before;
            if (loop->tree.nodes > nodes) {
                loop->tree.match[parent] = d->match[at];
                loop->on_way[parent] = right;
            }
            on_way = loop->on_way[parent];
        }
    }
    return loop->tree.nodes - before;
}

static inline double world_seen(struct world_loop *loop, double cost)
{
    double seen = 0.01 * cost * exp(loop->w->noise * world_normal(&loop->noise));
    return loop->w->outliers > 0 && world_draw(&loop->noise) < loop->w->outliers ? 20 * seen : seen;
}

static inline int world_extend(struct world_loop *loop, const struct step *step)
{
    const struct world_drafter *d = &loop->w->drafter[step->drafter];
    struct draft_share *share = &loop->share[step->drafter];
    int added = 0, tokens = step->tokens, leaves = 0;
    for (int i = 0; i < step->leaves; i++) {
        int room = loop->end - loop->at - 1 - (step->leaf[i].node < 0 ? 0 : loop->tree.depth[step->leaf[i].node]);
        leaves += room > 0;
        tokens = room > 0 && room < tokens ? room : tokens;
    }
    if (!leaves || tokens < 1)
        return 0;
    for (int i = 0; i < step->leaves; i++)
        if (loop->at + (step->leaf[i].node < 0 ? 0 : loop->tree.depth[step->leaf[i].node]) < loop->end - 1)
            added += world_extend_leaf(loop, step->drafter, step->leaf[i].node, step->leaf[i].siblings, tokens);
    double cost = d->cost * (d->looks_up ? 1 : tokens);
    loop->out->cost += cost;
    loop->out->drafting += cost;
    share->steps++;
    share->levels += tokens;
    share->proposed += added;
    share->seconds += world_seen(loop, cost);
    return added;
}

static inline void world_keep(struct world_loop *loop, const int32_t *keep, int kept)
{
    bool on_way[SHAPE_NODES_MAX];
    for (int i = 0; i < kept; i++)
        on_way[i] = loop->on_way[keep[i]];
    assert_int_equal(draft_tree_keep(&loop->tree, keep, kept), 0);
    memcpy(loop->on_way, on_way, sizeof on_way);
}

/* Follows the reviewer's tokens through the nodes below a leaf as long as they agree. */
static inline int world_review(struct world_loop *loop, const struct step *step, int *agreed)
{
    const struct world_drafter *d = &loop->w->drafter[step->drafter];
    struct draft_share *share = &loop->share[step->drafter];
    struct draft_tree *tree = &loop->tree;
    int32_t keep[SHAPE_NODES_MAX];
    int at = step->leaf[0].node, kept = 0, below = 0, added = 0, first = at + 1;
    bool way[SHAPE_NODES_MAX] = {false}, under[SHAPE_NODES_MAX] = {false};
    for (int node = first; node < tree->nodes; node++) {
        under[node] = tree->parent[node] == step->leaf[0].node || (tree->parent[node] >= first && under[tree->parent[node]]);
        below += under[node];
    }
    *agreed = 0;
    for (bool more = true; more;) {
        int depth = at < 0 ? 0 : tree->depth[at];
        bool right;
        int32_t token = world_guess(loop, step->drafter, loop->at + depth, 0, at < 0 || loop->on_way[at], &right);
        more = false;
        for (int node = first; node < tree->nodes && !more; node++)
            if (tree->parent[node] == at && tree->token[node] == token) {
                tree->reviewer[node] = step->drafter;
                tree->log_probability[node] = logf(d->said[loop->at + depth]);
                way[node] = more = true;
                at = node;
                ++*agreed;
            }
    }
    for (int node = 0; node < tree->nodes; node++)
        if (!under[node] || way[node]) {
            at = node == at ? kept : at;
            keep[kept++] = node;
        }
    world_keep(loop, keep, kept);
    if (loop->at + (at < 0 ? 0 : tree->depth[at]) < loop->end - 1)
        added = world_extend_leaf(loop, step->drafter, at, 1, 1);
    loop->out->cost += d->cost;
    loop->out->drafting += d->cost;
    share->steps++;
    share->levels++;
    share->reviewed += below;
    share->proposed += added;
    share->seconds += world_seen(loop, d->cost);
    return added;
}

static inline void world_draft(struct world_loop *loop)
{
    struct draft_view view = {.tree = &loop->tree, .room = loop->end - loop->at - 1};
    draft_tree_clear(&loop->tree);
    memset(loop->share, 0, sizeof loop->share);
    for (; view.steps < 256; view.steps++) {
        struct step step = loop->policy->class->next(loop->policy, &view);
        view.added = view.agreed = 0;
        if (step.kind == STEP_STOP)
            break;
        if (step.kind == STEP_KEEP) {
            world_keep(loop, step.keep, step.kept);
            continue;
        }
        assert_in_range(step.drafter, 0, loop->w->drafters - 1);
        loop->out->steps[step.drafter]++;
        loop->out->levels[step.drafter] += step.kind == STEP_REVIEW ? 1 : step.tokens;
        view.added = step.kind == STEP_REVIEW ? world_review(loop, &step, &view.agreed) : world_extend(loop, &step);
    }
    assert_true(view.steps < 256);
}

static inline void world_iterate(struct world_loop *loop)
{
    const struct world *w = loop->w;
    const struct draft_tree *tree = &loop->tree;
    uint8_t kept[1 + SHAPE_NODES_MAX] = {1};
    int32_t token[WORLD_ROWS];
    int accepted = 0;
    world_draft(loop);
    for (int node = 0; node < tree->nodes; node++) {
        kept[1 + node] = loop->on_way[node];
        accepted += loop->on_way[node];
        loop->share[tree->drafter[node]].verified++;
        loop->share[tree->drafter[node]].accepted += loop->on_way[node];
        loop->out->verified[tree->drafter[node]]++;
    }
    double verify = (double)w->verify[(size_t)loop->at * WORLD_ROWS + (size_t)tree->nodes];
    struct outcome outcome = {.drafted = tree->nodes, .accepted = accepted, .emitted = accepted + 1, .token = token,
                              .moe_layers = w->experts ? WORLD_LAYERS : 0, .top_k = w->top_k, .tree = tree, .kept = kept,
                              .share = loop->share, .verify_s = world_seen(loop, verify)};
    for (int i = 0; i <= accepted; i++)
        token[i] = world_token(w, loop->at + i);
    for (int i = 0; i < w->drafters; i++)
        outcome.draft_s += loop->share[i].seconds;
    outcome.iteration_s = outcome.draft_s + outcome.verify_s;
    /* experts of the root and of the accepted tokens; the root is at position at - 1 */
    int from = loop->at > 0 ? loop->at - 1 : 0;
    if (w->experts)
        outcome.expert = w->expert + (size_t)from * (size_t)(WORLD_LAYERS * w->top_k);
    loop->out->cost += verify;
    loop->out->iterations++;
    loop->out->drafted += tree->nodes;
    loop->out->accepted += accepted;
    loop->out->tokens += accepted + 1;
    if (loop->policy->class->observe)
        loop->policy->class->observe(loop->policy, &outcome);
    loop->at += accepted + 1;
}

static inline void world_run(const struct world *w, const char *name, struct world_tally *out)
{
    struct shape *shape = NULL;
    struct world_loop loop = {.w = w, .noise = {w->seed + 12345 + w->luck, 0}, .out = out};
    struct err err = {0};
    *out = (struct world_tally){.cost = 0};
    if (shape_open(&shape, NULL, &err) || draft_tree_init(&loop.tree, shape->room, &err))
        fail_msg("%s", err.text);
    const struct policy_setup setup = {.drafters = w->drafters, .drafter = w->known, .draft_length = DRAFT_LENGTH_NONE,
                                       .max_length = 64, .chains = w->chains, .shape = shape, .experts = w->experts,
                                       .top_k = w->top_k};
    if (policy_open(&loop.policy, name, &setup, &err))
        fail_msg("%s: %s", name, err.text);
    for (int text = 0; text < w->texts; text++) {
        if (loop.policy->class->begin)
            loop.policy->class->begin(loop.policy, &(struct policy_text){
                .sequence = text, .task = w->task ? w->task[text] : NULL});
        loop.at = w->begins[text];
        loop.end = w->begins[text + 1];
        while (loop.at < loop.end)
            world_iterate(&loop);
    }
    assert_int_equal(out->tokens, w->tokens);
    policy_close(&loop.policy);
    shape_close(&shape);
    draft_tree_free(&loop.tree);
}

#endif
