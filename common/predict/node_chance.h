/* Acceptance probability of the nodes of a draft, chain or tree, learned online for one drafter.
 *
 * A node whose drafter states a probability has that probability, corrected by the outcomes of nodes of similar ones
 * (calibration.h). A node without one has the acceptance rate of its match length, which leans on the rate of its depth, which
 * leans on the rate of all nodes (chance.h). Each node teaches whose parent is in the text, whether it was verified or not: it
 * is right just where the text continues with its token. */
#ifndef MOE_PREDICT_NODE_CHANCE_H
#define MOE_PREDICT_NODE_CHANCE_H

#include <stdbool.h>

#include "common/predict/calibration.h"
#include "common/predict/chance.h"

enum { NODE_CHANCE_DEPTHS = 8, NODE_CHANCE_MATCHES = 8 };

struct node_chance {
    struct calibration said;
    struct chance all;
    struct node_chance_cell { double kept, tried; } depth[NODE_CHANCE_DEPTHS], match[NODE_CHANCE_MATCHES];
};

struct node_signal {
    double said;                /* stated probability; NaN: none */
    int depth;                  /* 1: a child of the root */
    int match;                  /* tokens before it that were found in a text; 0: none */
};

void node_chance_init(struct node_chance *chance);
void node_chance_observe(struct node_chance *chance, const struct node_signal *signal, bool kept);
double node_chance_of(const struct node_chance *chance, const struct node_signal *signal);      /* 0 .. 1 */

#endif
