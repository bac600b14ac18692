#include "common/draft/states.h"

int states_open(struct states *states, struct device *device, const struct head_params *head, struct feature_request *wanted,
                struct err *err)
{
    const uint64_t row = (uint64_t)head->target.hidden * sizeof(float);
    struct feature_request all = {.count = 0};
    *states = (struct states){.device = device, .head = head};
    for (int layer = 0; layer <= head->target.layers; layer++) {
        bool any = false;
        for (int i = 0; i < head->states; i++)
            any |= head->state[i] == layer;
        if (any)
            all.layer[all.count++] = layer;
    }
    if (device_alloc(device, (uint64_t)head->states * STATES_ROOM * row, &states->state, err) ||
        device_alloc(device, STATES_ROOM * sizeof(int32_t), &states->index, err))
        return -1;
    *wanted = all;
    return 0;
}

void states_close(struct states *states)
{
    if (!states->device)
        return;
    device_free(states->device, &states->state);
    device_free(states->device, &states->index);
}

void states_clear(struct states *states)
{
    states->first = states->count = 0;
}

int states_room(const struct states *states)
{
    return STATES_ROOM - states->first - states->count;
}

/* Returns the rows of one state from row `from` on. */
static struct buffer rows_of(const struct states *states, int which, int from)
{
    const uint64_t row = (uint64_t)states->head->target.hidden * sizeof(float);
    return buffer_part(states->state, ((uint64_t)which * STATES_ROOM + (uint64_t)from) * row,
                       (uint64_t)(STATES_ROOM - from) * row);
}

void states_put(struct states *states, const struct target_view *view, int first, int count)
{
    const struct device_ops *ops = device_ops(states->device);
    const int hidden = states->head->target.hidden, rows = view->forward->rows;
    const uint64_t bytes = (uint64_t)rows * (uint64_t)hidden * sizeof(float);
    queue_upload(states->device, states->index, view->kept + first, (size_t)count * sizeof *view->kept);
    for (int i = 0; i < states->head->states; i++) {
        int which = 0;
        while (view->features->layer[which] != states->head->state[i])
            which++;
        ops->gather(device_queue(states->device), &(struct gather_args){
            .in = buffer_part(view->forward->features, (uint64_t)which * bytes, bytes), .index = states->index,
            .out = rows_of(states, i, states->first + states->count), .rows = rows, .count = count, .width = hidden});
    }
    states->count += count;
}

/* Drops the first rows. The rest is moved to the beginning of the buffer as soon as source and destination do not overlap. */
void states_drop(struct states *states, int count)
{
    const struct device_ops *ops = device_ops(states->device);
    int32_t index[STATES_ROOM];
    states->first += count;
    states->count -= count;
    if (states->first < states->count)
        return;
    for (int i = 0; i < states->count; i++)
        index[i] = i;
    if (states->count)
        queue_upload(states->device, states->index, index, (size_t)states->count * sizeof *index);
    for (int i = 0; states->count && i < states->head->states; i++)
        ops->gather(device_queue(states->device), &(struct gather_args){
            .in = rows_of(states, i, states->first), .index = states->index, .out = rows_of(states, i, 0),
            .rows = states->count, .count = states->count, .width = states->head->target.hidden});
    states->first = 0;
}
