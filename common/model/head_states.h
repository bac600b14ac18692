/* The target's states that training a head needs: those that the head reads, and the state after the final norm, from which
 * the target's own probabilities are computed. A state is numbered as in head.h: N is the residual stream after layer N, and
 * the number of layers is the state after the final norm. */
#ifndef MOE_MODEL_HEAD_STATES_H
#define MOE_MODEL_HEAD_STATES_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/model/head.h"

struct head_states {
    int count;
    int state[HEAD_STATES_MAX + 1];     /* ascending, all distinct */
};

void head_states_of(struct head_states *out, const struct head_params *head);

/* Parses words: "0,2,4,final", or a kind of head with its settings: "eagle1", "eagle3" (the states by its authors' rule),
 * "kangaroo:exit=2". layers: the target's number of layers. */
int head_states_parse(struct head_states *out, const char *words, int layers, struct err *err);

/* Appends "after layers 0, 2 and the final norm". */
int head_states_text(const struct head_states *states, int layers, struct text *out, struct err *err);

#endif
