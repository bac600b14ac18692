/* Tests of acceptance rules in a world of seven tokens whose distributions can be enumerated: target and draft are tables of
 * logits by position and previous token. Three tokens are decoded repeatedly, and the output is compared with its exact
 * distribution by a chi-square test.
 *
 * The distributions, the rules and known mistakes are implemented here independently of the tested code, as directly as they
 * are defined: a rule must pass the test, and each mistake must fail the same test. */
#ifndef MOE_TESTS_DISTRIBUTION_H
#define MOE_TESTS_DISTRIBUTION_H

#include "tests/unit/unit.h"

#include <math.h>

#include "common/verify/acceptance.h"
#include "kernels/plain/propose.h"

enum {
    V = 7, TEXT = 3, OUTCOMES = V * V * V, LEVELS = 3, DRAFT_MAX = 24, POSITIONS = TEXT + LEVELS + 1,
    ROOT_POSITION = 100
};

struct world {
    float target[POSITIONS][V + 1][V], draft[POSITIONS][V + 1][V];       /* [position][previous token; V: the root][token] */
};

enum origin {
    DRAWN,          /* drawn without replacement from the draft's distribution */
    FIXED,          /* the draft's most likely tokens */
    MIXED,          /* the first fixed, the others drawn from the remaining distribution */
    COUPLED         /* drawn with the target's noise */
};

struct drawing {
    const char *name;
    enum origin origin;
    int width[LEVELS];                  /* children of a node, by depth */
    struct sample_filter filter;        /* the draft's filter */
};

/* A deliberate mistake in a rule. */
enum mistake {
    NONE,
    RAW_BONUS,              /* bonus token drawn from softmax(logits) without temperature and filter */
    BY_INDEX,               /* residual of two sorted, truncated lists computed entry by entry */
    WITH_REPLACEMENT,       /* children drawn without replacement, but judged as if with replacement */
    NO_RESIDUAL,            /* after a rejection the token is drawn from p, not from the residual */
    UNFILTERED,             /* p without the filter */
    DROPPED,                /* drawn children that the draft finds unlikely are dropped */
    DROPPED_AS_FIXED,       /* the same, but judged as if they had not been drawn: this is NOT a mistake */
    SAME_NOISE,             /* coupled: the same noise for all positions */
    PARENT_ROW,             /* coupled: the token after a node is computed from its parent's logits */
    LENIENT,                /* coupled: any child that passes the filter is accepted */
    SWAPPED,                /* typical: epsilon and delta exchanged */
    RAW_ENTROPY,            /* typical: entropy of softmax(logits) without temperature and filter */
    FIRST_PATH,             /* typical: keeps the path of the first child, not the longest path */
    SAMPLED_BONUS           /* typical: the last token is drawn */
};

struct draft {
    struct reject_draft view;
    int32_t token[DRAFT_MAX], parent[DRAFT_MAX], depth[DRAFT_MAX];
    const float *proposal[DRAFT_MAX];
    float logits[(1 + DRAFT_MAX) * V];
};

struct random { uint64_t state; };

