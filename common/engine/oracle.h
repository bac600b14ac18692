/* The choice of MoE-Spec's oracle (section 3.2, eq. 6): from what each routed expert adds to each row, the experts that rebuild
 * the sum best. Starting from none, the one is added that leaves the least sum over rows of |what is missing|^2, ties to the
 * lower expert. Ends at `budget`, or when all experts that have a slot are in.
 *
 * The equation can be read in two ways. As we do, an expert that a row does not route to adds nothing to it, as in the model:
 * slots are those of the routing. As printed, each chosen expert j adds g_j(h_t) E_j(h_t) to every row t, routed to or not,
 * while the sum to rebuild is that of the routing alone: then each row has a slot for every expert, and `routed` tells which
 * make up the sum.
 *
 * contribution  [rows][slots][hidden]  weight times output of expert[row][slot]
 * expert        [rows][slots]          distinct within a row; -1: none
 * routed        [rows][slots]          1: part of the sum to rebuild; NULL: all are
 * mask          [experts]              1: chosen, else 0
 * Private to engine/. */
#ifndef MOE_ENGINE_ORACLE_H
#define MOE_ENGINE_ORACLE_H

#include <stdint.h>

#include "common/base/err.h"

struct oracle {
    const float *contribution;
    const int32_t *expert;
    const uint8_t *routed;
    int rows, slots, hidden, experts, budget;
};

int oracle_choose(const struct oracle *oracle, uint8_t *mask, struct err *err);

#endif
