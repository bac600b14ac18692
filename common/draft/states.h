/* True hidden states of a text that a draft head has not read yet: copies, on the device, of the states that the target left
 * there (target_view), in the order in which the head concatenates them, newest last. The capacity is fixed: if the buffers
 * are full, the caller must let the head read some states first. */
#ifndef MOE_DRAFT_STATES_H
#define MOE_DRAFT_STATES_H

#include "common/draft/drafter.h"
#include "common/engine/engine.h"
#include "common/model/head.h"

enum { STATES_ROOM = ENGINE_ROWS_MAX };

struct states {
    struct device *device;
    const struct head_params *head;     /* describes which states the head reads, and their widths */
    struct buffer state;                /* [head->states][STATES_ROOM][target hidden] */
    struct buffer index;                /* [STATES_ROOM] i32 */
    int first, count;                   /* range of valid rows in each state */
};

/* Allocates the buffers and sets *wanted to the target's layers that the head reads. states_close must be called also if
 * this failed. */
int states_open(struct states *states, struct device *device, const struct head_params *head, struct feature_request *wanted,
                struct err *err);
void states_close(struct states *states);

/* Removes all rows; states_room returns how many rows can still be added. */
void states_clear(struct states *states);
int states_room(const struct states *states);

/* Appends the states of kept rows first .. first + count - 1 of a view; at most states_room of them. */
void states_put(struct states *states, const struct target_view *view, int first, int count);

/* Drops the first `count` rows, which the head has read. */
void states_drop(struct states *states, int count);

#endif
