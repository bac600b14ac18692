/* True states of a text that a draft head has still to read: what the target left of them on the device (target_view), copied
 * where they stay, in the order in which the head joins them, the newest last. Their room is fixed: who puts more in reads some
 * first. */
#ifndef MOE_DRAFT_STATES_H
#define MOE_DRAFT_STATES_H

#include "common/draft/drafter.h"
#include "common/engine/engine.h"
#include "common/model/head.h"

enum { STATES_ROOM = ENGINE_ROWS_MAX };

struct states {
    struct device *device;
    const struct head_params *head;     /* which states, and how wide each is */
    struct buffer state;                /* [head->states][STATES_ROOM][target hidden] */
    struct buffer index;                /* [STATES_ROOM] i32 */
    int first, count;                   /* rows of each */
};

/* The states that this head reads of each forward of the target. Close also when opening has failed. */
int states_open(struct states *states, struct device *device, const struct head_params *head, struct feature_request *wanted,
                struct err *err);
void states_close(struct states *states);

void states_clear(struct states *states);
int states_room(const struct states *states);

/* Adds the states of these kept rows of a view, first .. first + count - 1: at most states_room. */
void states_put(struct states *states, const struct target_view *view, int first, int count);

/* The first `count` were read. */
void states_drop(struct states *states, int count);

#endif
