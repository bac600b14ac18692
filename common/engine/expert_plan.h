/* Which experts a forward may load: the engine's side of an expert budget (MoE-Spec section 3). Others fill it. */
#ifndef MOE_ENGINE_EXPERT_PLAN_H
#define MOE_ENGINE_EXPERT_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/route.h"

enum plan_ranking {
    PLAN_STATIC,         /* order[] says which; a token's result depends on that token alone */
    PLAN_ROUTER,         /* the scores of this forward say which; a token's result depends on its neighbours, here and below */
    PLAN_PATH,           /* the same, each row's scores counting as batch.row_weight says (AcceptMoE, arXiv 2608.02989) */
    PLAN_ORACLE,         /* what the experts of the natural routing add says which (MoE-Spec eq. 6): all of them are computed */
    PLAN_PRINTED         /* the same as the equation is printed: all experts add to all rows (engine/oracle.h) */
};

struct expert_plan {
    enum plan_ranking ranking;
    enum budget_mode mode;
    int moe_layers, experts;
    const int32_t *budget;       /* [moe_layers], each 1 .. experts */
    const int32_t *order;        /* PLAN_STATIC: [moe_layers][experts], best first; else NULL */
};

#endif
