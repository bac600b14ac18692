#include "common/policy/plan.h"

#include <math.h>
#include <string.h>

static const double negligible = 1e-9;      /* bounds ignore later tokens once fewer than this are expected */

struct search {
    const struct plan_setup *setup;
    int order[PLAN_DRAFTERS_MAX], drafters;
    int count[PLAN_DRAFTERS_MAX];
    double chance_max[PLAN_DRAFTERS_MAX], token_min[PLAN_DRAFTERS_MAX];     /* maximum and minimum over the drafters
                                                                             * order[at], order[at + 1], ... */
    double tail[PLAN_DRAFTERS_MAX];     /* expected tokens of an endless chain at probability chance_max */
    double verify_min[PLAN_TOKENS_MAX + 2];     /* lowest cost of a forward over the root and at least this many tokens */
    double floor;                       /* only plans above this value are of interest */
    struct plan best;
};

/* Returns fmax(a, b); compilers do not expand fmax because of NaN. */
static inline double larger(double a, double b) { return a > b ? a : b; }

static double chance_at(const struct plan_drafter *drafter, int depth)
{
    return drafter->chance[depth < PLAN_DEPTHS ? depth - 1 : PLAN_DEPTHS - 1];
}

/* Sorts available drafters by acceptance probability, highest first; of equals the cheaper one first. */
static void sort(struct search *search)
{
    const struct plan_drafter *all = search->setup->drafter;
    for (int d = 0; d < search->setup->drafters; d++) {
        int at = search->drafters;
        if (all[d].out)
            continue;
        for (; at > 0; at--) {
            const struct plan_drafter *before = &all[search->order[at - 1]];
            double mine = all[d].chance[PLAN_DEPTHS - 1], other = before->chance[PLAN_DEPTHS - 1];
            if (mine < other || (!(mine > other) && all[d].token >= before->token))
                break;
            search->order[at] = search->order[at - 1];
        }
        search->order[at] = d;
        search->drafters++;
    }
}

/* Returns whether no plan needs `other`: for each of its tokens, one by `drafter` is at least as probable and costs no more. */
static bool dominates(const struct plan_drafter *drafter, const struct plan_drafter *other)
{
    bool better = drafter->step <= other->step && drafter->token <= other->token;
    for (int i = 0; i < PLAN_DEPTHS; i++)
        better &= drafter->chance[i] >= other->chance[i];
    return better;
}

/* Removes drafters that no plan needs from the order, and summarises the others for bounds. */
static void prepare(struct search *search)
{
    const struct plan_drafter *all = search->setup->drafter;
    int left = 0;
    for (int at = 0; at < search->drafters; at++) {
        bool needed = true;
        for (int before = 0; before < left; before++)
            needed &= !dominates(&all[search->order[before]], &all[search->order[at]]);
        if (needed)
            search->order[left++] = search->order[at];
    }
    search->drafters = left;
    for (int at = left - 1; at >= 0; at--) {
        const struct plan_drafter *drafter = &all[search->order[at]];
        search->chance_max[at] = at + 1 < left ? search->chance_max[at + 1] : 0;
        search->token_min[at] = at + 1 < left ? fmin(drafter->token, search->token_min[at + 1]) : drafter->token;
        for (int i = 0; i < PLAN_DEPTHS; i++)
            search->chance_max[at] = fmax(search->chance_max[at], drafter->chance[i]);
        search->tail[at] = search->chance_max[at] < 1 ? search->chance_max[at] / (1 - search->chance_max[at]) : INFINITY;
    }
    search->verify_min[search->setup->max + 1] = INFINITY;
    for (int length = search->setup->max; length >= search->setup->done; length--)
        search->verify_min[length] = fmin(search->setup->verify[length], search->verify_min[length + 1]);
}

static void consider(struct search *search, int done, double tokens, double cost)
{
    const struct plan_setup *setup = search->setup;
    double value = tokens - setup->rate * (cost + setup->verify[done]);
    if (value <= search->best.value)
        return;
    search->best = (struct plan){.value = value, .tokens = tokens, .cost = cost, .first = -1};
    for (int i = search->drafters - 1; i >= 0; i--) {
        search->best.count[search->order[i]] = search->count[i];
        if (search->count[i])
            search->best.first = search->order[i];
    }
}

