/* Tasks of texts: learned values are kept separately for each task, in slots 0 .. TASKS - 1 of the caller's own arrays. */
#ifndef MOE_PREDICT_TASKS_H
#define MOE_PREDICT_TASKS_H

#include <stdint.h>

enum { TASKS = 16, TASK_BYTES = 64 };

/* Share of the previous task's learned values that a new task inherits. */
#define TASKS_TAKEN_OVER 0.25

struct tasks {
    char name[TASKS][TASK_BYTES];       /* only the first TASK_BYTES - 1 bytes are compared */
    int64_t used[TASKS], texts;         /* number of each task's last text, from 1; 0: the slot is empty */
    int now;                            /* slot of the present text */
};

/* Begins a text of a task; name "" or NULL: unknown. Sets tasks->now. Returns the slot of the previous text, from which a
 * new task inherits TASKS_TAKEN_OVER of the learned values; -1: the task is known, or there was no previous text. A new task
 * uses the slot unused for longest. */
int tasks_begin(struct tasks *tasks, const char *name);

#endif
