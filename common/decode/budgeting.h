/* An expert budget (budget.h) at work: which plan the forward of each iteration follows.
 *
 * With an automatic budget a governor sets the plan's numbers from iteration to iteration, and learns how far each token
 * diverged by: 0 as long as no row that was kept had other experts than its router's; then what a meter (meter.h) finds. A
 * PROBE is what the meter reads, after an iteration or, where the governor wants tokens checked, before they are emitted: its
 * time and bytes count among the iteration's. A row that may not diverge as it would is restored: its logits become those of
 * the model without a budget, the draft is followed again, and what the loop, its records and --reference see of the row is
 * that.
 *
 * Rankings by path get how likely each node is to be kept (reach.h). */
#ifndef MOE_DECODE_BUDGETING_H
#define MOE_DECODE_BUDGETING_H

#include "common/decode/budget.h"
#include "common/decode/watch.h"

struct budgeting;

/* nodes: of the largest draft. riders: rows that drafters add after it, at most. Budget and engine stay open longer. */
int budgeting_open(struct budgeting **out, const struct budget *budget, struct engine *engine, int nodes, int riders,
                   struct err *err);
void budgeting_close(struct budgeting **budgeting);
struct watch *budgeting_watch(struct budgeting *budgeting);

#endif