static inline uint64_t random_word(struct random *random)
{
    uint64_t z = random->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline double random_uniform(struct random *random) { return ((double)(random_word(random) >> 11) + 0.5) * 0x1p-53; }

/* State of one cell of the grid. */
struct cell {
    const struct acceptance *rule;      /* NULL: the implementation in this file, of `family`, with its mistake */
    char family;                        /* 'r'ejection, 'c'oupled, 't'ypical */
    enum mistake mistake;
    struct drawing shape;
    struct sample_filter filter;
    double epsilon, delta;
    const struct world *world;
    float q[POSITIONS][V + 1][V];                      /* the draft's distributions */
    double p[POSITIONS][V + 1][V];                     /* the target's */
    double expected[OUTCOMES];
    struct random random;
    uint64_t key;
};

static inline void world_make(struct world *world, uint64_t seed)
{
    struct random random = {seed};
    for (int at = 0; at < POSITIONS; at++)
        for (int last = 0; last <= V; last++)
            for (int v = 0; v < V; v++) {
                double common = 0, own = 0;
                for (int i = 0; i < 4; i++) {
                    common += 2 * random_uniform(&random) - 1;
                    own += 2 * random_uniform(&random) - 1;
                }
                world->target[at][last][v] = (float)(0.9 * common);
                world->draft[at][last][v] = (float)(0.6 * common + 0.5 * own);
            }
    for (int at = 0; at < POSITIONS; at++)             /* some tokens get probability 0 */
        for (int last = 0; last <= V; last++)
            if (random_word(&random) % 4 == 0)
                world->target[at][last][random_word(&random) % V] = -INFINITY;
}

/* Applies temperature, sorting, top-k, top-p and min-p, directly by their definitions. */
static inline void plain_distribution(const float *logit, const struct sample_filter *filter, double *out)
{
    int order[V], count = V;
    double weight[V], total = 0, mass = 0, sum = 0, max = -INFINITY;
    for (int v = 0; v < V; v++)
        max = logit[v] > max ? logit[v] : max;
    for (int v = 0; v < V; v++) {
        int position = v;
        weight[v] = exp((logit[v] - max) / filter->temperature);
        out[v] = 0;
        for (; position > 0 && weight[order[position - 1]] < weight[v]; position--)
            order[position] = order[position - 1];
        order[position] = v;
    }
    if (filter->top_k && filter->top_k < V)
        count = filter->top_k;
    for (int at = 0; at < count; at++)
        total += weight[order[at]];
    for (int at = 0; at < count; at++) {
        if (at && filter->top_p < 1 && mass >= filter->top_p)
            break;
        mass += weight[order[at]] / total;
        if (weight[order[at]] >= filter->min_p * weight[order[0]])
            sum += out[order[at]] = weight[order[at]];
    }
    for (int v = 0; v < V; v++)
        out[v] /= sum;
}

static inline int pick(const double *weight, double uniform)
{
    double total = 0, sum = 0;
    int last = 0;
    for (int v = 0; v < V; v++)
        total += weight[v];
    for (int v = 0; v < V; v++)
        if (weight[v] > 0) {
            last = v;
            if ((sum += weight[v]) > uniform * total)
                break;
        }
    return last;
}

/* ---- drafts ---- */

/* Returns whether `token` is not yet a child of `parent`. */
static inline bool draft_lacks(const struct draft *draft, int parent, int32_t token)
{
    for (int node = 0; node < draft->view.nodes; node++)
        if (draft->parent[node] == parent && draft->token[node] == token)
            return false;
    return true;
}

static inline void draft_put(struct draft *draft, int parent, int32_t token, const float *proposal)
{
    int node = draft->view.nodes++;
    draft->token[node] = token;
    draft->parent[node] = parent;
    draft->depth[node] = parent < 0 ? 1 : draft->depth[parent] + 1;
    draft->proposal[node] = proposal;
}

static inline void draft_begin(struct draft *draft)
{
    draft->view = (struct reject_draft){0, draft->token, draft->parent, draft->proposal};
}

/* Returns the distribution from which the children of `parent` are drawn, by position and previous token. */
static inline const float *draft_source(const struct cell *cell, const struct draft *draft, int position, int32_t last,
                                        int parent)
{
    return parent < 0 ? cell->q[position][last] : cell->q[position + draft->depth[parent]][draft->token[parent]];
}

static inline int32_t draft_best(const struct draft *draft, int parent, const float *q)
{
    int32_t best = -1;
    for (int32_t v = 0; v < V; v++)
        if (draft_lacks(draft, parent, v) && (best < 0 || q[v] > q[best]))
            best = v;
    return best;
}

static inline void draft_children(struct cell *cell, struct draft *draft, int position, int32_t last, int parent, int width)
{
    const float *q = draft_source(cell, draft, position, last, parent);
    const int depth = parent < 0 ? 0 : draft->depth[parent];
    if (cell->shape.origin == COUPLED) {
        int32_t kept[V], token[V];
        double value[V];
        const struct sample_draw draw = {cell->key, (uint32_t)(ROOT_POSITION + position + depth + 1), 0, 0};
        const float *logit = cell->world->draft[position + depth][parent < 0 ? last : draft->token[parent]];
        int count = propose_tokens(logit, V, &cell->shape.filter, &draw, width, kept, value, token, NULL);
        for (int i = 0; i < count; i++)
            draft_put(draft, parent, token[i], q);
        return;
    }
    for (int i = 0; i < width; i++) {
        double rest[V], mass = 0;
        if (cell->shape.origin == FIXED || (cell->shape.origin == MIXED && i == 0)) {
            draft_put(draft, parent, draft_best(draft, parent, q), NULL);
            continue;
        }
        for (int v = 0; v < V; v++)
            mass += rest[v] = draft_lacks(draft, parent, v) ? (double)q[v] : 0;
        if (!(mass > 0))
            break;
        int32_t token = pick(rest, random_uniform(&cell->random));
        if ((cell->mistake == DROPPED || cell->mistake == DROPPED_AS_FIXED) && q[token] < 0.15f)
            continue;
        draft_put(draft, parent, token, q);
    }
}

/* Sets the target's logits after the root and each node. */
static inline void draft_fill(const struct cell *cell, struct draft *draft, int position, int32_t last)
{
    memcpy(draft->logits, cell->world->target[position][last], V * sizeof *draft->logits);
    for (int node = 0; node < draft->view.nodes; node++)
        memcpy(draft->logits + (1 + node) * V, cell->world->target[position + draft->depth[node]][draft->token[node]],
               V * sizeof *draft->logits);
}

static inline void draft_make(struct cell *cell, struct draft *draft, int position, int32_t last)
{
    int begin = -1, end = 0;
    draft_begin(draft);
    for (int level = 0; level < LEVELS && cell->shape.width[level]; level++) {
        for (int parent = begin; parent < end; parent++)
            draft_children(cell, draft, position, last, parent, cell->shape.width[level]);
        begin = end;
        end = draft->view.nodes;
    }
    draft_fill(cell, draft, position, last);
}

/* ---- the rules, with their mistakes ---- */

static inline void sort_down(double *value)
{
    for (int i = 1; i < V; i++)
        for (int at = i; at > 0 && value[at] > value[at - 1]; at--) {
            double other = value[at];
            value[at] = value[at - 1];
            value[at - 1] = other;
        }
}

/* Computes r <- norm(max(r - q, 0)), or a wrong result for a mistake. */
static inline void plain_residual(double *r, const double *q, enum mistake mistake)
{
    double a[V], b[V], sum = 0, more[V];
    if (mistake == NO_RESIDUAL)
        return;
    memcpy(a, r, sizeof a);
    memcpy(b, q, sizeof b);
    if (mistake == BY_INDEX) {
        int order[V] = {0};
        for (int v = 0; v < V; v++) {
            int position = v;
            for (; position > 0 && r[order[position - 1]] < r[v]; position--)
                order[position] = order[position - 1];
            order[position] = v;
        }
        sort_down(a);
        sort_down(b);
        for (int i = 0; i < V; i++)
            more[order[i]] = fmax(a[i] - b[i], 0);
    } else {
        for (int v = 0; v < V; v++)
            more[v] = fmax(a[v] - b[v], 0);
    }
    for (int v = 0; v < V; v++)
        sum += more[v];
    for (int v = 0; v < V && sum > 0; v++)
        r[v] = more[v] / sum;
}

static inline int plain_rejection(struct cell *cell, const struct draft *draft, int32_t *emitted)
{
    const struct sample_filter raw = {1, 1, 0, 0}, loose = {cell->filter.temperature, 1, 0, 0};
    int at = -1, accepted = 0;
    for (;;) {
        double p[V], q[V], sum;
        const float *logit = draft->logits + (at + 1) * V;
        int found = -1, children = 0;
        plain_distribution(logit, cell->mistake == UNFILTERED ? &loose : &cell->filter, p);
        for (int node = 0; node < draft->view.nodes && found < 0; node++) {
            if (draft->parent[node] != at)
                continue;
            children++;
            bool drawn = draft->proposal[node] && cell->mistake != DROPPED_AS_FIXED;
            for (int v = 0; v < V; v++)
                q[v] = drawn ? (double)draft->proposal[node][v] : v == draft->token[node];
            for (int other = 0; other < node && drawn && cell->mistake != WITH_REPLACEMENT; other++)
                if (draft->parent[other] == at)
                    q[draft->token[other]] = 0;
            sum = 0;
            for (int v = 0; v < V; v++)
                sum += q[v];
            for (int v = 0; v < V; v++)
                q[v] /= sum;
            if (random_uniform(&cell->random) * q[draft->token[node]] < p[draft->token[node]])
                found = node;
            else
                plain_residual(p, q, cell->mistake);
        }
        if (found < 0) {
            if (cell->mistake == RAW_BONUS && !children)
                plain_distribution(logit, &raw, p);
            emitted[accepted] = pick(p, random_uniform(&cell->random));
            return accepted;
        }
        emitted[accepted++] = draft->token[at = found];
    }
}

static inline int plain_coupled(struct cell *cell, const struct draft *draft, int position, int32_t *emitted)
{
    int at = -1, accepted = 0;
    for (;;) {
        int32_t kept[V];
        const int position_of_noise = position + (cell->mistake == SAME_NOISE ? 0 : accepted);
        struct sample_draw draw = {cell->key, (uint32_t)(ROOT_POSITION + position_of_noise + 1), 0, 0};
        const int row = cell->mistake == PARENT_ROW && at >= 0 ? draft->parent[at] : at;
        const float *logit = draft->logits + (row + 1) * V;
        int32_t choice = sample_token(logit, V, &cell->filter, &draw, kept);
        int found = -1;
        double p[V];
        plain_distribution(logit, &cell->filter, p);
        for (int node = 0; node < draft->view.nodes && found < 0; node++)
            if (draft->parent[node] == at &&
                (cell->mistake == LENIENT ? p[draft->token[node]] > 0 : draft->token[node] == choice))
                found = node;
        emitted[accepted] = found < 0 ? choice : draft->token[found];
        if (found < 0)
            return accepted;
        accepted++;
        at = found;
    }
}

/* Judges all paths, from each node upwards: each path is kept as a whole or not. */
static inline int plain_typical(struct cell *cell, const struct draft *draft, int32_t *emitted)
{
    const struct sample_filter raw = {1, 1, 0, 0};
    const double epsilon = cell->mistake == SWAPPED ? cell->delta : cell->epsilon;
    const double delta = cell->mistake == SWAPPED ? cell->epsilon : cell->delta;
    double p[V], best_score = 0;
    int best = -1, length = 0;
    for (int node = 0; node < draft->view.nodes; node++) {
        double score = 0;
        bool kept = true;
        for (int at = node; at >= 0 && kept; at = draft->parent[at]) {
            double entropy = 0, h[V];
            const float *logit = draft->logits + (draft->parent[at] + 1) * V;
            plain_distribution(logit, &cell->filter, p);
            plain_distribution(logit, cell->mistake == RAW_ENTROPY ? &raw : &cell->filter, h);
            for (int v = 0; v < V; v++)
                entropy -= h[v] > 0 ? h[v] * log(h[v]) : 0;
            kept = p[draft->token[at]] > fmin(epsilon, delta * exp(-entropy));
            score += log(p[draft->token[at]]);
        }
        bool better = cell->mistake == FIRST_PATH ? best < 0 || draft->parent[node] == best :
                      draft->depth[node] > length || (draft->depth[node] == length && score > best_score);
        if (kept && better) {
            best = node;
            best_score = score;
            length = draft->depth[node];
        }
    }
    for (int at = best, n = length; n-- > 0; at = draft->parent[at])
        emitted[n] = draft->token[at];
    plain_distribution(draft->logits + (best + 1) * V, &cell->filter, p);
    emitted[length] = 0;
    for (int v = 1; v < V; v++)
        if (p[v] > p[emitted[length]])
            emitted[length] = v;
    if (cell->mistake == SAMPLED_BONUS)
        emitted[length] = pick(p, random_uniform(&cell->random));
    return length;
}

/* ---- expected distributions ---- */

static inline void expect_target(struct cell *cell)
{
    for (int code = 0; code < OUTCOMES; code++) {
        int a = code / (V * V), b = code / V % V, c = code % V;
        cell->expected[code] = cell->p[0][V][a] * cell->p[1][a][b] * cell->p[2][b][c];
    }
}

/* Typical acceptance is deterministic for a given draft: all drafts are enumerated with their probabilities.
 * law[position][last][code] is the distribution of the TEXT - position following tokens. */
struct typical_law { double law[TEXT + 1][V + 1][OUTCOMES]; };

static inline void count_draft(struct cell *cell, struct typical_law *out, struct draft *draft, int position, int32_t last,
                               double mass)
{
    int32_t emitted[DRAFT_MAX + 1];
    int code = 0, room = 1;
    draft_fill(cell, draft, position, last);
    int count = plain_typical(cell, draft, emitted) + 1;
    count = count < TEXT - position ? count : TEXT - position;
    for (int i = 0; i < count; i++)
        code = code * V + emitted[i];
    for (int i = position + count; i < TEXT; i++)
        room *= V;
    for (int rest = 0; rest < room; rest++)
        out->law[position][last][code * room + rest] += mass * out->law[position + count][emitted[count - 1]][rest];
}

/* Enumerates all ways of adding children; `from` is the node whose child number `child` is next. */
static inline void count_drafts(struct cell *cell, struct typical_law *out, struct draft *draft, int position, int32_t last,
                                int from, int child, double mass)
{
    const int level = from < 0 ? 0 : draft->depth[from];
    if (from >= draft->view.nodes || level == LEVELS || !cell->shape.width[level]) {
        count_draft(cell, out, draft, position, last, mass);
        return;
    }
    if (child == cell->shape.width[level]) {
        count_drafts(cell, out, draft, position, last, from + 1, 0, mass);
        return;
    }
    const float *q = draft_source(cell, draft, position, last, from);
    double rest = 0;
    for (int32_t v = 0; v < V; v++)
        rest += draft_lacks(draft, from, v) ? (double)q[v] : 0;
    for (int32_t v = 0; v < V; v++) {
        bool fixed = cell->shape.origin == FIXED;
        if (!draft_lacks(draft, from, v) || (fixed && v != draft_best(draft, from, q)))
            continue;
        draft_put(draft, from, v, q);
        count_drafts(cell, out, draft, position, last, from, child + 1, fixed ? mass : mass * (double)q[v] / rest);
        draft->view.nodes--;
    }
}

static inline void expect_typical(struct cell *cell)
{
    struct typical_law *out = calloc(1, sizeof *out);
    const enum mistake mistake = cell->mistake;
    struct draft draft;
    assert_non_null(out);
    cell->mistake = NONE;
    for (int last = 0; last <= V; last++)
        out->law[TEXT][last][0] = 1;
    for (int position = TEXT; position-- > 0;)
        for (int last = 0; last <= V; last++) {
            draft_begin(&draft);
            count_drafts(cell, out, &draft, position, last, -1, 0, 1);
        }
    memcpy(cell->expected, out->law[0][V], sizeof cell->expected);
    cell->mistake = mistake;
    free(out);
}

static inline void cell_prepare(struct cell *cell)
{
    for (int position = 0; position < POSITIONS; position++)
        for (int last = 0; last <= V; last++) {
            double q[V];
            plain_distribution(cell->world->draft[position][last], &cell->shape.filter, q);
            for (int v = 0; v < V; v++)
                cell->q[position][last][v] = (float)q[v];
            plain_distribution(cell->world->target[position][last], &cell->filter, cell->p[position][last]);
        }
    if (cell->family == 't')
        expect_typical(cell);
    else
        expect_target(cell);
}

/* ---- trials ---- */

struct tally {
    double z;                   /* chi-square minus its mean, in standard deviations of a normal variable */
    int freedom;
    long impossible;            /* outcomes of probability 0 */
    long other;                 /* coupled: texts that differ from sampling without a draft */
    long tried, accepted;       /* drafted first tokens */
};

/* Compares counts with probabilities. Chi-square is converted to a normal variable by Wilson and Hilferty, 1931: (X /
 * n)^(1/3) is nearly normal. Outcomes expected less than eight times are merged. Keeps the worst result of several
 * comparisons. */
static inline void tally_compare(const double *chance, const long *seen, int outcomes, long samples, struct tally *tally)
{
    double sum = 0, rare = 0, rarely = 0, z = 0;
    int bins = 0;
    for (int code = 0; code < outcomes; code++) {
        double expected = chance[code] * (double)samples;
        if (chance[code] < 1e-15)
            tally->impossible += seen[code];
        else if (expected < 8) {
            rare += expected;
            rarely += (double)seen[code];
        } else {
            sum += ((double)seen[code] - expected) * ((double)seen[code] - expected) / expected;
            bins++;
        }
    }
    if (rare > 0.5) {
        sum += (rarely - rare) * (rarely - rare) / (rare > 8 ? rare : 8);
        bins++;
    }
    double k = bins - 1;
    if (bins > 1)                       /* with a single bin any other outcome is impossible and is counted above */
        z = (cbrt(sum / k) - (1 - 2 / (9 * k))) / sqrt(2 / (9 * k));
    if (!tally->freedom || z > tally->z) {
        tally->freedom = bins - 1;
        tally->z = z;
    }
}

static inline int cell_accept(struct cell *cell, struct draft *draft, int position, int32_t *emitted)
{
    struct sample_draw draw = {cell->key, (uint32_t)(ROOT_POSITION + position), 0, 0};
    int32_t path[DRAFT_MAX];
    if (cell->rule)
        return acceptance_accept(cell->rule, &draft->view, draft->logits, &draw, path, emitted, NULL);
    return cell->family == 'r' ? plain_rejection(cell, draft, emitted) :
           cell->family == 'c' ? plain_coupled(cell, draft, position, emitted) : plain_typical(cell, draft, emitted);
}

/* Returns the text that sampling without a draft gives with this key. */
static inline int cell_alone(const struct cell *cell)
{
    int32_t last = V, kept[V];
    int code = 0;
    for (int position = 0; position < TEXT; position++) {
        struct sample_draw draw = {cell->key, (uint32_t)(ROOT_POSITION + position + 1), 0, 0};
        last = sample_token(cell->world->target[position][last], V, &cell->filter, &draw, kept);
        code = code * V + last;
    }
    return code;
}

static inline void cell_run(struct cell *cell, long samples, struct tally *tally)
{
    long seen[OUTCOMES] = {0};
    memset(tally, 0, sizeof *tally);
    for (long sample = 0; sample < samples; sample++) {
        int32_t emitted[DRAFT_MAX + 1], last = V;
        int position = 0, code = 0;
        cell->key = random_word(&cell->random);
        while (position < TEXT) {
            struct draft draft;
            draft_make(cell, &draft, position, last);
            int accepted = cell_accept(cell, &draft, position, emitted);
            tally->tried++;
            tally->accepted += accepted > 0;
            for (int i = 0; i <= accepted && position < TEXT; i++, position++)
                code = code * V + (last = emitted[i]);
        }
        seen[code]++;
        if (cell->family == 'c' && cell->mistake == NONE)
            tally->other += code != cell_alone(cell);
    }
    tally_compare(cell->expected, seen, OUTCOMES, samples, tally);
}

/* ---- the grid ---- */

struct grid_point {
    char family;
    enum mistake mistake;
    int shape, temperature, filter;     /* indices in the tables below */
};

static const struct drawing grid_shapes[] = {
    {"chain, drawn", DRAWN, {1, 1}, {1.2, 1, 0, 5}},
    {"tree, drawn", DRAWN, {3, 2}, {1.2, 1, 0, 0}},
    {"all children, drawn", DRAWN, {V, 2}, {1, 1, 0, 0}},
    {"chain, fixed", FIXED, {1, 1, 1}, {1, 1, 0, 0}},
    {"tree, fixed", FIXED, {3, 2}, {1, 1, 0, 0}},
    {"all children, fixed", FIXED, {V, 2}, {1, 1, 0, 0}},
    {"tree, fixed and drawn", MIXED, {3, 2}, {1.2, 1, 0, 0}},
    {"chain, coupled", COUPLED, {1, 1}, {0.9, 1, 0, 0}},
    {"tree, coupled", COUPLED, {3, 1}, {1, 0.9, 0, 0}},
    {"chain, all drawn", DRAWN, {1, 1}, {1.2, 1, 0, 0}},
    {"small tree, drawn", DRAWN, {2, 1}, {1, 1, 0, 0}},
};

enum {
    CHAIN_DRAWN, TREE_DRAWN, ALL_DRAWN, CHAIN_FIXED, TREE_FIXED, ALL_FIXED, TREE_MIXED, CHAIN_COUPLED, TREE_COUPLED,
    CHAIN_SPREAD, TREE_SMALL
};

static const double grid_temperatures[] = {0.5, 1, 1.3};
static const struct sample_filter grid_filters[] = {{1, 1, 0, 0}, {1, 1, 0, 4}, {1, 0.85, 0, 0}, {1, 1, 0.1, 0}};
static const char *const grid_filter_names[] = {"no filter", "top-k", "top-p", "min-p"};
enum { TEMPERATURES = 3, FILTERS = 4, NO_FILTER = 0, TOP_K, TOP_P, MIN_P };

/* Valid pairs of rule and shape; each is combined with all temperatures and filters. */
static const struct { char family; int shape; } grid_pairs[] = {
    {'r', CHAIN_DRAWN}, {'r', TREE_DRAWN}, {'r', ALL_DRAWN}, {'r', CHAIN_FIXED}, {'r', TREE_FIXED}, {'r', ALL_FIXED},
    {'r', TREE_MIXED}, {'r', CHAIN_COUPLED}, {'r', TREE_COUPLED},
    {'c', CHAIN_FIXED}, {'c', TREE_DRAWN}, {'c', ALL_FIXED}, {'c', TREE_COUPLED},
    {'t', CHAIN_SPREAD}, {'t', TREE_SMALL}, {'t', ALL_FIXED},
};
enum { PAIRS = sizeof grid_pairs / sizeof *grid_pairs, CELLS = PAIRS * TEMPERATURES * FILTERS };

/* The normal distribution has 6e-8 beyond 5.3 deviations: a correct rule fails in some cell once in 10^5 grids. */
#define GRID_LIMIT 5.3

static inline struct grid_point grid_point(int number)
{
    int pair = number / (TEMPERATURES * FILTERS);
    return (struct grid_point){grid_pairs[pair].family, NONE, grid_pairs[pair].shape, number / FILTERS % TEMPERATURES,
                               number % FILTERS};
}

/* Opens the tested rule of a point; the caller closes it. */
static inline struct acceptance *grid_rule(const struct grid_point *point)
{
    const char *name = point->family == 'r' ? "rejection" : point->family == 'c' ? "coupled" : "typical";
    struct acceptance_setup setup = {V, DRAFT_MAX, grid_filters[point->filter]};
    struct acceptance *rule = NULL;
    setup.filter.temperature = grid_temperatures[point->temperature];
    if (acceptance_open(&rule, name, &setup, NULL))
        return NULL;
    return rule;
}

enum grid_way {
    GRID_RULE,              /* the library's rule against its expected distribution */
    GRID_PLAIN,             /* the implementation in this file, with the point's mistake */
    GRID_TARGET             /* the library's rule against the target's distribution */
};

static inline void grid_run(const struct grid_point *point, const struct world *world, enum grid_way way, long samples,
                            struct tally *tally)
{
    struct acceptance *rule = way == GRID_PLAIN ? NULL : grid_rule(point);
    struct cell *cell = calloc(1, sizeof *cell);
    if (!cell || (way != GRID_PLAIN && !rule))
        abort();
    cell->rule = rule;
    cell->family = point->family;
    cell->mistake = point->mistake;
    cell->shape = grid_shapes[point->shape];
    cell->filter = grid_filters[point->filter];
    cell->filter.temperature = grid_temperatures[point->temperature];
    cell->epsilon = 0.09;
    cell->delta = 0.3;
    cell->world = world;
    cell->random.state = 1000003u * (uint64_t)point->shape + 10007u * (uint64_t)point->temperature + (uint64_t)point->filter;
    cell_prepare(cell);
    if (way == GRID_TARGET)
        expect_target(cell);
    cell_run(cell, samples, tally);
    free(cell);
    acceptance_close(&rule);
}

static inline bool grid_sees(const struct tally *tally) { return tally->z > GRID_LIMIT || tally->impossible || tally->other; }

/* Mistakes that must be detected: at T = 0.5, 1 and 1.3 with the given filter. */
static const struct { char family; enum mistake mistake; int shape, filter; const char *name; } grid_mistakes[] = {
    {'r', RAW_BONUS, CHAIN_DRAWN, TOP_K, "the last token from unfiltered logits"},
    {'r', RAW_BONUS, TREE_FIXED, TOP_P, "the last token from unfiltered logits"},
    {'r', BY_INDEX, CHAIN_DRAWN, TOP_K, "residuals by index across truncated lists"},
    {'r', BY_INDEX, TREE_DRAWN, NO_FILTER, "residuals by index across truncated lists"},
    {'r', WITH_REPLACEMENT, TREE_MIXED, MIN_P, "the rule with replacement for children drawn without"},
    {'r', NO_RESIDUAL, CHAIN_DRAWN, NO_FILTER, "no residual after a refusal"},
    {'r', NO_RESIDUAL, TREE_FIXED, MIN_P, "no residual after a refusal"},
    {'r', UNFILTERED, CHAIN_FIXED, TOP_K, "p without its filter"},
    {'r', DROPPED, CHAIN_DRAWN, NO_FILTER, "drawn children cut for their own probability"},
    {'r', DROPPED, TREE_DRAWN, TOP_P, "drawn children cut for their own probability"},
    {'c', SAME_NOISE, CHAIN_FIXED, NO_FILTER, "one noise for all positions"},
    {'c', SAME_NOISE, TREE_COUPLED, TOP_K, "one noise for all positions"},
    {'c', PARENT_ROW, CHAIN_FIXED, MIN_P, "the logits of the parent"},
    {'c', PARENT_ROW, TREE_COUPLED, TOP_P, "the logits of the parent"},
    {'c', LENIENT, TREE_DRAWN, NO_FILTER, "any child that the filter keeps"},
    {'t', SWAPPED, CHAIN_SPREAD, NO_FILTER, "epsilon and delta exchanged"},
    {'t', SWAPPED, TREE_SMALL, NO_FILTER, "epsilon and delta exchanged"},
    {'t', FIRST_PATH, TREE_SMALL, NO_FILTER, "the first path kept, not the longest"},
    {'t', SAMPLED_BONUS, CHAIN_SPREAD, MIN_P, "a drawn last token"},
};
enum { MISTAKES = sizeof grid_mistakes / sizeof *grid_mistakes };

static inline struct grid_point grid_mistake(int number, int temperature)
{
    return (struct grid_point){grid_mistakes[number].family, grid_mistakes[number].mistake, grid_mistakes[number].shape,
                               temperature, grid_mistakes[number].filter};
}

/* Writes the description of a point, for messages. */
static inline const char *grid_name(const struct grid_point *point, char *out, size_t room)
{
    snprintf(out, room, "%s, %s, T %g, %s, mistake %d",
             point->family == 'r' ? "rejection" : point->family == 'c' ? "coupled" : "typical", grid_shapes[point->shape].name,
             grid_temperatures[point->temperature], grid_filter_names[point->filter], (int)point->mistake);
    return out;
}

#endif
