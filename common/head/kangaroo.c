/* Kangaroo (arXiv 2404.18911): one attention over the states after an early layer of the target. */
#include "common/head/internal.h"

/* Sets x to the state, also for drafted tokens: no row continues from the head's output. */
static int kangaroo_enter(struct head_pass *pass, struct err *err)
{
    struct head *head = pass->head;
    const int hidden = head->shape->hidden;
    if (!pass->batch->state.address)
        return err_set(err, ERR_INPUT, "a kangaroo head takes states of the target only, not its own output");
    head_gather(pass, pass->batch->state, pass->batch->state_rows, hidden, head->state_row, head->space.x, hidden, hidden);
    return 0;
}

static int kangaroo_leave(struct head_pass *pass, const struct layer *layer, struct err *err)
{
    (void)layer, (void)err;
    pass->branch[0] = pass->head->space.x;
    return 0;
}

const struct head_class head_kangaroo = {.kind = HEAD_KANGAROO, .branches = 1, .enter = kangaroo_enter,
                                         .leave = kangaroo_leave};
