/* Predicts how useful an expert will be, from the number of tokens of each verification that wanted it: Algorithm 1 of
 * MoE-SpAc (arXiv 2603.09983), one expert, one step. f is its activation frequency: the number of tokens in this step that
 * the router sent to it. `before` is f of the step before.
 *
 *     delta = f - before
 *     level   min(K, level + 1) where delta >= up;  max(0, level - 1) where -delta >= down;  else as it was         (eq. 6)
 *     up      floor((1 - lambda) up + lambda delta) where delta > 0;  down likewise with -delta where delta < 0
 *
 * Both boundaries begin at floor(gamma / 2). Taken literally the floor keeps a boundary from ever rising while lambda (delta
 * - boundary) < 1, which with lambda 0.1 and gamma 8 is always: boundaries fall 4, 3, 2, 1 and stay at 1. The variants:
 *
 *   FLOOR   as printed. The floor is computed exactly: lambda counts in millionths
 *   REAL    moekit's own: boundaries are real numbers, and delta is compared with their floors
 *   FIXED   boundaries do not move ("w/o AdaBC" in section 4.4: up 3, down 1)
 *   state_signal    delta = f - level, as in the released code, with fixed boundaries up 5, down 1
 *
 * The paper does not define `before` at the first step; here it is 0, and it is kept from text to text. */
#ifndef MOE_CACHE_UTILITY_RULE_H
#define MOE_CACHE_UTILITY_RULE_H

#include <stdbool.h>
#include <stdint.h>

enum utility_boundaries { UTILITY_FLOOR, UTILITY_REAL, UTILITY_FIXED };

struct utility_rule {
    int K;                      /* the highest level */
    int lambda;                 /* in millionths */
    enum utility_boundaries boundaries;
    bool state_signal;
};

struct utility_expert {
    int32_t level, before;      /* 0 .. K; activation frequency in the step before */
    double up, down;            /* boundaries; whole numbers under FLOOR */
};

/* Returns the new boundary after a change. Inline, because it runs for each expert of each layer of each step. */
static inline double utility_boundary(const struct utility_rule *rule, double boundary, int change)
{
    if (rule->boundaries == UTILITY_REAL)
        return boundary + rule->lambda * 1e-6 * (change - boundary);
    return (double)(((int64_t)(1000000 - rule->lambda) * (int64_t)boundary + (int64_t)rule->lambda * change) / 1000000);
}

static inline void utility_step(const struct utility_rule *rule, struct utility_expert *expert, int frequency)
{
    int delta = frequency - (rule->state_signal ? expert->level : expert->before);
    int up = (int)expert->up, down = (int)expert->down;
    if (delta >= up)
        expert->level += expert->level < rule->K;
    else if (-delta >= down)
        expert->level -= expert->level > 0;
    if (rule->boundaries != UTILITY_FIXED) {
        if (delta > 0)
            expert->up = utility_boundary(rule, expert->up, delta);
        else if (delta < 0)
            expert->down = utility_boundary(rule, expert->down, -delta);
    }
    expert->before = frequency;
}

#endif
