/* Which experts a forward may load: the engine's side of an expert budget (MoE-Spec section 3). The caller fills it in. */
#ifndef MOE_ENGINE_EXPERT_PLAN_H
#define MOE_ENGINE_EXPERT_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/route.h"

enum plan_ranking {
    PLAN_STATIC,         /* by order[]; a token's result depends on that token alone */
    PLAN_ROUTER,         /* by the scores of this forward; for this and the following rankings a token's result depends on
                          * its text's other rows */
    PLAN_PATH,           /* as PLAN_ROUTER, with each row's scores weighted by batch.row_weight (AcceptMoE, arXiv 2608.02989) */
    PLAN_ORACLE,         /* by the outputs of the naturally routed experts (MoE-Spec eq. 6), all of which are computed */
    PLAN_PRINTED         /* by eq. 6 as printed: all experts contribute to all rows (engine/oracle.h) */
};

struct expert_plan {
    enum plan_ranking ranking;
    enum budget_mode mode;
    int moe_layers, experts;
    const int32_t *budget;       /* [moe_layers], each 1 .. experts */
    const int32_t *order;        /* PLAN_STATIC: [moe_layers][experts], best first; else NULL */
};

#endif
