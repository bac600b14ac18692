#include "common/store/staging.h"

#include "common/base/direct.h"
#include "common/base/mem.h"

struct slot {
    int from;                            /* index of the latest copy to the slot in the ring; -1: none in flight */
    struct device_event *used;           /* last computation on the queue that reads the slot */
};

struct copy {
    int buffer, slot;
    struct device_event *done;
};

struct staging {
    struct device *device;
    struct buffer block, shared;        /* device memory of the slots; host memory of the buffers, with padding to align them */
    /* the aligned buffers */
    char *memory;
    size_t bytes;
    int slots, events;
    struct slot *slot;
    struct copy copy[STAGING_COPIES];    /* a ring, oldest first; copies complete in this order */
    int first, copies;
};

/* Allocates slots and buffers. The error says "experts" because that is what the caller stores in slots. */
static int take_memory(struct staging *staging, int slots, int buffers, struct err *err)
{
    size_t all, room;
    if (!size_mul((size_t)slots, staging->bytes, &all) || !size_mul((size_t)buffers, staging->bytes, &room) ||
        !size_add(room, DIRECT_STEP, &room))
        return err_memory(err);
    if (device_alloc(staging->device, all, &staging->block, err))
        return err_at(err, "%d cache slots of experts", slots);
    if (device_alloc_shared(staging->device, room, &staging->shared, err))
        return err_at(err, "%d pinned host buffers for experts", buffers);
    staging->memory = (char *)(uintptr_t)((staging->shared.address + DIRECT_STEP - 1) / DIRECT_STEP * DIRECT_STEP);
    return 0;
}

int staging_open(struct staging **out, struct device *device, int slots, int buffers, size_t bytes, struct err *err)
{
    struct staging *staging = mem_alloc(1, sizeof *staging, err);
    if (!staging)
        return -1;
    staging->device = device;
    staging->bytes = bytes;
    if (!(staging->slot = mem_alloc((size_t)slots, sizeof *staging->slot, err)) || take_memory(staging, slots, buffers, err))
        goto failed;
    for (; staging->slots < slots; staging->slots++) {
        staging->slot[staging->slots].from = -1;
        if (event_open(&staging->slot[staging->slots].used, device, err))
            goto failed;
    }
    for (; staging->events < STAGING_COPIES; staging->events++)
        if (event_open(&staging->copy[staging->events].done, device, err))
            goto failed;
    *out = staging;
    return 0;
failed:
    staging_close(&staging);
    return -1;
}

void staging_close(struct staging **of)
{
    struct staging *staging = *of;
    int buffer;
    if (!staging)
        return;
    while (staging_next(staging, true, &buffer, NULL))
        continue;
    for (int i = 0; i < staging->slots; i++)
        event_close(&staging->slot[i].used);
    for (int i = 0; i < staging->events; i++)
        event_close(&staging->copy[i].done);
    device_free_shared(staging->device, &staging->shared);
    device_free(staging->device, &staging->block);
    mem_free(&staging->slot);
    mem_free(of);
}

uint64_t staging_address(const struct staging *staging, int slot)
{
    return staging->block.address + (uint64_t)slot * staging->bytes;
}

void *staging_data(const struct staging *staging, int buffer) { return staging->memory + (size_t)buffer * staging->bytes; }

/* ---- copies */

int staging_busy(const struct staging *staging) { return staging->copies; }

void staging_copy(struct staging *staging, int buffer, int slot, size_t bytes)
{
    const struct buffer to = buffer_part(staging->block, (uint64_t)slot * staging->bytes, staging->bytes);
    const int number = (staging->first + staging->copies++) % STAGING_COPIES;
    event_hold(staging->slot[slot].used, QUEUE_COPIES);
    copy_upload(staging->device, to, staging_data(staging, buffer), bytes);
    event_record(staging->copy[number].done, QUEUE_COPIES);
    staging->copy[number].buffer = buffer;
    staging->copy[number].slot = slot;
    staging->slot[slot].from = number;
}

int staging_next(struct staging *staging, bool wait, int *buffer, struct err *err)
{
    const struct copy *oldest = &staging->copy[staging->first];
    if (!staging->copies || (!wait && !event_passed(oldest->done)))
        return 0;
    const int rc = wait ? event_wait(oldest->done, err) : 0;
    if (staging->slot[oldest->slot].from == staging->first)          /* otherwise a later copy to the slot is in flight */
        staging->slot[oldest->slot].from = -1;
    *buffer = oldest->buffer;
    staging->first = (staging->first + 1) % STAGING_COPIES;
    staging->copies--;
    return rc ? -1 : 1;
}

/* ---- slots */

bool staging_has(const struct staging *staging, int slot) { return staging->slot[slot].from < 0; }

void staging_use(struct staging *staging, int slot)
{
    if (!staging_has(staging, slot))
        event_hold(staging->copy[staging->slot[slot].from].done, QUEUE_OPERATIONS);
}

void staging_release(struct staging *staging, int slot) { event_record(staging->slot[slot].used, QUEUE_OPERATIONS); }