/* Returns an upper bound of the value of any continuation by the drafters from order[at] on: all further tokens have the
 * highest probability of any of these, at the lowest cost of any. */
static double bound(const struct search *search, int at, int done, double survival, double tokens, double cost)
{
    const struct plan_setup *setup = search->setup;
    double chance = survival, value = -INFINITY;
    for (; done <= setup->max; done++) {
        value = larger(value, tokens - setup->rate * (cost + setup->verify[done]));
        chance *= search->chance_max[at];
        if (chance < negligible)
            break;
        tokens += chance;
        cost += search->token_min[at];
    }
    return value;
}

/* Returns whether no extension by the drafters from order[at] on can exceed the best plan so far. Tries a simple bound first;
 * the last drafter needs no tight bound, because searching its counts is as fast. */
static bool ends(const struct search *search, int at, int done, double survival, double tokens, double cost)
{
    const double value = larger(search->best.value, search->floor);
    const double rest = search->verify_min[done + 1] + search->token_min[at];
    if (tokens + survival * search->tail[at] - search->setup->rate * (cost + rest) <= value)
        return true;
    return at + 1 < search->drafters && bound(search, at, done, survival, tokens, cost) <= value;
}

/* Searches counts for the drafters from order[at] on, given the plan so far. */
static void go_on(struct search *search, int at, int done, double survival, double tokens, double cost)
{
    const struct plan_setup *setup = search->setup;
    if (at == search->drafters || done >= setup->max || ends(search, at, done, survival, tokens, cost))
        return;
    const struct plan_drafter *drafter = &setup->drafter[search->order[at]];
    search->count[at] = 0;
    go_on(search, at + 1, done, survival, tokens, cost);
    cost += drafter->step;
    for (int n = 1; done < setup->max; n++) {
        done++;
        survival *= chance_at(drafter, done);
        tokens += survival;
        cost += drafter->token;
        search->count[at] = n;
        consider(search, done, tokens, cost);
        if (done < setup->max && ends(search, at, done, survival, tokens, cost))
            break;
        go_on(search, at + 1, done, survival, tokens, cost);
    }
    search->count[at] = 0;
}

void plan_find_above(struct plan *out, const struct plan_setup *setup, double floor)
{
    struct search search = {.setup = setup, .floor = floor};
    search.best = (struct plan){.value = -setup->rate * setup->verify[setup->done], .first = -1};
    sort(&search);
    prepare(&search);
    go_on(&search, 0, setup->done, setup->survival, 0, 0);
    *out = search.best;
}

void plan_find(struct plan *out, const struct plan_setup *setup) { plan_find_above(out, setup, -INFINITY); }

void plan_weigh(struct plan *plan, const struct plan_setup *setup)
{
    struct search search = {.setup = setup};
    double survival = setup->survival;
    int done = setup->done;
    sort(&search);
    plan->tokens = plan->cost = 0;
    for (int at = 0; at < search.drafters; at++) {
        const struct plan_drafter *drafter = &setup->drafter[search.order[at]];
        plan->cost += plan->count[search.order[at]] ? drafter->step : 0;
        for (int n = 0; n < plan->count[search.order[at]]; n++) {
            survival *= chance_at(drafter, ++done);
            plan->tokens += survival;
            plan->cost += drafter->token;
        }
    }
    plan->value = plan->tokens - setup->rate * (plan->cost + setup->verify[done]);
}

double plan_best_rate(const struct plan_setup *setup)
{
    struct plan_setup root = *setup;
    struct plan plan;
    double rate = 1;
    for (int round = 0; round < 8; round++) {           /* Dinkelbach's method: each best plan determines the next rate */
        int length = 0;
        root.done = 0;
        root.survival = 1;
        root.rate = rate;
        plan_find(&plan, &root);
        for (int d = 0; d < setup->drafters; d++)
            length += plan.count[d];
        double next = (1 + plan.tokens) / (plan.cost + setup->verify[length]);
        if (next <= rate * (1 + 1e-6))
            break;
        rate = next;
    }
    return rate;
}
