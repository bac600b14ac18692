/* The choice of MoE-Spec's oracle (section 3.2, eq. 6): from the contributions of each expert to each row, a greedy choice
 * of the experts that best reconstruct the sum. Starting from none, it adds the expert that minimises the sum over rows of
 * |missing part|^2; ties go to the lower expert. It ends at `budget`, or when all experts with a slot are chosen.
 *
 * The equation can be read in two ways. In moekit's, an expert contributes only to rows that route to it, as in the model:
 * slots are those of the routing. As printed, each chosen expert j adds g_j(h_t) E_j(h_t) to every row t, routed to or not,
 * while the sum to reconstruct is that of the routing alone: then each row has a slot for every expert, and `routed` marks
 * those that form the sum.
 *
 * contribution  [rows][slots][hidden]  weight times output of expert[row][slot]
 * expert        [rows][slots]          distinct within a row; -1: none
 * routed        [rows][slots]          1: part of the sum to reconstruct; NULL: all are
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

/* Makes the choice and writes it to mask. */
int oracle_choose(const struct oracle *oracle, uint8_t *mask, struct err *err);

#endif
