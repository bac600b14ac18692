#include "common/train/tape.h"

#include <string.h>

#include "common/base/mem.h"

enum { CHUNK = 16 << 20, HOST_CHUNK = 1 << 20, LINE = 64 };

/* A block of memory from which values or notes are allocated one after the other. */
struct chunk {
    char *data;                                 /* on the host */
    struct buffer buffer;                       /* on the device */
    size_t bytes, used;
};

struct chunks {
    struct chunk *list;
    size_t count, room, at;                     /* at: index of the chunk in use */
    struct device *device;                      /* NULL: on the host */
};

struct step_back {
    tape_back *back;
    const void *note;
};

struct tape {
    struct device *device;
    const struct learn_ops *ops;
    struct chunks notes, values;
    struct step_back *steps;
    size_t step_count, step_room;
    bool forward;                               /* forward only: no gradients, no record */
    struct err err;
};

int tape_new(struct tape **out, struct device *device, struct err *err)
{
    const struct learn_ops *ops = device_learn(device);
    if (!ops)
        return err_set(err, ERR_INPUT, "device %s: does not support training; choose host", device_info(device)->name);
    struct tape *tape = mem_alloc(1, sizeof *tape, err);
    if (!tape)
        return -1;
    *tape = (struct tape){.device = device, .ops = ops, .values = {.device = device}};
    *out = tape;
    return 0;
}

static void free_chunks(struct chunks *chunks)
{
    for (size_t i = 0; i < chunks->count; i++)
        if (chunks->device)
            device_free(chunks->device, &chunks->list[i].buffer);
        else
            mem_free(&chunks->list[i].data);
    mem_free(&chunks->list);
}

void tape_free(struct tape **tape)
{
    if (!*tape)
        return;
    free_chunks(&(*tape)->notes);
    free_chunks(&(*tape)->values);
    mem_free(&(*tape)->steps);
    mem_free(tape);
}

static void begin_chunks(struct chunks *chunks)
{
    for (size_t i = 0; i < chunks->count; i++)
        chunks->list[i].used = 0;
    chunks->at = 0;
}

void tape_begin(struct tape *tape)
{
    begin_chunks(&tape->notes);
    begin_chunks(&tape->values);
    tape->step_count = 0;
    tape->forward = false;
    err_clear(&tape->err);
}

void tape_begin_forward(struct tape *tape)
{
    tape_begin(tape);
    tape->forward = true;
}

void tape_backward(struct tape *tape)
{
    for (size_t i = tape->step_count; i-- > 0;)
        tape->steps[i].back(tape, tape->steps[i].note);
}

int tape_failed(const struct tape *tape, struct err *err)
{
    if (tape->err.code == ERR_NONE)
        return 0;
    if (err)
        *err = tape->err;
    return -1;
}

const struct learn_ops *tape_ops(const struct tape *tape) { return tape->ops; }

struct queue *tape_queue(const struct tape *tape) { return device_queue(tape->device); }

static int add_chunk(struct chunks *chunks, size_t bytes, struct err *err)
{
    const size_t usual = chunks->device ? CHUNK : HOST_CHUNK;
    struct chunk fresh = {.bytes = bytes > usual ? bytes : usual};
    if (mem_grow(&chunks->list, &chunks->room, chunks->count + 1, sizeof *chunks->list, err) ||
        (chunks->device ? device_alloc(chunks->device, fresh.bytes, &fresh.buffer, err)
                        : !(fresh.data = mem_alloc_aligned(fresh.bytes, 1, err))))
        return -1;
    chunks->list[chunks->count++] = fresh;
    return 0;
}

/* Allocates count * size bytes; *at is the offset in the returned chunk. Chunks are used in order; if one has too little memory
 * left for this request, the rest of it stays unused until the next tape_begin. */
static struct chunk *chunk_alloc(struct tape *tape, struct chunks *chunks, size_t count, size_t size, size_t *at)
{
    size_t bytes;
    if (tape->err.code != ERR_NONE)
        return NULL;
    if (!size_mul(count, size, &bytes) || bytes > SIZE_MAX / 2) {
        err_memory(&tape->err);
        return NULL;
    }
    bytes = size_align(bytes + 1, LINE);
    for (; chunks->at < chunks->count; chunks->at++)
        if (chunks->list[chunks->at].bytes - chunks->list[chunks->at].used >= bytes)
            break;
    if (chunks->at == chunks->count && add_chunk(chunks, bytes, &tape->err))
        return NULL;
    struct chunk *chunk = &chunks->list[chunks->at];
    *at = chunk->used;
    chunk->used += bytes;
    return chunk;
}

void *tape_memory(struct tape *tape, size_t count, size_t size)
{
    size_t at;
    const struct chunk *chunk = chunk_alloc(tape, &tape->notes, count, size, &at);
    return chunk ? chunk->data + at : NULL;
}

struct buffer tape_buffer(struct tape *tape, size_t count, size_t size)
{
    size_t at;
    const struct chunk *chunk = chunk_alloc(tape, &tape->values, count, size, &at);
    return chunk ? buffer_part(chunk->buffer, at, count * size) : (struct buffer){0, 0};
}

struct buffer tape_copy(struct tape *tape, const void *data, size_t count, size_t size)
{
    const struct buffer to = data ? tape_buffer(tape, count, size) : (struct buffer){0, 0};
    if (to.address)
        queue_upload(tape->device, to, data, count * size);
    return to;
}

struct buffer tape_constant(struct tape *tape, const void *data, size_t count, size_t size)
{
    return device_info(tape->device)->host_memory ? device_map(tape->device, data, count * size)
                                                  : tape_copy(tape, data, count, size);
}

const void *tape_download(struct tape *tape, struct buffer from, size_t count, size_t size)
{
    if (device_info(tape->device)->host_memory)
        return queue_wait(tape->device, &tape->err) ? NULL : (const void *)(uintptr_t)from.address;
    void *to = tape_memory(tape, count, size);
    if (!to)
        return NULL;
    queue_download(tape->device, to, from, count * size);
    return queue_wait(tape->device, &tape->err) ? NULL : to;
}

struct variable *tape_value(struct tape *tape, int rows, int width, bool wanted)
{
    const size_t count = (size_t)rows * (size_t)width;
    struct variable *value = tape_memory(tape, 1, sizeof *value);
    if (!value)
        return NULL;
    *value = (struct variable){.rows = rows, .width = width, .data = tape_buffer(tape, count, sizeof(float))};
    if (wanted && !tape->forward) {
        value->gradient = tape_buffer(tape, count, sizeof(float));
        if (value->gradient.address)
            tape->ops->clear(tape_queue(tape), &(struct learn_clear_args){value->gradient, count});
    }
    return tape->err.code == ERR_NONE ? value : NULL;
}

int tape_note(struct tape *tape, tape_back *back, const void *note)
{
    if (note && tape->forward)
        return 0;
    if (!note || mem_grow(&tape->steps, &tape->step_room, tape->step_count + 1, sizeof *tape->steps, &tape->err))
        return -1;
    tape->steps[tape->step_count++] = (struct step_back){back, note};
    return 0;
}
