#include "common/store/staging.h"

#include "common/base/direct.h"
#include "common/base/mem.h"

struct slot {
    int from;                            /* the buffer whose copy to it may be under way; -1: none is */
    struct device_event *used;           /* what was last put on the queue that reads it */
};

struct buffer_of_host {
    int slot;                            /* what it is copied to */
    struct device_event *copied;
};

struct staging {
    struct device *device;
    struct buffer block, shared;         /* the slots; the buffers, and what is needed to align them */
    char *memory;
    size_t bytes;
    int slots, buffers;
    struct slot *slot;
    struct buffer_of_host *buffer;
    int *idle, idles;
    int *copying, first, copies;         /* [buffers] a ring, the oldest copy first: they end in this order */
};

int staging_open(struct staging **out, struct device *device, int slots, int buffers, size_t bytes, struct err *err)
{
    size_t all, room;
    struct staging *staging = mem_alloc(1, sizeof *staging, err);
    if (!staging)
        return -1;
    staging->device = device;
    staging->bytes = bytes;
    const bool fits = size_mul((size_t)slots, bytes, &all) && size_mul((size_t)buffers, bytes, &room) &&
                      size_add(room, DIRECT_STEP, &room);
    if ((!fits && err_memory(err)) || !(staging->slot = mem_alloc((size_t)slots, sizeof *staging->slot, err)) ||
        !(staging->buffer = mem_alloc((size_t)buffers, sizeof *staging->buffer, err)) ||
        !(staging->idle = mem_alloc((size_t)buffers, sizeof *staging->idle, err)) ||
        !(staging->copying = mem_alloc((size_t)buffers, sizeof *staging->copying, err)) ||
        device_alloc(device, all, &staging->block, err) || device_alloc_shared(device, room, &staging->shared, err))
        goto failed;
    staging->memory = (char *)(uintptr_t)((staging->shared.address + DIRECT_STEP - 1) / DIRECT_STEP * DIRECT_STEP);
    for (; staging->slots < slots; staging->slots++) {
        staging->slot[staging->slots].from = -1;
        if (event_open(&staging->slot[staging->slots].used, device, err))
            goto failed;
    }
    for (; staging->buffers < buffers; staging->buffers++) {
        if (event_open(&staging->buffer[staging->buffers].copied, device, err))
            goto failed;
        staging->idle[staging->idles++] = staging->buffers;
    }
    *out = staging;
    return 0;
failed:
    staging_close(&staging);
    return -1;
}

void staging_close(struct staging **of)
{
    struct staging *staging = *of;
    if (!staging)
        return;
    while (staging_wait(staging, NULL) > 0)
        continue;
    for (int i = 0; i < staging->slots; i++)
        event_close(&staging->slot[i].used);
    for (int i = 0; i < staging->buffers; i++)
        event_close(&staging->buffer[i].copied);
    device_free_shared(staging->device, &staging->shared);
    device_free(staging->device, &staging->block);
    mem_free(&staging->slot);
    mem_free(&staging->buffer);
    mem_free(&staging->idle);
    mem_free(&staging->copying);
    mem_free(of);
}

uint64_t staging_address(const struct staging *staging, int slot)
{
    return staging->block.address + (uint64_t)slot * staging->bytes;
}

/* ---- buffers */

static int oldest(const struct staging *staging) { return staging->copying[staging->first]; }

static void end_oldest(struct staging *staging)
{
    const int buffer = oldest(staging), slot = staging->buffer[buffer].slot;
    if (staging->slot[slot].from == buffer)              /* else another copy to the slot has come after it */
        staging->slot[slot].from = -1;
    staging->first = (staging->first + 1) % staging->buffers;
    staging->copies--;
    staging_give_back(staging, buffer);
}

bool staging_look(struct staging *staging)
{
    while (staging->copies && event_passed(staging->buffer[oldest(staging)].copied))
        end_oldest(staging);
    return staging->copies > 0;
}

int staging_wait(struct staging *staging, struct err *err)
{
    if (!staging->copies)
        return 0;
    const int rc = event_wait(staging->buffer[oldest(staging)].copied, err);
    end_oldest(staging);
    return rc ? -1 : 1;
}

int staging_take(struct staging *staging)
{
    if (!staging->idles)
        staging_look(staging);
    return staging->idles ? staging->idle[--staging->idles] : -1;
}

void *staging_data(const struct staging *staging, int buffer) { return staging->memory + (size_t)buffer * staging->bytes; }

void staging_give_back(struct staging *staging, int buffer) { staging->idle[staging->idles++] = buffer; }

/* ---- slots */

void staging_copy(struct staging *staging, int buffer, int slot, size_t bytes)
{
    const struct buffer to = buffer_part(staging->block, (uint64_t)slot * staging->bytes, staging->bytes);
    event_hold(staging->slot[slot].used, QUEUE_COPIES);
    copy_upload(staging->device, to, staging_data(staging, buffer), bytes);
    event_record(staging->buffer[buffer].copied, QUEUE_COPIES);
    staging->buffer[buffer].slot = slot;
    staging->slot[slot].from = buffer;
    staging->copying[(staging->first + staging->copies++) % staging->buffers] = buffer;
}

bool staging_has(const struct staging *staging, int slot) { return staging->slot[slot].from < 0; }

void staging_use(struct staging *staging, int slot)
{
    if (!staging_has(staging, slot))
        event_hold(staging->buffer[staging->slot[slot].from].copied, QUEUE_OPERATIONS);
}

void staging_release(struct staging *staging, int slot) { event_record(staging->slot[slot].used, QUEUE_OPERATIONS); }
