/* The choice of MoE-Spec's oracle (section 3.2, eq. 6): from what each routed expert adds to each row, the experts that rebuild
 * the sum best. Starting from none, the one is added that leaves the least sum over rows of |what is missing|^2, ties to the
 * lower expert; an expert that a row does not route to adds nothing to it. Ends at `budget`, or when all routed experts are in.
 *
 * contribution  [rows][slots][hidden]  weight times output of expert[row][slot]
 * expert        [rows][slots]          distinct within a row; -1: none
 * mask          [experts]              1: chosen, else 0
 * Private to engine/. */
#ifndef MOE_ENGINE_ORACLE_H
#define MOE_ENGINE_ORACLE_H

#include <stdint.h>

#include "common/base/err.h"

struct oracle {
    const float *contribution;
    const int32_t *expert;
    int rows, slots, hidden, experts, budget;
};

int oracle_choose(const struct oracle *oracle, uint8_t *mask, struct err *err);

#endif
