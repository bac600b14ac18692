/* Applies an expert budget (budget.h): chooses the plan that the forward of each iteration follows.
 *
 * With an automatic budget a governor sets the plan's numbers from iteration to iteration, and learns how far each token
 * diverged: 0 as long as only a row's own router chose its experts; afterwards a meter (meter.h) measures it. A PROBE is one
 * reading of the meter, after an iteration or, if the governor wants tokens checked, before they are emitted; its time and
 * bytes are part of the iteration's. A row that would diverge more than allowed is restored: its logits become those of the
 * model without a budget, and the draft is followed again. The loop, its records and --reference then see the restored row.
 *
 * Rankings by path use the probability of each node to be kept (reach.h). */
#ifndef MOE_DECODE_BUDGETING_H
#define MOE_DECODE_BUDGETING_H

#include "common/decode/budget.h"
#include "common/decode/watch.h"

struct budgeting;

/* Opens the watch. nodes: maximum of a draft. riders: maximum rows that drafters add after the draft. Budget and engine must
 * outlive it. */
int budgeting_open(struct budgeting **out, const struct budget *budget, struct engine *engine, int nodes, int riders,
                   struct err *err);
void budgeting_close(struct budgeting **budgeting);
struct watch *budgeting_watch(struct budgeting *budgeting);

#endif
