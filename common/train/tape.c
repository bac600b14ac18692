#include "common/train/tape.h"

#include <stdatomic.h>
#include <string.h>

#include "common/base/mem.h"

enum { CHUNK = 16 << 20, LINE = 64, ALONE = 8192 };

struct chunk {
    char *data;
    size_t bytes, used;
};

struct step_back {
    tape_back *back;
    void *note;
};

struct tape {
    struct thread_pool *pool;
    struct chunk *chunks;
    size_t chunk_count, chunk_room, chunk;      /* chunk: that memory is taken from */
    struct step_back *steps;
    size_t step_count, step_room;
    bool forward;                               /* alone */
    struct err err;
};

int tape_new(struct tape **out, struct thread_pool *pool, struct err *err)
{
    struct tape *tape = mem_alloc(1, sizeof *tape, err);
    if (!tape)
        return -1;
    tape->pool = pool;
    *out = tape;
    return 0;
}

void tape_free(struct tape **tape)
{
    if (!*tape)
        return;
    for (size_t i = 0; i < (*tape)->chunk_count; i++)
        mem_free(&(*tape)->chunks[i].data);
    mem_free(&(*tape)->chunks);
    mem_free(&(*tape)->steps);
    mem_free(tape);
}

void tape_begin(struct tape *tape)
{
    for (size_t i = 0; i < tape->chunk_count; i++)
        tape->chunks[i].used = 0;
    tape->chunk = tape->step_count = 0;
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

struct thread_pool *tape_pool(const struct tape *tape) { return tape->pool; }

size_t tape_bytes(const struct tape *tape)
{
    size_t bytes = 0;
    for (size_t i = 0; i < tape->chunk_count; i++)
        bytes += tape->chunks[i].bytes;
    return bytes;
}

/* Chunks are taken in their order, and one that is too small for what comes next is passed over. */
void *tape_memory(struct tape *tape, size_t count, size_t size)
{
    size_t bytes;
    if (tape->err.code != ERR_NONE)
        return NULL;
    if (!size_mul(count, size, &bytes) || bytes > SIZE_MAX / 2) {
        err_memory(&tape->err);
        return NULL;
    }
    bytes = size_align(bytes + 1, LINE);
    for (; tape->chunk < tape->chunk_count; tape->chunk++)
        if (tape->chunks[tape->chunk].bytes - tape->chunks[tape->chunk].used >= bytes)
            break;
    if (tape->chunk == tape->chunk_count) {
        struct chunk fresh = {.bytes = bytes > CHUNK ? bytes : CHUNK};
        if (mem_grow(&tape->chunks, &tape->chunk_room, tape->chunk_count + 1, sizeof *tape->chunks, &tape->err) ||
            !(fresh.data = mem_alloc_aligned(fresh.bytes, 1, &tape->err)))
            return NULL;
        tape->chunks[tape->chunk_count++] = fresh;
    }
    struct chunk *chunk = &tape->chunks[tape->chunk];
    void *memory = chunk->data + chunk->used;
    chunk->used += bytes;
    return memory;
}

static void clear_part(void *context, size_t begin, size_t end)
{
    memset((float *)context + begin, 0, (end - begin) * sizeof(float));
}

struct variable *tape_value(struct tape *tape, int rows, int width, bool wanted)
{
    const size_t count = (size_t)rows * (size_t)width;
    struct variable *value = tape_memory(tape, 1, sizeof *value);
    if (!value)
        return NULL;
    *value = (struct variable){.rows = rows, .width = width, .data = tape_memory(tape, count, sizeof(float))};
    if (wanted && !tape->forward && (value->gradient = tape_memory(tape, count, sizeof(float))))
        tape_spread(tape, count, 1, clear_part, value->gradient);
    return tape->err.code == ERR_NONE ? value : NULL;
}

int tape_note(struct tape *tape, tape_back *back, void *note)
{
    if (note && tape->forward)
        return 0;
    if (!note || mem_grow(&tape->steps, &tape->step_room, tape->step_count + 1, sizeof *tape->steps, &tape->err))
        return -1;
    tape->steps[tape->step_count++] = (struct step_back){back, note};
    return 0;
}

struct spread {
    tape_job *job;
    tape_item *item;
    void *context;
    size_t count;
    atomic_size_t next;
};

static void run_part(void *argument, int member, int members)
{
    struct spread *spread = argument;
    size_t begin, end;
    thread_pool_part(spread->count, member, members, &begin, &end);
    if (begin < end)
        spread->job(spread->context, begin, end);
}

void tape_spread(struct tape *tape, size_t count, size_t cost, tape_job *job, void *context)
{
    struct spread spread = {.job = job, .context = context, .count = count};
    if (count * cost <= ALONE)
        run_part(&spread, 0, 1);
    else
        thread_pool_run(tape->pool, run_part, &spread);
}

static void run_items(void *argument, int member, int members)
{
    struct spread *spread = argument;
    (void)members;
    for (size_t i; (i = atomic_fetch_add(&spread->next, 1)) < spread->count;)
        spread->item(spread->context, i, member);
}

void tape_each(struct tape *tape, size_t count, tape_item *job, void *context)
{
    struct spread spread = {.item = job, .context = context, .count = count};
    thread_pool_run(tape->pool, run_items, &spread);
}
