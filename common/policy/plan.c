#include "common/policy/plan.h"

#include <string.h>

struct search {
    const struct plan_setup *setup;
    int order[PLAN_DRAFTERS_MAX], drafters;
    int count[PLAN_DRAFTERS_MAX];
    double best_chance;
    struct plan best;
};

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
        for (int i = 0; i < PLAN_DEPTHS; i++)
            search->best_chance = all[d].chance[i] > search->best_chance ? all[d].chance[i] : search->best_chance;
    }
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

/* Returns an upper bound of the value of any continuation: all further tokens have the highest probability of any drafter, at
 * no cost. */
static double bound(const struct search *search, int done, double survival, double tokens, double cost)
{
    const struct plan_setup *setup = search->setup;
    int left = setup->max - done;
    double chance = survival;
    for (int i = 0; i < left && chance > 1e-4; i++)
        tokens += chance *= search->best_chance;
    return tokens - setup->rate * (cost + setup->verify[done]);
}

/* Searches counts for the drafters from order[at] on, given the plan so far. */
static void go_on(struct search *search, int at, int done, double survival, double tokens, double cost)
{
    const struct plan_setup *setup = search->setup;
    if (at == search->drafters || done >= setup->max ||
        bound(search, done, survival, tokens, cost) <= search->best.value)
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
        if (bound(search, done, survival, tokens, cost) <= search->best.value)
            break;
        go_on(search, at + 1, done, survival, tokens, cost);
    }
    search->count[at] = 0;
}

void plan_find(struct plan *out, const struct plan_setup *setup)
{
    struct search search = {.setup = setup};
    search.best = (struct plan){.value = -setup->rate * setup->verify[setup->done], .first = -1};
    sort(&search);
    go_on(&search, 0, setup->done, setup->survival, 0, 0);
    *out = search.best;
}

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
