/* Tasks of texts: learned values are kept separately for each task, in slots that policies of concurrent texts share. */
#ifndef MOE_PREDICT_TASKS_H
#define MOE_PREDICT_TASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

enum { TASKS = 16, TASK_BYTES = 64 };

/* Share of the previous task's learned values that a new task inherits. */
#define TASKS_TAKEN_OVER 0.25

struct task_slot {                      /* the first member of a task's values */
    char name[TASK_BYTES];              /* only the first TASK_BYTES - 1 bytes are compared */
    int64_t used;                       /* number of the task's last text, from 1; 0: the slot is empty */
    int users;                          /* present texts of the task; their slot is not reused */
    bool taught;                        /* the caller sets it when a text of the task had an iteration */
    struct task_slot *before;           /* the slot from which the task took over; NULL: none */
};

struct tasks {                          /* initialise with {0} */
    size_t bytes;                       /* size of a task's values */
    struct task_slot **slot;            /* [slots] */
    int slots;
    int64_t texts;                      /* number of texts so far */
    struct task_slot *last;             /* slot of the last text; slot[0] before the first one */
};

/* Adds the slots for one more concurrent text: TASKS for the first text, else one. bytes: the size of a task's values, the same
 * in all calls; new values are 0. The caller initialises those of slot[0], from which the first task takes over. */
int tasks_add_text(struct tasks *tasks, size_t bytes, struct err *err);
void tasks_free(struct tasks *tasks);

/* Begins a text of a task; name "" or NULL: unknown. *now: the slot of the caller's previous text, NULL before its first text;
 * receives the slot of the new text. A new task uses the slot unused for longest. Returns whether it took over the values of
 * the previous text's task, as a copy; if no text of that task has had an iteration, as when texts begin together, those of the
 * task before it. */
bool tasks_begin(struct tasks *tasks, struct task_slot **now, const char *name);

#endif
