/* Tasks of texts: what is learned is kept separately for each, in slots 0 .. TASKS - 1 of the caller's own arrays. */
#ifndef MOE_PREDICT_TASKS_H
#define MOE_PREDICT_TASKS_H

#include <stdint.h>

enum { TASKS = 16, TASK_BYTES = 64 };

/* Share of what was learned that a new task takes over from the task before. */
#define TASKS_TAKEN_OVER 0.25

struct tasks {
    char name[TASKS][TASK_BYTES];       /* the first TASK_BYTES - 1 bytes count */
    int64_t used[TASKS], texts;         /* number of each task's last text, from 1; 0: the slot is empty */
    int now;                            /* slot of the present text */
};

/* Begins a text of a task; name "" or NULL: unknown. Sets tasks->now. Returns the slot of the text before, from which
 * a new task takes over TASKS_TAKEN_OVER of what was learned; -1: the task is known, or there was no text before. A new task
 * gets the slot unused for longest. */
int tasks_begin(struct tasks *tasks, const char *name);

#endif
