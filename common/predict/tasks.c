#include "common/predict/tasks.h"

#include <string.h>

int tasks_begin(struct tasks *tasks, const char *name)
{
    const int before = tasks->texts ? tasks->now : -1;
    int oldest = 0;
    name = name ? name : "";
    for (int i = 0; i < TASKS; i++) {
        if (tasks->used[i] && !strncmp(tasks->name[i], name, TASK_BYTES - 1)) {
            tasks->now = i;
            tasks->used[i] = ++tasks->texts;
            return -1;
        }
        if (tasks->used[i] < tasks->used[oldest])
            oldest = i;
    }
    memset(tasks->name[oldest], 0, TASK_BYTES);
    memcpy(tasks->name[oldest], name, strnlen(name, TASK_BYTES - 1));
    tasks->now = oldest;
    tasks->used[oldest] = ++tasks->texts;
    return before == oldest ? -1 : before;
}
