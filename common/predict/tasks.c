#include "common/predict/tasks.h"

#include <string.h>

#include "common/base/mem.h"

int tasks_add_text(struct tasks *tasks, size_t bytes, struct err *err)
{
    const int slots = tasks->slots ? tasks->slots + 1 : TASKS;
    if (mem_resize(&tasks->slot, (size_t)slots, sizeof *tasks->slot, err))
        return -1;
    tasks->bytes = bytes;
    while (tasks->slots < slots) {
        if (!(tasks->slot[tasks->slots] = mem_alloc(1, bytes, err)))
            return -1;
        tasks->slots++;
    }
    tasks->last = tasks->last ? tasks->last : tasks->slot[0];
    return 0;
}

void tasks_free(struct tasks *tasks)
{
    for (int i = 0; i < tasks->slots; i++)
        mem_free(&tasks->slot[i]);
    mem_free(&tasks->slot);
}

static struct task_slot *find(const struct tasks *tasks, const char *name)
{
    for (int i = 0; i < tasks->slots; i++)
        if (tasks->slot[i]->used && !strncmp(tasks->slot[i]->name, name, TASK_BYTES - 1))
            return tasks->slot[i];
    return NULL;
}

static struct task_slot *oldest_without_user(const struct tasks *tasks)
{
    struct task_slot *oldest = NULL;
    for (int i = 0; i < tasks->slots; i++)
        if (!tasks->slot[i]->users && (!oldest || tasks->slot[i]->used < oldest->used))
            oldest = tasks->slot[i];
    return oldest;
}

/* Returns the slot from which a new task in slot `now` takes over. */
static struct task_slot *taken_over(const struct tasks *tasks, const struct task_slot *now)
{
    struct task_slot *from = tasks->last;
    for (int i = 0; i < tasks->slots && !from->taught && from->before && from->before != now; i++)
        from = from->before;
    return from;
}

bool tasks_begin(struct tasks *tasks, struct task_slot **now, const char *name)
{
    name = name ? name : "";
    if (*now)
        (*now)->users--;
    struct task_slot *slot = find(tasks, name);
    bool takes_over = false;
    if (!slot) {
        slot = oldest_without_user(tasks);
        struct task_slot *from = taken_over(tasks, slot);
        takes_over = from != slot;
        if (takes_over)
            memcpy(slot, from, tasks->bytes);
        *slot = (struct task_slot){.before = takes_over ? from : NULL};
        memcpy(slot->name, name, strnlen(name, TASK_BYTES - 1));
    }
    slot->used = ++tasks->texts;
    slot->users++;
    tasks->last = *now = slot;
    return takes_over;
}
